"""From tree to program: declarations first, then each sketch's body with its inferred dtypes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from kernellab.records import Diagnostic
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, IntKind, product
from kernellab.sketch.program.program import Constexpr, DType, Kernel, Program, Statement, Tensor, TensorRole
from kernellab.sketch.resolve.arguments import read_dtype
from kernellab.sketch.resolve.body import read_body
from kernellab.sketch.resolve.call import RULES
from kernellab.sketch.resolve.expr import read_condition, read_index
from kernellab.sketch.resolve.infer import infer
from kernellab.sketch.resolve.library import read_library
from kernellab.sketch.resolve.scope import Names, Readings, Refused, Scope
from kernellab.sketch.syntax import tree, walk
from kernellab.sketch.syntax.messages import diagnostic_at, nearest
from kernellab.sketch.syntax.printer import format_expr
from kernellab.sketch.syntax.walk import mapped

_DTYPES = {d.value: d for d in DType}
_ROLES = frozenset(r.value for r in TensorRole)
#: facts of the chip that a constraint may name, in addition to constexprs
CHIP_FACTS = ("cores", "simd_bits", "l1_bytes", "l2_bytes", "l3_bytes", "shared_bytes", "on_chip_bytes")


def resolve(file: tree.SketchFile, text: str, readings: Readings | None = None) -> tuple[Program, list[Diagnostic]]:
    """Return the program of ``file`` and its diagnostics; with errors the program has only what could be resolved.

    ``readings`` caches resolved expressions, so that after an edit only changed lines are resolved again."""
    return _FileResolver(file, text, readings if readings is not None else Readings()).run()


class _FileResolver:
    """Resolves one file: the declarations of all sketches, in order, and each sketch's body."""

    def __init__(self, file: tree.SketchFile, text: str, readings: Readings) -> None:
        self.file = file
        self.readings = readings
        self.text = text
        self.faults: list[Diagnostic] = []
        self.symbols: dict[str, IntExpr] = {}
        self.sizes: dict[str, int] = {}
        self.tensors: dict[str, Tensor] = {}
        self.constexprs: dict[str, Constexpr] = {}
        self.opaques: dict[str, tree.OpaqueDecl] = {}
        self.requires: list[IntExpr] = []
        #: name -> the first sketch that declares it
        self.declared_in: dict[str, str] = {}
        #: names that are an index or an extent in some sketch
        self.index_names: set[str] = set()
        self.opaque_used: set[str] = set()

    def run(self) -> tuple[Program, list[Diagnostic]]:
        for sketch in self.file.sketches:
            self.index_names |= walk.index_names(sketch)
        roles = self._roles()
        read = [self._kernel(s, roles) for s in self.file.sketches]
        # a sketch may use a constexpr that only a later one declares
        kernels = tuple(
            replace(kernel, constexprs=self._constexprs(sketch, declared))
            for sketch, (kernel, declared) in zip(self.file.sketches, read, strict=True)
        )
        program = Program(
            kernels,
            symbols=tuple(self.symbols),
            tensors=tuple(self.tensors.values()),
            constexprs=tuple(self.constexprs.values()),
            requires=tuple(self.requires),
            text=self.text,
            opaque=tuple(sorted(self.opaque_used)),
            sizes=tuple(self.sizes.items()),
        )
        return program, self.faults

    def _note(self, rule: str, span: tree.Span, **fields: object) -> None:
        self.faults.append(diagnostic_at(rule, span, **fields))

    # -- kernels

    def _kernel(self, sketch: tree.Sketch, roles: dict[str, str]) -> tuple[Kernel, Collection[str]]:
        """Return the sketch's kernel, and the names that it declares."""
        names = Names(self.symbols, self.constexprs, dict(self.tensors), self.opaques)
        names.index_constexprs = {n for n in self.index_names if n not in self.symbols}
        scope = Scope(names, self.faults, RULES, self.readings)
        declared = self._declare(sketch, roles, scope)
        body = self._body(sketch, scope)
        for word in sorted(scope.opaque):
            self._note("opaque", self.opaques[word].span, name=word)
        self.opaque_used |= scope.opaque
        reads, writes = frozenset(scope.reads), frozenset(scope.writes)
        return Kernel(sketch.name, body, reads, writes, sketch.span), declared

    def _constexprs(self, sketch: tree.Sketch, declared: Collection[str]) -> frozenset[str]:
        """Return the constexprs that the sketch declares, or uses from the declarations of another one."""
        earlier = self.constexprs.keys()
        if earlier <= set(declared):
            return frozenset(earlier)
        named = {node.id for node in walk.nodes(sketch) if isinstance(node, tree.Name)}
        return frozenset(earlier & (named | set(declared)))

    def _body(self, sketch: tree.Sketch, scope: Scope) -> tuple[Statement, ...]:
        try:
            call = read_library(scope, sketch)
        except Refused:
            return ()
        if call is not None:
            return (call,)
        written = distinct(sketch.body)
        scope.dtypes = infer(written, scope.names)
        return read_body(scope, written)

    def _roles(self) -> dict[str, str]:
        """Return the role of each tensor of the file: one that is only written is out, unless a sketch declares
        otherwise."""
        read: set[str] = set()
        stored: set[str] = set()
        for sketch in self.file.sketches:
            for stmt in walk.statements(sketch.body):
                if isinstance(stmt, tree.Move):
                    moved, into = (stmt.source, read) if stmt.op in ("load", "gather") else (stmt.dest, stored)
                    named = walk.tensor_of(moved)
                    if named is not None:
                        into.add(named.id)
                elif (call := walk.library_call(stmt)) is not None:
                    arguments = (*call.args, *(k.value for k in call.keywords))
                    read.update(name for expr in arguments for name in walk.names(expr))
                    stored.update(walk.written(stmt))
                elif isinstance(stmt, tree.Assign) and isinstance(stmt.value, tree.Call) and stmt.value.func == "load":
                    read.update(n.id for n in map(walk.tensor_of, stmt.value.args) if n is not None)
        roles = {name: "out" if name in stored and name not in read else "in" for name in read | stored}
        for sketch in self.file.sketches:
            for item in (i for d in sketch.declarations for i in d.items):
                if isinstance(item, tree.TensorDecl) and item.role is not None:
                    roles[item.name] = item.role
        return roles

    # -- declarations

    def _declare(self, sketch: tree.Sketch, roles: dict[str, str], scope: Scope) -> Collection[str]:
        """Resolve the declarations. Returns the names that are declared here."""
        ordered = sorted(sketch.declarations, key=lambda d: d.kind in ("tensors", "require"))
        here: dict[str, str] = {}
        for declaration in ordered:
            for item in declaration.items:
                try:
                    match item:
                        case tree.TensorDecl():
                            self._tensor(item, sketch.name, roles, scope, here)
                        case tree.ConstDecl():
                            self._constexpr(item, sketch.name, scope, here)
                        case tree.OpaqueDecl():
                            self._opaque(item, here)
                        case tree.SymbolDecl():
                            self._symbol(item, sketch.name, scope, here)
                        case _:
                            self._require(item, scope)
                except Refused:
                    _poison(scope, item)
        return here

    def _claim(self, name: str, kind: str, span: tree.Span, here: dict[str, str]) -> None:
        """Refuse a name that this sketch has already declared, or another one as another kind."""
        kinds: dict[str, Mapping[str, object]] = {
            "symbol": self.symbols,
            "constexpr": self.constexprs,
            "tensor": self.tensors,
        }
        other = next((k for k, table in kinds.items() if k != kind and name in table), None)
        if name in here or other is not None:
            self._note("declared-twice", span, name=name, what=f"a {here.get(name) or other}")
            raise Refused
        here[name] = kind

    def _symbol(self, item: tree.SymbolDecl, sketch: str, scope: Scope, here: dict[str, str]) -> None:
        self._claim(item.name, "symbol", item.span, here)
        self.symbols.setdefault(item.name, IntExpr(IntKind.SYMBOL, name=item.name))
        self.declared_in.setdefault(item.name, sketch)
        if item.value is None:
            return
        value = self._number(item, item.value, scope)
        if isinstance(value, float) or value < 0:
            what = f"The symbol '{item.name}' is an extent, not {format_expr(item.value)}."
            self._note("constexpr-value", item.span, what=what, remedy="Give it an integer from 0 on, or no value.")
        elif self.sizes.setdefault(item.name, value) != value:
            self._note("conflicting-declaration", item.span, name=item.name, other=self.declared_in[item.name])

    def _tensor(
        self, item: tree.TensorDecl, sketch: str, roles: dict[str, str], scope: Scope, here: dict[str, str]
    ) -> None:
        self._claim(item.name, "tensor", item.span, here)
        dtype = read_dtype(scope, tree.Name(item.dtype, item.span))
        if item.role is not None and item.role not in _ROLES:
            self._note("unknown-role", item.span, name=item.role, tensor=item.name)
            raise Refused
        shape = tuple(read_index(scope, d) for d in item.shape)
        declared = self.tensors.get(item.name)
        inferred = roles.get(item.name, "in")
        role = TensorRole(item.role or (inferred if inferred in _ROLES else "in"))
        tensor = Tensor(item.name, shape, dtype, role, item.span)
        scope.names.tensors[item.name] = tensor if declared is None else replace(tensor, role=declared.role)
        if declared is not None:
            same = declared.dtype is dtype and affine.equal(product(declared.shape), product(tensor.shape))
            if not same or (item.role is not None and item.role != declared.role.value):
                other = self.declared_in[item.name]
                self._note("conflicting-declaration", item.span, name=item.name, other=other)
            return
        self.tensors[item.name] = tensor
        self.declared_in[item.name] = sketch

    def _constexpr(self, item: tree.ConstDecl, sketch: str, scope: Scope, here: dict[str, str]) -> None:
        self._claim(item.name, "constexpr", item.span, here)
        value = self._number(item, item.value, scope) if item.value is not None else None
        choices = tuple(self._number(item, c, scope) for c in item.choices)
        if choices and value is None:
            value = choices[0]
        if choices and value not in choices:
            what = f"The value {value} of '{item.name}' is not in its set."
            self._note("constexpr-value", item.span, what=what, remedy="Add it to the set, or choose one of them.")
        is_extent = item.name in self.index_names
        if is_extent and any(isinstance(v, float) for v in (value, *choices)):
            what = f"'{item.name}' is used as an index or extent and is not an integer."
            self._note("constexpr-value", item.span, what=what, remedy="Give it an integer.")
        declared = self.constexprs.get(item.name)
        if declared is not None:
            if value is not None and (declared.value, declared.choices) != (value, choices):
                other = self.declared_in[item.name]
                self._note("conflicting-declaration", item.span, name=item.name, other=other)
            return
        self.constexprs[item.name] = Constexpr(item.name, value, choices, is_extent, item.span)
        self.declared_in[item.name] = sketch

    def _number(self, item: tree.ConstDecl | tree.SymbolDecl, expr: tree.Expr, scope: Scope) -> int | float:
        if isinstance(expr, tree.Num):
            return expr.value
        if isinstance(expr, tree.Bool):
            return int(expr.value)
        folded = affine.constant(read_index(scope, expr)) if not list(walk.names(expr)) else None
        if folded is None:
            what = f"The value of '{item.name}' is not a number."
            self._note(
                "constexpr-value", item.span, what=what, remedy="Write a number; arithmetic belongs where it is used."
            )
            raise Refused
        return folded

    def _opaque(self, item: tree.OpaqueDecl, here: dict[str, str]) -> None:
        self._claim(item.name, "opaque operation", item.span, here)
        for dtype in (*(p.dtype for p in item.params), item.result_dtype):
            if dtype not in _DTYPES:
                remedy = nearest(dtype, _DTYPES) or f"Use one of {', '.join(_DTYPES)}."
                self._note("unknown-dtype", item.span, name=dtype, remedy=remedy)
                raise Refused
        self.opaques[item.name] = item

    def _require(self, expr: tree.Expr, scope: Scope) -> None:
        for name in walk.names(expr):
            if name in self.symbols or name in self.tensors:
                what = "symbol" if name in self.symbols else "tensor"
                self._note("require-scope", expr.span, what=what, name=name)
                raise Refused
        names = scope.names
        allowed = {n: names.constexprs[n] for n in names.constexprs}
        facts = {n: Constexpr(n, None) for n in CHIP_FACTS if n not in allowed}
        inner = Scope(Names({}, {**allowed, **facts}, {}, {}), self.faults, RULES)
        inner.names.index_constexprs = set(allowed) | set(facts)
        condition = read_condition(inner, expr)
        if condition not in self.requires:
            self.requires.append(condition)


def _poison(scope: Scope, item: object) -> None:
    """Mark the name of a wrong declaration, so that its uses are not reported."""
    name = getattr(item, "name", None)
    if isinstance(name, str) and scope.declared_as(name) is None:
        scope.poison(name)


# -- loops with the same variable --------------------------------------------------------------------------------------


def distinct(body: tuple[tree.Stmt, ...]) -> tuple[tree.Stmt, ...]:
    """Return ``body`` with other variables in sequential loops that have the variable of a parallel loop: a program's
    statements before an inner parallel loop run inside it. ``body`` itself if there is none."""
    grid = [loop.var for loop in walk.statements(body) if isinstance(loop, tree.For) and _is_parallel(loop)]
    if not any(isinstance(s, tree.For) and not _is_parallel(s) and s.var in grid for s in walk.statements(body)):
        return body
    used = {s.var for s in walk.statements(body) if isinstance(s, tree.For)}
    return tuple(_distinct(stmt, used) for stmt in body)


def _distinct(stmt: tree.Stmt, used: set[str]) -> tree.Stmt:
    if not isinstance(stmt, tree.For) or not _is_parallel(stmt):
        return stmt
    inner = {s.var for s in walk.statements(stmt.body) if isinstance(s, tree.For) and _is_parallel(s)}
    return replace(stmt, body=tuple(_distinct(_renamed(part, inner, used), used) for part in stmt.body))


def _renamed(stmt: tree.Stmt, inner: set[str], used: set[str]) -> tree.Stmt:
    """Return a statement whose sequential loops have none of the variables ``inner``."""
    if isinstance(stmt, tree.For) and _is_parallel(stmt):
        return stmt
    clashes = {s.var for s in walk.statements((stmt,)) if isinstance(s, tree.For)} & inner
    changes: dict[str, str] = {}
    for var in sorted(clashes):
        name = next(f"{var}_{n}" for n in range(1, len(used) + 2) if f"{var}_{n}" not in used)
        used.add(name)
        changes[var] = name
    return _changed(stmt, changes) if changes else stmt


def _changed(node: Any, changes: dict[str, str]) -> Any:
    if isinstance(node, tree.Name):
        return replace(node, id=changes.get(node.id, node.id))
    changed = mapped(node, lambda part: _changed(part, changes))
    return replace(changed, var=changes.get(node.var, node.var)) if isinstance(node, tree.For) else changed


def _is_parallel(loop: tree.For) -> bool:
    return any(hint.args[:1] == (tree.Str("parallel"),) for hint in loop.hints)
