"""The implementation of :func:`kernellab.sketch.program.bind.bind`: tensors to arguments, symbols to dimensions."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, prod
from typing import NamedTuple

from kernellab.errors import SketchError
from kernellab.sketch.program.binding import Binding, BoundOutput
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import DType, Program, Tensor, TensorRole
from kernellab.sketch.program.views import aligned
from kernellab.sketch.run import constexpr_values
from kernellab.task import ArgKind, Extent, OutputSpec, Task, extent
from kernellab.task.formula import Formula, Solved, Term, named, read, solve
from kernellab.task.sample.sizes import runs_at, small_sizes

Number = int | float
_BY_TORCH_NAME = {d.torch_name: d for d in DType}


def bind_alone(program: Program, overrides: Mapping[str, Number], default_extent: int | None) -> Binding:
    """Return the binding of a program without a task."""
    values = constexpr_values(program, overrides, default_extent)
    inputs = program.inputs
    symbols: dict[str, tuple[int, int]] = {}
    for position, tensor in enumerate(inputs):
        for dim, expr in enumerate(tensor.shape):
            if expr.kind is IntKind.SYMBOL:
                symbols.setdefault(expr.name, (position, dim))
    _check_known(program, symbols)
    sizes = dict(program.sizes)
    return Binding(
        parameters=tuple(t.name for t in inputs),
        tensors={t.name: i for i, t in enumerate(inputs)},
        symbols=symbols,
        constexpr=values,
        outputs=tuple(BoundOutput(t.name, t.shape) for t in program.outputs),
        dtypes={i: t.dtype for i, t in enumerate(inputs)},
        fixed={s: sizes[s] for s in program.symbols if s in sizes},
    )


def bind_task(program: Program, task: Task, overrides: Mapping[str, Number], default_extent: int | None) -> Binding:
    """Return the binding of a program to a task's arguments and outputs."""
    scalars, values = _scalars(program, task, overrides)
    constexpr = constexpr_values(program, {**overrides, **values}, default_extent)
    tensors = _match_tensors(program, task)
    symbols = _Symbols(constexpr, dict(program.sizes))
    views = [
        _View(program.tensor(name), task.args[position].held.shape, position, task.args[position].name)
        for name, position in tensors.items()
    ]
    for view in views:
        symbols.read(view)
    for view in views:
        symbols.named(program.symbols, view)
    symbols.solve(views)
    symbols.solve_by_name(program.symbols, views)
    _check_splits(program, symbols.extents, views)
    _check_known(program, symbols.extents)
    samples = _sample_sizes(task)
    for view in views:
        symbols.check_elements(view.tensor, view.shape, samples, f"the argument {view.argument}")
    outputs = _outputs(program, task, symbols, samples)
    return Binding(
        parameters=tuple(a.name for a in task.args),
        tensors=tensors,
        symbols={s: (p, task.args[p].dimension(d)) for s, (p, d) in symbols.places.items()},
        constexpr=constexpr,
        outputs=outputs,
        scalars=scalars,
        constants={
            i: a.value
            for i, a in enumerate(task.args)
            if a.kind is ArgKind.SCALAR and a.value is not None and isfinite(a.value) and i not in scalars.values()
        },
        defaults={i: a.default for i, a in enumerate(task.args) if a.default is not None},
        dtypes={position: program.tensor(name).dtype for name, position in tensors.items()},
        fixed={s: e for s, e in symbols.extents.items() if isinstance(e, int)},
        solved=symbols.solved,
        of_outputs=_of_outputs(program, task, outputs, {*symbols.places, *symbols.solved}),
        pairs=frozenset(i for i, a in enumerate(task.args) if a.held.dtype != a.dtype),
        last=frozenset(i for i, a in enumerate(task.args) if a.last),
    )


class _View(NamedTuple):
    """An in tensor of the sketch as a view of an argument: the argument's shape over Dims, its position and name."""

    tensor: Tensor
    shape: Sequence[Extent]
    position: int
    argument: str


@dataclass
class _Symbols:
    """Facts about each symbol: the dimension that gives it, and its extent over the task's Dims."""

    constexpr: Mapping[str, Number]
    #: values in the sketch
    sizes: Mapping[str, int]
    #: symbol -> (position, dimension) of the argument that gives it
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: symbol -> its extent: a number, or a formula over Dims
    extents: dict[str, Extent] = field(default_factory=dict)
    #: symbols that occur only inside extents
    solved: dict[str, Solved[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.extents |= self.sizes

    def read(self, view: _View) -> None:
        """Record the symbols that the declared shape of a view gives. Raises SketchError: one has two extents."""
        for expr, dim in aligned(view.tensor.shape, view.shape):
            if expr.kind is not IntKind.SYMBOL:
                continue
            size = view.shape[dim]
            earlier = self.extents.setdefault(expr.name, size)
            self.places.setdefault(expr.name, (view.position, dim))
            if earlier != size and expr.name in self.sizes:
                words = size if isinstance(size, int) else f"{size}, which varies,"
                raise SketchError(
                    f"The sketch says {expr.name} = {earlier}, and in {view.tensor.name} it is {words} in the task.",
                    f"Write the task's value, or {expr.name} alone: the arguments give it.",
                )
            if earlier != size:
                raise SketchError(
                    f"The symbol {expr.name} is {earlier} and, in {view.tensor.name}, {size} in the task.",
                    "Give the two extents different names.",
                )

    def named(self, symbols: Sequence[str], view: _View) -> None:
        """Record a symbol that is alone in no declared shape (``x[N * N]`` of an [N, N]) as the Dim of its name."""
        for dim, size in enumerate(view.shape):
            if isinstance(size, str) and size in symbols and size not in self.extents:
                self.extents[size] = size
                self.places[size] = (view.position, dim)

    def solve(self, views: Sequence[_View]) -> None:
        """Solve for the symbols that occur only inside extents, such as ``N + 1``, from the sizes of the arguments."""
        shapes = {view.position: view.shape for view in views}
        equations: list[tuple[tuple[int, int], Term]] = [(place, named(s)) for s, place in self.places.items()]
        for view in views:
            if len(view.tensor.shape) == len(view.shape):
                equations += [((view.position, d), self._formula(e)) for d, e in enumerate(view.tensor.shape)]
        for symbol, solved in solve(equations).items():
            if symbol in self.extents:
                continue
            extent = solved.formula(lambda place: read(shapes[place[0]][place[1]]), self._terms())
            if extent is not None:
                self.solved[symbol] = solved
                self.extents[symbol] = extent if isinstance(extent, int) else str(extent)

    def solve_by_name(self, symbols: Sequence[str], views: Sequence[_View]) -> None:
        """Record a symbol that no declared shape gives (``x[B, C, 32]`` of a [B, C*32]) as the Dim of its name."""
        equations = [((view.position, d), read(e)) for view in views for d, e in enumerate(view.shape)]
        for name, solved in solve(equations).items():
            if name in symbols and name not in self.extents:
                formulas = [t for t in (solved.less, solved.by) if isinstance(t, Formula)]
                needed = frozenset[str]().union(*(t.names() for t in formulas))
                if all(self.extents.get(n) == n for n in needed):
                    self.solved[name] = solved
                    self.extents[name] = name

    def _terms(self) -> dict[str, Term]:
        return {symbol: read(extent) for symbol, extent in self.extents.items()}

    def _formula(self, expr: IntExpr) -> Term:
        """Return a declared extent as a formula over symbols."""
        if expr.kind is IntKind.NUM:
            return expr.value
        if expr.kind is IntKind.CONSTEXPR:
            return int(self.constexpr[expr.name])
        if expr.kind is not IntKind.OP:
            return named(expr.name)
        args = tuple(map(self._formula, expr.args))
        if expr.op == "-" and len(args) == 1:
            return Formula("neg", args)
        return Formula({"cdiv": "ceil"}.get(expr.op, expr.op), args)

    def check_elements(
        self, tensor: Tensor, shape: Sequence[Extent], samples: Sequence[Mapping[str, int]], argument: str
    ) -> None:
        """Check at sample sizes that the declared shape has as many elements as ``shape``. Raises SketchError."""
        for sizes in samples:
            actual = [extent(e, sizes) for e in shape]
            declared = [e.evaluate(self.values(sizes)) for e in tensor.shape]
            if prod(declared) != prod(actual):
                at = f" at {dict(sizes)}" if sizes else ""
                raise SketchError(
                    f"{tensor.name} is declared {list(declared)} and {argument} is {list(actual)}{at}.",
                    f"Declare {tensor.name}[{', '.join(map(str, shape))}], or a view with as many elements.",
                )

    def fits(self, tensor: Tensor, shape: Sequence[Extent], samples: Sequence[Mapping[str, int]]) -> bool:
        """Has the declared shape as many elements as ``shape`` at the sample sizes?"""
        try:
            self.check_elements(tensor, shape, samples, "")
        except SketchError:
            return False
        return True

    def values(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the values of symbols and integer constexprs at the Dims' ``sizes``."""
        integers = {k: int(v) for k, v in self.constexpr.items() if float(v).is_integer()}
        return {**integers, **{s: extent(e, sizes) for s, e in self.extents.items()}}

    def translate(self, expr: Extent) -> IntExpr | None:
        """Return an extent over Dims as an expression over symbols; None if a Dim has no symbol."""
        if isinstance(expr, int):
            return num(expr)
        whole = next((s for s, e in self.extents.items() if e == expr), None)
        if whole is not None:
            return IntExpr(IntKind.SYMBOL, name=whole)
        return self._translate(read(expr))

    def _translate(self, term: Term) -> IntExpr | None:
        if isinstance(term, int):
            return num(term)
        if isinstance(term, float):
            return None
        if term.name:
            symbol = next((s for s, e in self.extents.items() if e == term.name), None)
            return IntExpr(IntKind.SYMBOL, name=symbol) if symbol else None
        args = [inner for a in term.args if (inner := self._translate(a)) is not None]
        is_expressible = term.op in _OPERATORS and len(args) == len(term.args)
        return int_op(term.op, *args) if is_expressible else None


_OPERATORS = ("+", "-", "*", "//", "%")


def _scalars(program: Program, task: Task, overrides: Mapping[str, Number]) -> tuple[dict[str, int], dict[str, Number]]:
    """Return the constexprs that are scalar arguments: those passed at run time, and all their values."""
    passed: dict[str, int] = {}
    values: dict[str, Number] = {}
    for item in program.constexprs:
        for position, arg in enumerate(task.args):
            if arg.kind is not ArgKind.SCALAR or arg.name != item.name or arg.value is None:
                continue
            if overrides.get(item.name, arg.value) != arg.value:
                continue  # a person set another value
            values[item.name] = arg.value
            if not item.is_extent:
                passed[item.name] = position
    return passed, values


def _match_tensors(program: Program, task: Task) -> dict[str, int]:
    """Return each in tensor's argument: by equal name, then by name in any case, then in order."""
    free = {i: a for i, a in enumerate(task.args) if a.is_tensor}
    positions: dict[str, int] = {}
    for fold in (str, str.lower):
        for tensor in program.inputs:
            if tensor.name not in positions:
                hits = [i for i, a in free.items() if fold(tensor.name) in (fold(a.name), fold(a.key))]
                if len(hits) == 1:
                    positions[tensor.name] = hits[0]
                    del free[hits[0]]
    for tensor in program.inputs:
        if tensor.name in positions:
            continue
        fitting = [i for i, a in free.items() if _BY_TORCH_NAME.get(a.held.dtype) is tensor.dtype]
        position = next(iter(fitting or free), None)
        if position is None:
            raise SketchError(
                f"The sketch reads {tensor.name} and the task has no argument left for it.",
                f"The task's tensors are {', '.join(a.name for a in task.tensors)}.",
            )
        positions[tensor.name] = position
        del free[position]
    for tensor in program.inputs:
        arg = task.args[positions[tensor.name]]
        if _BY_TORCH_NAME.get(arg.held.dtype) is not tensor.dtype:
            raise SketchError(
                f"{tensor.name} is declared {tensor.dtype.value} and the argument {arg.name} is {arg.dtype}.",
                _as_pairs(tensor, OutputSpec(arg.shape, arg.dtype))
                or f"Declare {tensor.name} with the argument's dtype; cast inside the sketch.",
            )
    return {t.name: positions[t.name] for t in program.inputs}


def _as_pairs(tensor: Tensor, spec: OutputSpec) -> str:
    """Return how a complex argument or output is declared; "" for a real one."""
    if not spec.is_complex:
        return ""
    shape, dtype = ", ".join(map(str, spec.held.shape)), _BY_TORCH_NAME[spec.held.dtype].value
    return f"Declare {tensor.name}[{shape}]: {dtype}, the real and the imaginary part of each number."


def _numbered(outs: Sequence[Tensor]) -> list[Tensor]:
    """Return the out tensors in the reference's order: by the numbers at the end of their names (``y0``, ``y1``), else
    as written."""
    matches = [re.fullmatch(r"(\D+)(\d+)", t.name) for t in outs]
    numbers = [int(m[2]) for m in matches if m]
    one_name = len({m[1] for m in matches if m}) == 1
    if len(numbers) != len(outs) or not one_name or max(numbers) - min(numbers) != len(set(numbers)) - 1:
        return list(outs)
    return [t for _, t in sorted(zip(numbers, outs, strict=True), key=lambda pair: pair[0])]


def _outputs(
    program: Program, task: Task, symbols: _Symbols, samples: Sequence[Mapping[str, int]]
) -> tuple[BoundOutput, ...]:
    outs = [t for t in program.outputs if t.role is TensorRole.OUT]
    if len(outs) != len(task.results):
        outs = list(program.outputs)
    outs = _numbered(outs)
    if len(outs) != len(task.results):
        raise SketchError(
            f"The sketch writes {len(outs)} tensors ({', '.join(t.name for t in outs)}) and the reference returns "
            f"{len(task.results)}.",
            "Declare one out tensor for each output, in the reference's order.",
        )
    dtypes = [_BY_TORCH_NAME.get(result.held.dtype) for result in task.results]
    order = _declared_order(program, outs) if len(outs) > 1 else ""
    in_order = f"Declare them in the reference's order, or name them by it: out0 to out{len(outs) - 1}."
    bound: list[BoundOutput] = []
    for number, (tensor, result) in enumerate(zip(outs, task.results, strict=True)):
        which = f"output {number} (from 0)" if order else "output"
        if dtypes[number] is not tensor.dtype:
            remedy = _as_pairs(tensor, result) or f"Declare {tensor.name} with the output's dtype."
            if sorted(map(str, dtypes)) == sorted(str(t.dtype) for t in outs):
                remedy = in_order
            raise SketchError(
                f"{tensor.name} is declared {tensor.dtype.value} and the reference's {which} is {result.dtype}{order}.",
                remedy,
            )
        extents = result.held.shape
        try:
            symbols.check_elements(tensor, extents, samples, f"the reference's {which}{order}")
        except SketchError as error:
            if not any(symbols.fits(other, extents, samples) for other in outs if other is not tensor):
                raise
            raise SketchError(error.message, in_order) from None
        shape = _output_shape(tensor, extents, symbols, which)
        bound.append(BoundOutput(tensor.name, shape, pairs=result.is_complex, last=result.last))
    written = task.module().written
    first = len(bound) - len(written)
    return (*bound[:first], *(replace(o, into=i) for o, i in zip(bound[first:], written, strict=True)))


def _declared_order(program: Program, outs: Sequence[Tensor]) -> str:
    """Return in words which tensor is which output, for an error."""
    listed = (f"output {n} is {t.name}, which {_writer(program, t.name)} writes" for n, t in enumerate(outs))
    return f", in the order in which the sketches declare out tensors ({'; '.join(listed)})"


def _output_shape(
    tensor: Tensor, extents: Sequence[Extent], symbols: _Symbols, which: str
) -> tuple[IntExpr, ...]:  # fmt: skip
    """Return an output's extents over symbols; the declared ones where a Dim has no symbol and the rank is the same."""
    translated = [symbols.translate(extent) for extent in extents]
    shape = tuple(extent for extent in translated if extent is not None)
    if len(shape) == len(translated):
        return shape
    if len(tensor.shape) != len(extents):
        raise SketchError(
            f"The shape [{', '.join(map(str, extents))}] of the {which} uses a Dim that no symbol of the sketch names.",
            "Declare that Dim as a symbol in an input's shape.",
        )
    return tensor.shape


def _writer(program: Program, tensor: str) -> str:
    """Return the first sketch that writes a tensor."""
    return next((kernel.name for kernel in program.kernels if tensor in kernel.writes), "no sketch")


def _of_outputs(
    program: Program, task: Task, outputs: Sequence[BoundOutput], resolved: Collection[str]
) -> dict[str, tuple[int, int]]:
    """Return the symbols that no argument gives and that are an extent of an output: the output, and its dimension."""
    places: dict[str, tuple[int, int]] = {}
    for number, (bound, spec) in enumerate(zip(outputs, task.results, strict=True)):
        for expr, dim in aligned(program.tensor(bound.tensor).shape, spec.held.shape):
            if expr.kind is IntKind.SYMBOL and expr.name not in resolved:
                places.setdefault(expr.name, (number, dim))
    return places


def _sample_sizes(task: Task) -> list[dict[str, int]]:
    """Return two sets of sizes that distinguish the Dims; one empty set for fixed shapes."""
    if not task.dims:
        return [{}]
    default = task.module().default_sizes()
    spread = {d.name: min(max(d.min, 3 + 4 * i), d.max) for i, d in enumerate(task.dims)}
    return [default, *([spread] if runs_at(task, tuple(spread.items())) else small_sizes(task)[-1:])]


def _check_splits(program: Program, resolved: Collection[str], views: Sequence[_View]) -> None:
    """
    Raises:
        SketchError: a symbol occurs only in a tensor that has more dimensions than its argument.
    """
    for tensor, shape, _, argument in views:
        unknown = [n for e in tensor.shape for n in e.names() if n in program.symbols and n not in resolved]
        if unknown and len(tensor.shape) > len(shape):
            declared, actual = (f"[{', '.join(map(str, extents))}]" for extents in (tensor.shape, shape))
            raise SketchError(
                f"{tensor.name}{declared} splits a dimension of the argument {argument} {actual}, and the size of "
                f"{' and '.join(dict.fromkeys(unknown))} does not follow from that.",
                f"Declare {tensor.name} with the argument's own dimensions and compute the indices, or give "
                f"{unknown[0]} a value where the task's sizes are fixed, as in `symbols: {unknown[0]} = 20`.",
            )


def _check_known(program: Program, resolved: Collection[str]) -> None:
    used = {n for t in program.tensors for e in t.shape for n in e.names()}
    for symbol in program.symbols:
        if symbol in used and symbol not in resolved and symbol not in dict(program.sizes):
            raise SketchError(
                f"The size of the symbol {symbol} does not follow from the arguments' shapes.",
                f"Declare an in tensor with {symbol} as one of its extents, write the extent with known symbols, or "
                f"give {symbol} a value.",
            )
