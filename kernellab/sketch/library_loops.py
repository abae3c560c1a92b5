"""What the loops of a sketch multiply: each index as a sum of loop variables, what is summed over and what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Union

from kernellab.sketch import affine
from kernellab.sketch.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program import (
    Alloc,
    Apply,
    Assign,
    DType,
    Gemm,
    If,
    Kernel,
    Load,
    Loop,
    Point,
    Range,
    Read,
    Region,
    Statement,
    Store,
    TensorRole,
    Tile,
    Value,
)
from kernellab.sketch.tree import Span

#: dtypes that torch multiplies on a CPU and on a GPU
_DTYPES = (DType.F64, DType.F32, DType.F16, DType.BF16)
#: the library multiplies as torch's flags say, which a task's PRECISION sets; split products are kernels' own
_PRECISIONS = ("ieee", "tf32")
_PARTS = "Load both factors, gemm them into an init_zero tile, and store it; or drop the hint."
PLAIN = "Multiply whole tensors, tile by tile, and nothing else; or drop the hint."

Numbers = Mapping[str, Union[int, float]]


class NoCall(Exception):
    """No library call does the sketch: why (after "This sketch is hinted "library" and"), and what to change."""

    def __init__(self, what: str, remedy: str, span: Span | None = None) -> None:
        super().__init__(what)
        self.what, self.remedy, self.span = what, remedy, span


@dataclass(frozen=True)
class Form:
    """What one dimension is indexed by: the sum of coefficient x axis, plus offset, all over ``over``."""

    terms: tuple[tuple[str, int], ...]
    offset: int = 0
    over: int = 1

    @property
    def axis(self) -> str:
        """The axis that the dimension runs over plainly, "" where there is none."""
        plain = len(self.terms) == 1 and self.terms[0][1] == 1 and not self.offset and self.over == 1
        return self.terms[0][0] if plain else ""


@dataclass
class _Parts:
    """The statements of a sketch that only multiplies, and the loops around each."""

    alloc: Alloc | None = None
    gemm: Gemm | None = None
    store: Store | None = None
    loads: dict[str, Load] = field(default_factory=dict)
    #: tiles that are another one turned
    turned: dict[str, Tile] = field(default_factory=dict)
    around: dict[int, tuple[str, ...]] = field(default_factory=dict)
    #: every test, and how many of them hold each statement
    tests: list[IntExpr] = field(default_factory=list)
    tested: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Access:
    """A tensor's part that a statement moves, and the form of each of its dimensions."""

    region: Region
    forms: tuple[Form, ...]

    @property
    def axes(self) -> list[str]:
        """The axis of each dimension, "" where it is no plain one."""
        return [form.axis for form in self.forms]


@dataclass(frozen=True)
class Spelled:
    """``out`` is the sum of ``left`` times ``right`` over the axes that it lacks."""

    left: Access
    right: Access
    out: Access
    #: the extent of an axis, and of a dimension of a region's tensor, constexprs as numbers
    extent: Callable[[str], IntExpr]
    size: Callable[[Region, int], IntExpr]


def spelled(kernel: Kernel, constexpr: Numbers) -> Spelled:
    """The product that ``kernel`` spells.

    Raises:
        NoCall: it does anything else, or a part of it only.
    """
    return _Reader(kernel, constexpr).read()


class _Reader:
    def __init__(self, kernel: Kernel, constexpr: Numbers) -> None:
        self.kernel = kernel
        self.known = {n: int(v) for n, v in constexpr.items() if float(v).is_integer()}
        self.loops: dict[str, Loop] = {}
        self.parts = _Parts()
        #: extent of each axis: a loop's, or that of a tile dimension which no loop moves ("@k")
        self.extents: dict[str, IntExpr] = {}

    def read(self) -> Spelled:
        first = next((s for s in self.kernel.body if isinstance(s, Loop)), None)
        if first is None or not first.hints.library:
            raise NoCall("the hint is on an inner loop", "Hint the sketch's outermost loop.")
        self._collect(self.kernel.body, (), 0)
        p = self.parts
        if p.alloc is None or p.gemm is None or p.store is None or len(p.loads) != 2:
            raise NoCall("does not multiply two tensors into a third", _PARTS)
        self._sums_once(p.alloc, p.gemm, p.store)
        a, b = self._operand(p.gemm.a), self._operand(p.gemm.b)
        self._dtypes(a[0].region, b[0].region, p.store.region, p.gemm)
        letters = self._letters(a, b, p.store.region)
        left = self._forms(a[0].region, letters, "ki" if a[1] else "ik")
        right = self._forms(b[0].region, letters, "jk" if b[1] else "kj")
        out = self._forms(p.store.region, letters, "ij")
        self._tested((*left, *right))
        unused = set(self.loops) - {axis for form in (*left, *right, *out) for axis, _ in form.terms}
        if unused:
            raise NoCall(f"multiplies again for each '{min(unused)}'", PLAIN, self.loops[min(unused)].span)
        self._plain_out(p.store.region, out)
        return Spelled(
            Access(a[0].region, left), Access(b[0].region, right), Access(p.store.region, out), self.extent, self.size
        )

    # -- the statements

    def _collect(self, body: tuple[Statement, ...], loops: tuple[str, ...], tests: int) -> None:
        p = self.parts
        for stmt in body:
            p.around[id(stmt)], p.tested[id(stmt)] = loops, tests
            if isinstance(stmt, Loop):
                if affine.constant(self._with_numbers(stmt.start)) != 0:
                    raise NoCall(f"its loop over '{stmt.var}' does not start at 0", PLAIN, stmt.span)
                self.loops[stmt.var] = stmt
                self._collect(stmt.body, (*loops, stmt.var), tests)
            elif isinstance(stmt, If) and not stmt.orelse:
                p.tests.append(stmt.cond)
                self._collect(stmt.then, loops, tests + 1)
            elif isinstance(stmt, Alloc) and stmt.init_zero and p.alloc is None:
                p.alloc = stmt
            elif isinstance(stmt, Load) and stmt.tile.uid not in p.loads and stmt.pad == 0:
                p.loads[stmt.tile.uid] = stmt
            elif isinstance(stmt, Alloc) and not stmt.init_zero:
                continue  # a factor's tile
            elif isinstance(stmt, Assign) and (source := _turned(stmt.value)) is not None:
                p.turned[stmt.tile.uid] = source
            elif isinstance(stmt, Gemm) and p.gemm is None:
                # what is loaded behind it is multiplied one iteration later
                if len(p.loads) != 2 or any(p.around[id(s)] != loops[: len(p.around[id(s)])] for s in p.loads.values()):
                    raise NoCall("does not multiply two tiles that it has just loaded", _PARTS, stmt.span)
                p.gemm = stmt
            elif isinstance(stmt, Store) and p.store is None:
                p.store = stmt
            else:
                raise NoCall(
                    f"does more than multiply in line {stmt.span.line}",
                    "Leave nothing but the product in it: what comes before and after goes into sketches of their own.",
                    stmt.span,
                )

    def _sums_once(self, alloc: Alloc, gemm: Gemm, store: Store) -> None:
        """The tile starts at zero, takes every product, and is stored as it is."""
        around = self.parts.around
        inside = len(around[id(gemm)]) >= len(around[id(store)])
        tested = self.parts.tested
        plain = tested[id(alloc)] == tested[id(store)] == 0 and tested[id(gemm)] == len(self.parts.tests)
        if around[id(alloc)] != around[id(store)] or not inside or not plain:
            raise NoCall("starts and stores its sum in different loops", "Allocate the sum where it is stored.")
        stored = store.value
        while isinstance(stored, Apply) and stored.op == "cast":
            stored = stored.args[0]
        if not isinstance(stored, Read) or stored.tile.uid != alloc.tile.uid or gemm.acc.uid != alloc.tile.uid:
            raise NoCall(
                f"works on the product in line {store.span.line}",
                "Store the product as it is, and work on it in the next sketch.",
                store.span,
            )

    def _operand(self, value: Value) -> tuple[Load, bool]:
        """The load behind a factor, and whether its tile is turned."""
        turned = False
        while True:
            inner = _turned(value)
            tile = inner if inner is not None else value.tile if isinstance(value, Read) else None
            if tile is None:
                raise NoCall("works on a factor before it multiplies", "Store what the factor is in a sketch before.")
            turned ^= inner is not None
            if tile.uid in self.parts.loads:
                return self.parts.loads[tile.uid], turned
            if tile.uid not in self.parts.turned:
                raise NoCall("multiplies a tile that it does not load", PLAIN)
            value, turned = Read(value.type, self.parts.turned[tile.uid]), not turned

    def _dtypes(self, left: Region, right: Region, out: Region, gemm: Gemm) -> None:
        found = {r.tensor.dtype for r in (left, right, out)}
        if len(found) > 1 or not found <= set(_DTYPES):
            names = ", ".join(sorted(d.value for d in found))
            raise NoCall(
                f"multiplies {names}", "The library takes factors and result of one dtype: f64, f32, f16 or bf16."
            )
        if gemm.precision not in _PRECISIONS:
            raise NoCall(
                f'multiplies at "{gemm.precision}"',
                "The library knows ieee and tf32; a product of several parts is a kernel's own.",
                gemm.span,
            )
        if out.tensor.role is TensorRole.INOUT:
            raise NoCall("writes into a tensor of the caller", "Give the product a tensor of its own.")
        for load in self.parts.loads.values():
            if load.tile.dtype is not load.region.tensor.dtype:
                raise NoCall("rounds a factor while it loads it", "Load the tile in its tensor's dtype.", load.span)

    # -- the indices

    def _letters(self, a: tuple[Load, bool], b: tuple[Load, bool], out: Region) -> dict[str, str]:
        """The loop that walks over the tiles of each of rows i, sums k and columns j; "" where one tile has all."""
        seen: dict[str, list[list[str]]] = {"i": [], "k": [], "j": []}
        for region, names in (
            (a[0].region, "ki" if a[1] else "ik"),
            (b[0].region, "jk" if b[1] else "kj"),
            (out, "ij"),
        ):
            ranges = [item for item in region.index if isinstance(item, Range)]
            if len(ranges) != 2:
                raise NoCall("multiplies tiles that are no matrices", "Slice two dimensions of each tensor.")
            for letter, item in zip(names, ranges, strict=True):
                seen[letter].append(self._walkers(item))
        found: dict[str, str] = {}
        for letter, walkers in seen.items():
            both = [v for v in walkers[0] if all(v in w for w in walkers[1:])]
            both = [v for v in both if v not in found.values()]
            if not both and any(walkers):
                raise NoCall("does not walk over its tensors tile by tile", PLAIN)
            found[letter] = both[0] if both else ""
        return found

    def _walkers(self, item: Range) -> list[str]:
        """Loops whose step moves the slice by its own length."""
        found = []
        extent = self._with_numbers(item.extent)
        for name, loop in self.loops.items():
            moved = affine.coefficient(self._with_numbers(item.start), name)
            if moved is None or affine.constant(moved) == 0:
                continue
            if affine.equal(self._with_numbers(loop.step), extent) and affine.equal(
                moved, self._with_numbers(item.step)
            ):
                found.append(name)
        return found

    def _forms(self, region: Region, letters: Mapping[str, str], names: str) -> tuple[Form, ...]:
        order = iter(names)
        forms = []
        for dim, item in enumerate(region.index):
            if isinstance(item, Point):
                forms.append(self._form(item.at, ""))
                continue
            walker = letters[letter := next(order)]
            if walker:
                forms.append(self._form(item.start, walker))
                continue
            whole = affine.equal(self._with_numbers(item.extent), self.size(region, dim))
            if not whole or affine.constant(self._with_numbers(item.start)) != 0:
                raise NoCall(f"reads a part of '{region.tensor.name}'", PLAIN)
            self.extents[f"@{letter}"] = self.size(region, dim)
            forms.append(Form(((f"@{letter}", 1),)))
        for dim, form in enumerate(forms):
            if form.axis and not affine.equal(self.extent(form.axis), self.size(region, dim)):
                raise NoCall(
                    f"takes {self.extent(form.axis)} of '{region.tensor.name}', whose dimension {dim} has "
                    f"{self.size(region, dim)}", "Loop over whole dimensions.",
                )  # fmt: skip
        return tuple(forms)

    def _form(self, expr: IntExpr, walker: str) -> Form:
        expr, over = self._with_numbers(expr), 1
        if expr.kind is IntKind.OP and expr.op in ("//", "cdiv"):
            over = affine.constant(expr.args[1]) or 0
            inner = expr.args[0]
            # ceil(n, s) is (n + s - 1) // s, and is printed for it
            expr = int_op("+", inner, num(over - 1)) if expr.op == "cdiv" else inner
        terms: dict[str, int] = {}
        offset = 0
        for monomial, factor in affine.poly(expr).items():
            if not monomial:
                offset = factor
            elif len(monomial) == 1 and monomial[0].kind is IntKind.LOOP and over:
                terms[monomial[0].name] = factor
            else:
                raise NoCall(f"is indexed by {expr}", "Index by sums of loop variables and numbers.")
        for name in terms:
            step = affine.constant(self._with_numbers(self.loops[name].step))
            if name != walker and step != 1:
                raise NoCall(f"steps over '{name}'", "Step by 1, or by the tile that is sliced.", self.loops[name].span)
        return Form(tuple(terms.items()), offset, over)

    def _tested(self, forms: tuple[Form, ...]) -> None:
        """Each index that is divided stands under a test that it divides, and no other test is there."""
        divided = {(frozenset(f.terms), f.offset % f.over, f.over) for f in forms if f.over != 1}
        found = set()
        for test in self.parts.tests:
            rest = self._with_numbers(test)
            plain = rest.op == "==" and affine.constant(rest.args[1]) == 0 and rest.args[0].op == "%"
            if not plain:
                raise NoCall(f"multiplies only where {test}", PLAIN)
            inner, over = rest.args[0].args
            form = self._form(inner, "")
            size = affine.constant(over) or 0
            found.add((frozenset(form.terms), form.offset % size if size else 0, size))
        if divided != found:
            raise NoCall("divides an index without testing that it divides", "Put the product under if index % s == 0.")

    def _plain_out(self, region: Region, forms: tuple[Form, ...]) -> None:
        axes = [f.axis for f in forms]
        if "" in axes or len(set(axes)) != len(axes):
            raise NoCall(f"does not write '{region.tensor.name}' in order", PLAIN)
        mine = set(self.parts.around[id(self.parts.store)])
        if mine - set(axes):
            raise NoCall(f"stores again for each '{sorted(mine - set(axes))[0]}'", PLAIN)

    # -- numbers

    def extent(self, axis: str) -> IntExpr:
        return self.extents[axis] if axis in self.extents else self._with_numbers(self.loops[axis].stop)

    def size(self, region: Region, dim: int) -> IntExpr:
        return self._with_numbers(region.tensor.shape[dim])

    def _with_numbers(self, expr: IntExpr) -> IntExpr:
        """``expr`` with the values of constexprs."""
        if expr.kind is IntKind.CONSTEXPR and expr.name in self.known:
            return num(self.known[expr.name])
        if expr.kind is not IntKind.OP:
            return expr
        return int_op(expr.op, *(self._with_numbers(a) for a in expr.args))


def _turned(value: Value) -> Tile | None:
    """The tile that ``value`` is the transpose of."""
    if not isinstance(value, Apply) or value.op != "transpose" or not isinstance(value.args[0], Read):
        return None
    return value.args[0].tile if value.attr("perm", (1, 0)) == (1, 0) else None


__all__ = ["PLAIN", "Access", "Form", "NoCall", "Numbers", "Spelled", "spelled"]
