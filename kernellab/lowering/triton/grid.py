"""The parallel loops of a kernel as one flat grid, and teams of programs that divide a loop of one tile.

A flat grid has no 65535 limit and takes any number of loops; each program does the divisions once. The host starts
several programs for each tile, no more than the chip runs at once, as a cooperative launch: without it, two concurrent
launches could wait for programs that cannot start. In the interpreter a tile has one program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING

from kernellab.lowering.python_text import python_int, tidy
from kernellab.lowering.triton.text import Writer
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Loop, Statement
from kernellab.sketch.program.team import team_loops
from kernellab.sketch.program.walk import parallel_loops, statements

if TYPE_CHECKING:
    from kernellab.lowering.triton.kernel import KernelWriter


#: In nests of this many loops the second variable is a difference, not a remainder: the LLVM of Triton 3.6 packs two
#: masked or shifted parts of one number into a register and lets one overflow into the other (on an H200 a transposed
#: convolution read rows of other depths), but it does not change differences.
_DIFFERENCE_DEPTH = 5
#: iterations of the last loop that are grouped with interleaved outer ones, so that keys and values share the cache (on
#: an H200 16 heads of 4096 take 2 to 17 % less time; of 16384 they take 2 % more)
_CACHED_ITERATIONS = 1 << 16


@dataclass(frozen=True)
class Grid:
    """``host``: the number of programs in Python; ``inner``: what one program runs.

    ``persistent``: there are no more programs than the chip has cores (``_cores`` in ``host``), and each computes
    several tiles."""

    host: str
    inner: Sequence[Statement]
    persistent: bool = False


@dataclass(frozen=True)
class Team:
    """The names of a program's number in its team, of its tile, and of the number of arrivals that ends the next wait.

    ``size`` is the constexpr with the number of programs of a tile, ``arrived`` the tensor that counts arrivals, one
    element for each tile."""

    loops: tuple[Loop, ...]
    member: str
    tile: str
    turn: str
    size: str
    arrived: str
    #: the largest number of programs that can share a loop, in Python
    most: str

    @classmethod
    def of(cls, writer: KernelWriter) -> Team | None:
        loops = team_loops(writer.kernel)
        if not loops:
            return None
        trips = [int_op("cdiv", int_op("-", loop.stop, loop.start), loop.step) for loop in loops]
        most = ", ".join(tidy(python_int(t)) for t in trips)
        fresh = writer.names.fresh
        most = f"max({most})" if len(trips) > 1 else most
        return cls(
            tuple(loops), fresh("member"), fresh("tile"), fresh("turn"), fresh("TEAM"), fresh("arrived"), most
        )  # fmt: skip

    def begin(self, out: Writer) -> None:
        out.put(f"{self.tile} = tl.program_id(0) // {self.size}")
        out.put(f"{self.member} = tl.program_id(0) % {self.size}")
        out.put(f"{self.turn} = 0")

    def shares(self, loop: Loop) -> bool:
        return any(own is loop for own in self.loops)

    def bounds(self, loop: Loop, text: Callable[[IntExpr], str], wide: str) -> list[str]:
        """Return the bounds of a loop over the program's share; ``wide`` is the dtype of its variable, "" for 32
        bits."""
        start = tidy(f"{self.member} * ({text(loop.step)})")
        if loop.start != num(0):
            start = f"{text(loop.start)} + {start}"
        return [
            f"tl.cast({start}, {wide})" if wide else start,
            text(loop.stop),
            tidy(f"{self.size} * ({text(loop.step)})"),
        ]

    def meet(self, out: Writer) -> None:
        """Write the wait that follows a shared loop."""
        out.put(f"if {self.size} > 1:")
        out.put(f"    {self.turn} += {self.size}")
        out.put(f"    kl_meet({self.arrived} + {self.tile}, {self.turn})")


def write_grid(writer: KernelWriter) -> Grid:
    """Write the loop variables from the program id, and the statements between the parallel loops. Returns the grid."""
    loops, before, inner = parallel_loops(writer.kernel.body)
    trips = []
    for loop in loops:
        trips.append(writer.ints.iterations(loop))
        writer.ints.loops[loop.var] = loop
    # only the asynchronous kernel is persistent for the sake of asynchronous stores
    persistent = any(loop.hints.persistent for loop in loops) and not any(loop.hints.async_store for loop in loops)
    if persistent:
        total = " * ".join(f"({writer.int_text(t)})" for t in trips)
        writer.out.put(f"for pid in range(tl.program_id(0), {tidy(total)}, tl.num_programs(0)):")
        writer.out.depth += 1
    pid = "pid" if persistent else "tl.program_id(0)"
    if writer.team:
        writer.team.begin(writer.out)
        pid = writer.team.tile
    write_variables(writer, loops, trips, pid, statements(tuple(inner)))
    for i, stmt in enumerate(before):
        writer.statement(stmt, [*before[i + 1 :], *inner])
    host = " * ".join(f"({tidy(python_int(t))})" for t in trips) or "1"
    return Grid(f"min({tidy(host)}, _cores)" if persistent else tidy(host), inner, persistent)


def write_variables(
    writer: KernelWriter, loops: list[Loop], trips: list[IntExpr], pid: str, inner: Iterable[Statement] = ()
) -> None:
    """Write each loop's variable, from the number ``pid`` of the program or tile; ``inner``: the statements that it
    runs."""
    counts = [writer.int_text(t) for t in trips]
    numbers = _longest_first(writer, loops, trips, pid, inner) or _numbers(writer, loops, counts, pid)
    for loop, number in zip(loops, numbers, strict=True):
        writer.out.at = loop.span.line
        code = number
        if writer.index_type:
            code = f"({code}).to({writer.index_type})"
        if not loop.step.is_one:
            code = f"({code}) * ({writer.int_text(loop.step)})"
        if loop.start != num(0):
            code = f"({writer.int_text(loop.start)}) + {code}"
        name = writer.int_text(IntExpr(IntKind.LOOP, name=loop.var))
        writer.out.put(f"{name} = {tidy(code)}")
    for loop in loops:
        if loop.start.loop_vars() | loop.stop.loop_vars():
            name = writer.int_text(IntExpr(IntKind.LOOP, name=loop.var))
            writer.guard(f"{name} < {writer.int_text(loop.stop)}")


def _longest_first(
    writer: KernelWriter, loops: list[Loop], trips: list[IntExpr], pid: str, inner: Iterable[Statement]
) -> list[str]:
    """Return the iteration number of each loop if the last loop decides the number of a program's steps; else nothing.

    Programs with the most steps run first; short ones then fill the chip at the end of a launch."""
    last = loops[-1].var if loops else None
    ranges = [s for s in inner if isinstance(s, Loop)]
    directions = {_direction(s.stop, last) for s in ranges} | {-_direction(s.start, last) for s in ranges}
    grows = 1 in directions
    if (
        not directions
        or not directions <= {0, 1 if grows else -1}
        or directions == {0}
        or any(loop.hints.swizzle for loop in loops)
    ):
        return []
    counts, outer = [writer.int_text(t) for t in trips], reduce(partial(int_op, "*"), trips[:-1], num(1))
    extent = int_op("-", loops[-1].stop, loops[-1].start)
    if outer.kind is IntKind.NUM:
        least = max(1, _CACHED_ITERATIONS // (extent.value if extent.kind is IntKind.NUM else _CACHED_ITERATIONS // 16))
        outer = num(next((n for n in range(least, outer.value) if outer.value % n == 0), outer.value))
    turn, together = writer.names.fresh("turn"), f"({writer.int_text(outer)})"
    writer.out.at = loops[-1].span.line
    writer.out.put(f"{turn} = {tidy(f'{pid} // {together} % ({counts[-1]})')}")
    writer.out.put(f"pid = {tidy(f'{pid} // ({together} * ({counts[-1]})) * {together} + {pid} % {together}')}")
    return [*_numbers(writer, loops[:-1], counts[:-1], "pid"), f"({counts[-1]} - 1 - {turn})" if grows else turn]


def _direction(expr: IntExpr, name: str | None) -> float:
    """Return 1 if ``expr`` grows with the loop variable ``name``, -1 if it falls, 0 without it; NaN if neither, as for
    a remainder."""
    if name not in expr.loop_vars():
        return 0
    if expr.kind is not IntKind.OP:
        return 1
    directions = [_direction(a, name) for a in expr.args]
    if expr.op == "-":
        directions[-1] = -directions[-1]
    elif expr.op in ("*", "//", "cdiv"):
        # names are at least 0, divisors at least 1
        if (directions[-1] and expr.op != "*") or all(directions):
            return math.nan
        numbers = [a.value for a in expr.args if a.kind is IntKind.NUM]
        directions = (
            [math.copysign(1, n) * w for n in numbers or [1] for w in directions] if 0 not in numbers else [math.nan]
        )
    elif expr.op not in ("+", "min", "max"):
        return math.nan
    signs = {w for w in directions if w != 0}
    return signs.pop() if len(signs) == 1 else math.nan


def _numbers(writer: KernelWriter, loops: list[Loop], counts: list[str], pid: str) -> list[str]:
    """Return the iteration number of each loop; the innermost varies fastest."""
    if len(loops) == 1:
        return [pid]
    if not loops:
        return []
    writer.out.at = loops[0].span.line
    if pid != "pid":
        writer.out.put(f"pid = {pid}")
    numbers: list[str] = []
    inner: list[str] = []
    for k, count in reversed(list(enumerate(counts))):
        quotient = f"pid // ({_product(inner)})" if inner else "pid"
        if k == 1 and len(counts) >= _DIFFERENCE_DEPTH:
            numbers.insert(0, f"({quotient} - pid // ({_product([count, *inner])}) * ({count}))")
        else:
            numbers.insert(0, f"({quotient})" if k == 0 else f"({quotient} % ({count}))")
        inner.insert(0, count)
    group = next((loop.hints.swizzle for loop in loops if loop.hints.swizzle), None)
    if group:
        # rows in groups: programs that run at once share both their rows of a and their columns of b
        row, column = writer.names.fresh("row"), writer.names.fresh("column")
        args = [*numbers[-2:], *counts[-2:], str(group)]
        writer.out.put(f"{row}, {column} = tl.swizzle2d({', '.join(tidy(a) for a in args)})")
        numbers[-2:] = [row, column]
    return numbers


def _product(counts: Sequence[str]) -> str:
    return " * ".join(f"({c})" for c in counts)
