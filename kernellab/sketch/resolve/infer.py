"""Infers the dtypes that a sketch leaves out, before it is resolved.

An ``alloc`` without a dtype takes that of the first value written to the tile, ignoring reads of the tile in it; a
first assignment of a weak number (``m = -inf``) takes that of the first typed value written later. The pass reads
dtypes only, not shapes, and repeats while tiles depend on tiles without a known dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

from kernellab.operations.sketch import OPS, Op, OpKind
from kernellab.sketch.program.program import DType
from kernellab.sketch.resolve.operands import accumulator, common, gemm_accumulator
from kernellab.sketch.resolve.scope import Names
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import destination

#: a dtype, "int" or "float" for a weak number, None when it is not known
Kind = Union[DType, str, None]
_DTYPES = {d.value: d for d in DType}
_CONDITIONS = frozenset(("<", "<=", ">", ">=", "==", "!=", "and", "or"))
#: operations whose result has the dtype of the first operand
_KEEP = frozenset(("transpose", "reshape", "broadcast", "newaxis", "concat"))
#: operations that sum up in the accumulator of their operand's dtype
_SUMS = frozenset(("reduce_sum", "reduce_prod", "cumsum", "cumprod"))
#: operations that may state their result's dtype, with the position of that argument
_DTYPE_AT = {"cast": 1, "bitcast": 1, "full": 2}
#: rule of an operation's result -> its dtype
_RESULTS = {"bool": DType.BOOL, "i64": DType.I64}
#: most rounds, each of which resolves tiles that depend on those of the round before; chosen, not measured
_ROUNDS = 4


def infer(body: tuple[tree.Stmt, ...], names: Names) -> dict[int, DType]:
    """Return the dtype of each alloc and first assignment without one, by id of the statement."""
    walk = _Walk(names)
    for _ in range(_ROUNDS):
        before = dict(walk.kinds)
        walk.unknown = 0
        walk.blocks = [{}]
        walk.body(body)
        if not walk.unknown or walk.kinds == before:
            break
    return {key: kind if isinstance(kind, DType) else _default_dtype(kind) for key, kind in walk.kinds.items()}


def _default_dtype(kind: Kind) -> DType:
    return DType.I64 if kind == "int" else DType.F32


class _Tile:
    """A tile whose dtype may still be unknown. ``key`` is the statement that declared it."""

    __slots__ = ("accumulates", "key", "kind")

    def __init__(self, key: int | None, kind: Kind, accumulates: bool = False) -> None:
        self.key = key
        self.kind = kind
        self.accumulates = accumulates


class _Walk:
    """Goes through the statements of one body in order, with the tiles that are visible."""

    def __init__(self, names: Names) -> None:
        self.names = names
        #: id of an alloc or first assignment without a dtype -> what is known of it
        self.kinds: dict[int, Kind] = {}
        #: writes of an unknown dtype in this round
        self.unknown = 0
        self.blocks: list[dict[str, _Tile]] = [{}]

    # -- statements

    def body(self, body: tuple[tree.Stmt, ...]) -> None:
        for stmt in body:
            _STATEMENTS[type(stmt)](self, stmt)

    def _branches(self, stmt: tree.If) -> None:
        self._inner(stmt.then)
        self._inner(stmt.orelse)

    def _inner(self, body: tuple[tree.Stmt, ...], var: str | None = None) -> None:
        self.blocks.append({} if var is None else {var: _Tile(None, "int")})
        self.body(body)
        self.blocks.pop()

    def _assign(self, stmt: tree.Assign) -> None:
        value = stmt.value
        if isinstance(value, tree.Call) and value.func == "alloc":
            self._alloc(stmt, value)
            return
        if isinstance(value, tree.Call) and value.func in ("sort", "topk") and len(stmt.targets) == 2:
            kinds: tuple[Kind, ...] = (self.kind(value.args[0]) if value.args else None, DType.I64)
            for target, kind in zip(stmt.targets, kinds, strict=True):
                self._write(target.id, lambda kind=kind: kind, id(target))  # type: ignore[misc]
            return
        for target in stmt.targets:
            self._write(target.id, lambda: self.kind(value), id(stmt))

    def _alloc(self, stmt: tree.Assign, call: tree.Call) -> None:
        keywords = {k.name: k.value for k in call.keywords}
        dtype = _argument(call, call.args, 1, "dtype")
        kind: Kind = _DTYPES.get(_word(dtype)) if dtype is not None else self.kinds.get(id(stmt))
        hints = keywords.get("llm_hint")
        words = hints.items if isinstance(hints, tree.List) else (hints,)
        accumulates = any(isinstance(w, tree.Str) and w.value == "accumulator" for w in words)
        tile = _Tile(id(stmt) if dtype is None else None, kind, accumulates)
        self.blocks[-1][stmt.targets[0].id] = tile
        if dtype is None:
            self.kinds.setdefault(id(stmt), None)

    def _move(self, stmt: tree.Move) -> None:
        if stmt.op not in ("load", "gather") or not isinstance(stmt.dest, tree.Name):
            return
        source = stmt.source
        name = source.name if isinstance(source, tree.Subscript) else source.id if isinstance(source, tree.Name) else ""
        tensor = self.names.tensors.get(name)
        self._write(stmt.dest.id, lambda: tensor.dtype if tensor else None, id(stmt))

    def _call(self, stmt: tree.CallStmt) -> None:
        call = stmt.call
        dest = destination(call)
        if not isinstance(dest, tree.Name):
            return
        args = tuple(arg for arg in call.args if arg is not dest)
        self._write(dest.id, lambda: self._call_kind(call.func, args, call), id(stmt))

    def _write(self, name: str, kind: Callable[[], Kind], key: int) -> None:
        tile = self._find(name)
        if tile is None:
            value = kind()
            if isinstance(value, DType):
                self.blocks[-1][name] = _Tile(None, value)
                return
            # weak or unknown: a later write decides
            self.blocks[-1][name] = _Tile(key, self.kinds.get(key, value))
            self.kinds.setdefault(key, value)
            self.unknown += value is None
            return
        if tile.key is None or isinstance(tile.kind, DType):
            return
        # a read of the tile in its own update does not count
        earlier, tile.kind = tile.kind, None
        value = kind()
        tile.kind = earlier
        if isinstance(value, DType):
            tile.kind = accumulator(value) if tile.accumulates else value
            self.kinds[tile.key] = tile.kind
        elif value is None:
            self.unknown += 1
        elif earlier is None or value == "float":
            tile.kind = value
            self.kinds[tile.key] = value

    def _find(self, name: str) -> _Tile | None:
        for block in reversed(self.blocks):
            if name in block:
                return block[name]
        return None

    # -- expressions

    def kind(self, expr: tree.Expr) -> Kind:
        """None for an expression without a dtype, such as a list."""
        rule = _KINDS.get(type(expr))
        return rule(self, expr) if rule is not None else None

    def _unary(self, expr: tree.Unary) -> Kind:
        return DType.BOOL if expr.op == "not" else self._common([self.kind(expr.operand)])

    def _binary(self, expr: tree.Binary) -> Kind:
        if expr.op in _CONDITIONS:
            return DType.BOOL
        kinds = [self.kind(expr.left), self.kind(expr.right)]
        return self._floated(kinds) if expr.op == "/" else self._common(kinds)

    def _subscript(self, expr: tree.Subscript) -> Kind:
        tensor = self.names.tensors.get(expr.name)
        return tensor.dtype if tensor else self._name(expr.name)

    def _name(self, name: str) -> Kind:
        tile = self._find(name)
        if tile is not None:
            return tile.kind
        if name in self.names.symbols or name in self.names.index_constexprs:
            return "int"
        constexpr = self.names.constexprs.get(name)
        if constexpr is None:
            return None
        return "int" if isinstance(constexpr.value, int) else "float"

    def _call_kind(self, func: str, args: Sequence[tree.Expr], call: tree.Call) -> Kind:
        if func in self.names.opaques:
            return _DTYPES.get(self.names.opaques[func].result_dtype)
        op = OPS.get(func)
        if op is None:
            return self.kind(args[0]) if func == "load" and args else None
        if func in _DTYPE_AT:
            dtype = _argument(call, args, _DTYPE_AT[func], "dtype")
            if dtype is not None:
                return _DTYPES.get(_word(dtype))
            return self.kind(args[1]) if func == "full" and len(args) > 1 else None
        if op.result in _RESULTS:
            return _RESULTS[op.result]
        kinds = [self.kind(a) for a in args if not isinstance(a, (tree.Str, tree.List))]
        return self._result_kind(op, kinds)

    def _result_kind(self, op: Op, kinds: list[Kind]) -> Kind:
        """Return the kind of an operation's result for operands of ``kinds``."""
        if op.name in _KEEP:
            return kinds[0] if kinds else None
        if op.kind is OpKind.MATRIX:
            dtypes = [k for k in kinds[:2] if isinstance(k, DType)]
            return gemm_accumulator(dtypes[0], dtypes[-1]) if dtypes else None
        if op.name == "where":
            kinds = kinds[1:]
        elif op.kind in (OpKind.REDUCE, OpKind.SCAN) and op.name != "associative_scan":
            kinds = kinds[:1]
            if op.name in _SUMS:
                return accumulator(kinds[0]) if kinds and isinstance(kinds[0], DType) else None
        return self._floated(kinds) if op.result == "float" else self._common(kinds)

    @staticmethod
    def _common(kinds: list[Kind]) -> Kind:
        strong = [k for k in kinds if isinstance(k, DType)]
        any_float = "float" in kinds
        if strong:
            return common(strong, any_float, "int" in kinds)
        if None in kinds:
            return None
        return "float" if any_float else "int"

    def _floated(self, kinds: list[Kind]) -> Kind:
        kind = self._common(kinds)
        if isinstance(kind, DType):
            return kind if kind.is_float else DType.F32
        return "float" if kind == "int" else kind


_KINDS: Mapping[type, Callable[[_Walk, Any], Kind]] = {
    tree.Name: lambda walk, expr: walk._name(expr.id),
    tree.Num: lambda _, expr: "float" if isinstance(expr.value, float) else "int",
    tree.Bool: lambda _, expr: DType.BOOL,
    tree.Unary: _Walk._unary,
    tree.Binary: _Walk._binary,
    tree.Subscript: _Walk._subscript,
    tree.Indexed: lambda walk, expr: walk.kind(expr.value),
    tree.Call: lambda walk, expr: walk._call_kind(expr.func, expr.args, expr),
}

_STATEMENTS: Mapping[type, Callable[[_Walk, Any], None]] = {
    tree.For: lambda walk, stmt: walk._inner(stmt.body, stmt.var),
    tree.If: _Walk._branches,
    tree.Assign: _Walk._assign,
    tree.Move: _Walk._move,
    tree.CallStmt: _Walk._call,
}


def _argument(call: tree.Call, args: Sequence[tree.Expr], position: int, name: str) -> tree.Expr | None:
    """Return an argument by position among ``args``, or by its keyword."""
    if len(args) > position:
        return args[position]
    return next((k.value for k in call.keywords if k.name == name), None)


def _word(expr: tree.Expr | None) -> str:
    if isinstance(expr, tree.Name):
        return expr.id
    return expr.value if isinstance(expr, tree.Str) else ""
