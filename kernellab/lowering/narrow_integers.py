"""Integers of 64 bits whose values are known to fit 32: a GPU computes those in one instruction, others in two or more.

Positions, sizes and what is computed from them have 64 bits in a sketch, as in torch. Where the extents bound a value,
it has 32 bits in the code; a temp tensor that holds only such values has 32 bits, or 16. Results are the same, and what
a result or a reader needs in 64 bits is widened there. Pooling with the places of its maxima: 640 instructions of a
thread and 80 registers before, 408 and 48 after (sm_90)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf, isfinite
from typing import Any

from kernellab.lowering.bounds import Interval
from kernellab.lowering.spans import ARITHMETIC, MOVES, Sizes, Spans, single, union, within
from kernellab.sketch.program.program import (
    Alloc,
    Apply,
    Assign,
    Const,
    DType,
    If,
    Index,
    Kernel,
    LibraryCall,
    Load,
    Loop,
    Program,
    Read,
    Region,
    Scatter,
    Statement,
    Store,
    Tensor,
    TensorRole,
    Tile,
    Touch,
    Value,
)
from kernellab.sketch.program.walk import gathers, statements, written_tiles

_COMPARED = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))


class _Latest(threading.local):
    """What a thread narrowed last: a program is lowered once for each choice of a tunable."""

    program: Program | None = None
    sizes: tuple[tuple[str, int | None], ...] = ()
    result: Program | None = None


_latest = _Latest()


def narrowed(program: Program, values: Mapping[str, int]) -> Program:
    """Return ``program`` with integers of 32 bits where ``values`` (sizes of symbols) and extents bound them.

    Kernels whose loads the copy engine makes stay as they are, with the tensors that they use."""
    named = {name: values.get(name) for name in program.symbols}
    named |= {c.name: v for c in program.constexprs if (v := values.get(c.name)) not in (*c.choices, c.value, None)}
    sizes = tuple(named.items())
    if _latest.program is not program or _latest.sizes != sizes or _latest.result is None:
        _latest.result = _Narrowing(program, values).program()
        _latest.program, _latest.sizes = program, sizes
    return _latest.result


class _Narrowing:
    def __init__(self, program: Program, values: Mapping[str, int]) -> None:
        self._program = program
        self._spans = Spans(Sizes(program, values))
        #: tensors whose dtype is open, the dtypes that are chosen, and the spans of what was stored in each
        self._open = self._open_tensors()
        self._dtypes: dict[str, DType] = {}
        self._stored: dict[str, list[Interval]] = {}
        #: of each tile of the kernel by uid: the number of its writers, and the tile of 32 bits that replaces it
        self._writers: Counter[str] = Counter()
        self._tiles: dict[str, Tile] = {}

    def program(self) -> Program:
        kernels = []
        for kernel in self._program.kernels:
            if not _by_copy_engine(kernel):
                kernel = self._kernel(kernel)
            kernels.append(kernel)
            for name in kernel.writes & self._open:
                self._settle(name)
        if all(a is b for a, b in zip(kernels, self._program.kernels, strict=True)):
            return self._program
        return _with_dtypes(replace(self._program, kernels=tuple(kernels)), self._dtypes)

    def _open_tensors(self) -> set[str]:
        """Return the temps of 64-bit integers that one kernel stores and only later ones read."""
        kernels = self._program.kernels
        wide = {t.name for t in self._program.tensors if t.role is TensorRole.TEMP and t.dtype is DType.I64}
        for name in sorted(wide):
            users = [n for n, k in enumerate(kernels) if name in k.reads | k.writes]
            storing = [n for n in users if name in kernels[n].writes]
            first = len(storing) == 1 and storing[0] == users[0] and name not in kernels[users[0]].reads
            plain = all(_uses_plainly(kernels[n], name) for n in users)
            if not first or not plain:
                wide.discard(name)
        return wide

    def _settle(self, name: str) -> None:
        """Choose the dtype of a tensor from all that was stored in it, and what its reads give past its edges."""
        pads = list(_pads(self._program, name))
        spans = self._stored.get(name, [])
        if not spans or not all(map(isfinite, pads)):
            return
        whole = union([*spans, *map(single, pads)])
        for dtype in (DType.I16, DType.I32):
            if within(whole, dtype):
                self._spans.tensors[name], self._dtypes[name] = whole, dtype
                return

    # -- statements ----------------------------------------------------------------------------------------------------

    def _kernel(self, kernel: Kernel) -> Kernel:
        self._writers = Counter(
            t.uid for s in statements(kernel.body) for t in ((s.tile,) if isinstance(s, Alloc) else written_tiles(s))
        )
        self._tiles, self._spans.tiles = {}, {}
        body = self._body(kernel.body)
        return kernel if body == kernel.body else replace(kernel, body=body)

    def _body(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(self._statement(s) for s in body)

    def _statement(self, stmt: Any) -> Statement:
        self._spans.begin_statement()
        match stmt:
            case Loop():
                outer = self._spans.sizes.loops.get(stmt.var)
                self._spans.sizes.loops[stmt.var] = stmt
                body = self._body(stmt.body)
                if outer is None:
                    del self._spans.sizes.loops[stmt.var]
                else:
                    self._spans.sizes.loops[stmt.var] = outer
                return replace(stmt, body=body)
            case If():
                return replace(stmt, then=self._body(stmt.then), orelse=self._body(stmt.orelse))
            case Assign():
                return self._assign(stmt)
            case Load():
                return self._load(stmt)
            case Store():
                return replace(stmt, value=self._stored_value(stmt.region.tensor, stmt.value))
            case Scatter():
                index = tuple(self._narrowest(v) for v in stmt.index)
                value = self._in_own_dtype(stmt.value) if stmt.add else self._stored_value(stmt.tensor, stmt.value)
                return replace(stmt, index=index, value=value)
        changed: dict[str, Any] = {}
        for name in ("value", "a", "b"):
            if hasattr(stmt, name):
                changed[name] = self._in_own_dtype(getattr(stmt, name))
        if hasattr(stmt, "args"):
            changed["args"] = tuple(map(self._in_own_dtype, stmt.args))
        result: Statement = replace(stmt, **changed) if changed else stmt
        return result

    def _assign(self, stmt: Assign) -> Statement:
        span = self._spans.of(stmt.value)
        once = stmt.declares and self._writers[stmt.tile.uid] == 1
        if not once or stmt.tile.dtype is not DType.I64 or not within(span, DType.I32):
            return replace(stmt, value=self._in_own_dtype(stmt.value))
        tile = replace(stmt.tile, dtype=DType.I32)
        value = self._in_32_bits(stmt.value)
        self._tiles[tile.uid], self._spans.tiles[tile.uid] = tile, span
        return replace(stmt, tile=tile, value=value)

    def _load(self, stmt: Load) -> Statement:
        span = self._spans.tensors.get(stmt.region.tensor.name)
        once = stmt.declares and self._writers[stmt.tile.uid] == 1
        if span is None or not once or stmt.tile.dtype is not DType.I64:
            return stmt
        tile = replace(stmt.tile, dtype=DType.I32)
        self._tiles[tile.uid], self._spans.tiles[tile.uid] = tile, union([span, single(stmt.pad)])
        return replace(stmt, tile=tile)

    def _stored_value(self, tensor: Tensor, value: Value) -> Value:
        """Return a value that is stored, which the store casts to the tensor's dtype."""
        if tensor.name in self._open:
            self._stored.setdefault(tensor.name, []).append(self._spans.of(value))
        return self._narrowest(value) if tensor.dtype is DType.I64 else self._in_own_dtype(value)

    # -- values --------------------------------------------------------------------------------------------------------

    def _narrowest(self, value: Value) -> Value:
        """Return an integer value in 32 bits if they hold it, else as it is."""
        fits = value.type.dtype is DType.I64 and within(self._spans.of(value), DType.I32)
        return self._in_32_bits(value) if fits else self._in_own_dtype(value)

    def _in_32_bits(self, value: Value) -> Value:
        """Return a value of 64 bits, which 32 hold, in 32."""
        kind = replace(value.type, dtype=DType.I32)
        match value:
            case Const() | Index():
                return replace(value, type=kind)
            case Read():
                tile = self._tiles.get(value.tile.uid)
                return Read(kind, tile) if tile is not None else Apply(kind, "cast", (value,))
            case Apply():
                if value.op == "arange":
                    return replace(value, type=kind)
                wide = [a for a in value.args if a.type.dtype is DType.I64]
                held = all(within(self._spans.of(a), DType.I32) for a in wide)
                if held and (value.op in ARITHMETIC or value.op in MOVES or value.op == "where"):
                    args = tuple(self._in_32_bits(a) if a in wide else self._in_own_dtype(a) for a in value.args)
                    return replace(value, type=kind, args=args)
                if value.op == "cast" and not value.args[0].type.dtype.is_float:
                    (source,) = value.args
                    inner = self._in_32_bits(source) if wide and held else self._in_own_dtype(source)
                    return inner if inner.type.dtype is DType.I32 else Apply(kind, "cast", (inner,))
                if value.op == "gather" and (gathered := self._gathered(value)) is not None:
                    return gathered if gathered.type.dtype is DType.I32 else Apply(kind, "cast", (gathered,))
        return Apply(kind, "cast", (self._by_same_operation(value),))

    def _in_own_dtype(self, value: Value) -> Value:
        """Return ``value`` in its own dtype, with what is inside it in 32 bits where they hold it."""
        if isinstance(value, Read):
            tile = self._tiles.get(value.tile.uid)
            if tile is None or value.type.dtype is DType.I32:
                return value
            return Apply(value.type, "cast", (Read(replace(value.type, dtype=DType.I32), tile),))
        if not isinstance(value, Apply):
            return value
        computed = value.op in ARITHMETIC or value.op in MOVES or value.op in ("where", "arange", "cast")
        if value.type.dtype is DType.I64 and computed and within(self._spans.of(value), DType.I32):
            return Apply(value.type, "cast", (self._in_32_bits(value),))
        return self._by_same_operation(value)

    def _by_same_operation(self, value: Value) -> Value:
        """Return ``value`` in its own dtype and by its own operation."""
        if not isinstance(value, Apply):
            return value
        if value.op == "gather":
            gathered = self._gathered(value)
            if gathered is not None:
                return Apply(value.type, "cast", (gathered,))
            return replace(value, args=tuple(map(self._narrowest, value.args)))
        wide = [a for a in value.args if a.type.dtype is DType.I64]
        free = value.op in _COMPARED or value.op == "cast"
        if free and wide and all(within(self._spans.of(a), DType.I32) for a in wide):
            args = tuple(self._in_32_bits(a) if a in wide else self._in_own_dtype(a) for a in value.args)
            if value.op == "cast" and args[0].type.dtype is value.type.dtype:
                return args[0]
            return replace(value, args=args)
        return replace(value, args=tuple(map(self._in_own_dtype, value.args)))

    def _gathered(self, value: Apply) -> Apply | None:
        """Return a gather from a tensor that has another dtype now, in that one; None if its dtype is the same."""
        tensor = value.attr("tensor")
        dtype = self._dtypes.get(tensor.name) if isinstance(tensor, Tensor) else None
        if dtype is None:
            return None
        return replace(
            value, type=replace(value.type, dtype=dtype), args=tuple(map(self._narrowest, value.args))
        )  # fmt: skip


def _by_copy_engine(kernel: Kernel) -> bool:
    return any(isinstance(s, Loop) and s.hints.copy_engine for s in statements(kernel.body))


def _pads(program: Program, name: str) -> Iterator[float]:
    """Yield what reads of the tensor give past its edges."""
    for kernel in program.kernels:
        for stmt in statements(kernel.body):
            if isinstance(stmt, Load) and stmt.region.tensor.name == name:
                yield stmt.pad
            for gather in gathers(stmt):
                pad = gather.attr("pad")
                if getattr(gather.attr("tensor"), "name", "") == name:
                    yield pad if isinstance(pad, (int, float)) else inf


def _uses_plainly(kernel: Kernel, name: str) -> bool:
    """Does ``kernel`` read or write the tensor by loads, stores, gathers and scatters alone?"""
    if _by_copy_engine(kernel):
        return False
    for stmt in statements(kernel.body):
        used = any(region.tensor.name == name for region, _ in stmt.touches)
        if used and (isinstance(stmt, LibraryCall) or any(touch is Touch.ADD for _, touch in stmt.touches)):
            return False
        if isinstance(stmt, Scatter) and stmt.tensor.name == name and stmt.add:
            return False
    return True


# -- tensors with another dtype ----------------------------------------------------------------------------------------


def _with_dtypes(program: Program, dtypes: Mapping[str, DType]) -> Program:
    """Return ``program`` with these dtypes of its tensors, wherever it names them."""
    if not dtypes:
        return program

    def tensor(t: Tensor) -> Tensor:
        return replace(t, dtype=dtypes[t.name]) if t.name in dtypes else t

    def value(v: Value) -> Value:
        if not isinstance(v, Apply):
            return v
        attrs = tuple((key, tensor(a) if isinstance(a, Tensor) else a) for key, a in v.attrs)
        return replace(v, args=tuple(map(value, v.args)), attrs=attrs)

    def changed(part: object) -> object:
        if isinstance(part, Region):
            return replace(part, tensor=tensor(part.tensor))
        if isinstance(part, Tensor):
            return tensor(part)
        return value(part) if isinstance(part, Apply) else part

    def statement(s: Any) -> Statement:
        if isinstance(s, Loop):
            return replace(s, body=tuple(map(statement, s.body)))
        if isinstance(s, If):
            return replace(s, then=tuple(map(statement, s.then)), orelse=tuple(map(statement, s.orelse)))
        used = any(region.tensor.name in dtypes for region, _ in s.touches)
        named = isinstance(s, Scatter) and s.tensor.name in dtypes
        picked = any(getattr(g.attr("tensor"), "name", "") in dtypes for g in gathers(s))
        if not (used or named or picked):
            return s  # type: ignore[no-any-return]
        parts = {name: changed(part) for name, part in vars(s).items()}
        result: Statement = replace(s, **parts)
        return result

    kernels = tuple(replace(k, body=tuple(map(statement, k.body))) for k in program.kernels)
    return replace(program, kernels=kernels, tensors=tuple(map(tensor, program.tensors)))


__all__ = ["narrowed"]
