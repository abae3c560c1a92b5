"""Statements of the tree to statements of the program: what each statement is, loops, and the shape of the grid."""

from __future__ import annotations

from kernellab.sketch import affine, tree, walk
from kernellab.sketch.hints import loop_hints
from kernellab.sketch.ints import num
from kernellab.sketch.ops import OPS
from kernellab.sketch.program import AtomicAdd, If, Loop, LoopHints, Scatter, Statement, Store
from kernellab.sketch.program_walk import statements
from kernellab.sketch.resolve_gather import gathered
from kernellab.sketch.resolve_move import moved
from kernellab.sketch.resolve_results import SORTS, sorted_pair, welford
from kernellab.sketch.resolve_write import WriteReader
from kernellab.sketch.scope import Refused, TileEntry


class BodyReader(WriteReader):
    """Reads the statements of one sketch. A wrong statement is noted and skipped; the rest is still read."""

    #: whether a parallel loop here would be part of the grid
    _in_grid = True

    def body(self, body: tuple[tree.Stmt, ...]) -> tuple[Statement, ...]:
        result: list[Statement] = []
        for i, stmt in enumerate(body):
            try:
                found = self._statement(stmt, body[i + 1 :])
            except Refused:
                for name in walk.written(stmt):
                    self.scope.poison(name)
                self.scope.pending.clear()
                continue
            if self.scope.pending:
                result.extend(self.scope.pending)
                self.scope.pending.clear()
            result.extend(found)
        self._grid(result)
        return tuple(result)

    def _statement(self, stmt: tree.Stmt, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
        if isinstance(stmt, tree.Assign):
            return self._assign(stmt, rest)
        if isinstance(stmt, tree.Move):
            if stmt.op == "gather":
                return self._gather(stmt, rest)
            return [moved(self, stmt)]
        if isinstance(stmt, tree.CallStmt):
            return self._call_statement(stmt, rest)
        if isinstance(stmt, tree.For):
            return [self._for(stmt)]
        return [self._if(stmt)]

    def _assign(self, stmt: tree.Assign, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
        value = stmt.value
        if isinstance(value, tree.Call):
            if value.func == "alloc" and len(stmt.targets) == 1:
                return [self.alloc(stmt, value)]
            if value.func == "load" and len(stmt.targets) == 1 and len(value.args) == 1:
                move = tree.Move("load", value.args[0], stmt.targets[0], value.keywords, span=stmt.span)
                return [moved(self, move)]
            if value.func == "welford":
                return welford(self, stmt.targets, value, stmt)
            if value.func in SORTS:
                return sorted_pair(self, stmt.targets, value, stmt)
            if value.func == "gemm":
                raise self.gemm_value(value, stmt.targets[0].id)
        if len(stmt.targets) != 1:
            what = f"One value is assigned to {len(stmt.targets)} names."
            remedy = "Only welford, sort and topk give two results: mean, var = welford(x, axis=0)."
            raise self.scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
        return self.write(stmt.targets[0], self.known_operand(value), stmt, rest)

    def _call_statement(self, stmt: tree.CallStmt, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
        call = stmt.call
        if call.func in ("load", "store", "atomic_add", "gather", "scatter"):
            what, remedy = f"'{call.func}' has no '->'.", f"Write {call.func}(source -> destination)."
            raise self.scope.refuse("arguments", call.span, what=what, remedy=remedy)
        if call.func == "alloc":
            what, remedy = "This alloc has no name.", "Write name = alloc([...])."
            raise self.scope.refuse("arguments", call.span, what=what, remedy=remedy)
        if call.func == "gemm":
            return [self.gemm(call)]
        keywords = tuple(k for k in call.keywords if k.name != "dst")
        dests: tuple[tree.Expr | None, ...]
        args: tuple[tree.Expr, ...]
        if len(keywords) != len(call.keywords):
            dests, args = (walk.destination(call),), call.args
        else:
            count = 2 if call.func == "welford" or call.func in SORTS else 1
            dests, args = call.args[-count:], call.args[:-count]
        if call.misordered:
            self.scope.note("keyword-order", call.span, name=call.func)
        names = tuple(d for d in dests if isinstance(d, tree.Name))
        if not names or len(names) != len(dests):
            if call.func not in self.scope.names.opaques:
                self._known_operation(call)
            what = f"'{call.func}' has no destination."
            remedy = (
                f"Write {call.func}(..., dst) or dst = {call.func}(...) with dst a tile; tensors are written by store."
            )
            raise self.scope.refuse("arguments", call.span, what=what, remedy=remedy)
        inner = tree.Call(call.func, args, keywords, span=call.span)
        if call.func == "welford":
            return welford(self, names, inner, stmt)
        if call.func in SORTS:
            return sorted_pair(self, names, inner, stmt)
        if names[0].id in self.scope.names.tensors:
            what = f"'{call.func}' writes tensor '{names[0].id}'."
            remedy = f"Write to a tile, then store(tile -> {names[0].id}[...])."
            raise self.scope.refuse("arguments", names[0].span, what=what, remedy=remedy)
        return self.write(names[0], self.call(inner), stmt, rest)

    def _known_operation(self, call: tree.Call) -> None:
        if call.func not in OPS:
            raise self.scope.unknown_operation(call.func, call.span)

    def _gather(self, stmt: tree.Move, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
        if not isinstance(stmt.dest, tree.Name):
            what, remedy = "gather writes a whole tile.", "Write gather(X[ids] -> tile)."
            raise self.scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
        return self.write(stmt.dest, gathered(self, stmt), stmt, rest)

    # -- control

    def _for(self, stmt: tree.For) -> Statement:
        scope = self.scope
        values = [self.index(a) for a in stmt.range]
        start, stop, step = num(0), values[0], num(1)
        if len(values) > 1:
            start, stop = values[0], values[1]
        if len(values) > 2:
            step = values[2]
        known = affine.constant(step)
        if known is not None and known < 1:
            raise scope.refuse(
                "arguments", stmt.range[2].span, what=f"The step {known} of a loop is not positive.",
                remedy="Write a step of 1 or more; index with N - 1 - i to run backwards.",
            )  # fmt: skip
        taken = scope.declared_as(stmt.var) or ("a tile" if isinstance(scope.find(stmt.var), TileEntry) else None)
        if taken is not None:
            scope.note("declared-twice", stmt.span, name=stmt.var, what=taken)
        hints = loop_hints(stmt.hints, self)
        if hints.parallel and not self._in_grid:
            outer = scope.loops[-1] if scope.loops else "if"
            scope.note("nested-parallel", stmt.hints[0].span, var=stmt.var, outer=outer)
            hints = LoopHints(**{**hints.__dict__, "parallel": False})
        was = self._in_grid
        self._in_grid = was and hints.parallel
        with scope.loop(stmt.var, hints.parallel):
            body = self.body(stmt.body)
        self._in_grid = was
        return Loop(stmt.var, start, stop, step, body, hints, stmt.span)

    def _if(self, stmt: tree.If) -> Statement:
        cond = self.condition(stmt.cond)
        was, self._in_grid = self._in_grid, False
        with self.scope.block():
            then = self.body(stmt.then)
        with self.scope.block():
            orelse = self.body(stmt.orelse)
        self._in_grid = was
        return If(cond, then, orelse, stmt.span)

    def _grid(self, body: list[Statement]) -> None:
        """Parallel loops form one grid: the inner one is last, and nothing before it writes memory."""
        if not self._in_grid:
            return
        at = next((i for i, s in enumerate(body) if isinstance(s, Loop) and s.hints.parallel), None)
        if at is None:
            return
        loop = body[at]
        assert isinstance(loop, Loop)
        top = not self.scope.loops
        for stmt in body[:at]:
            if any(isinstance(s, (Store, AtomicAdd, Scatter)) for s in statements((stmt,))):
                self.scope.note("side-effect", stmt.span, var=loop.var)
            elif top and isinstance(stmt, Loop):
                self.scope.note("second-nest", loop.span)
        if at + 1 < len(body):
            after = body[at + 1]
            if top and any(isinstance(s, Loop) for s in body[at + 1 :]):
                nest = next(s for s in body[at + 1 :] if isinstance(s, Loop))
                self.scope.note("second-nest", nest.span)
            else:
                remedy = "Move it before the loop or into it" + (", or start a second sketch." if top else ".")
                self.scope.note("parallel-tail", after.span, var=loop.var, remedy=remedy)
