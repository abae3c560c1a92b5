"""Inputs that reach code which no checked call has run.

The process that counts reports both operands of each comparison. Where one is a number of the inputs (a size, a scalar,
an element), or moves as one does, the input that makes it equal to the other operand, or one more or less, decides the
comparison the other way (input-to-state correspondence). Each input that reaches anything new is a start for the next
step, so that conditions on several numbers fall one after another.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from kernellab.conditions import AlignmentLimit, DrawnLimit, ScalarLimit, StridesLimit
from kernellab.errors import KernellabError, TaskError
from kernellab.task import ArgKind
from kernellab.task.dtypes import finite, is_float8
from kernellab.task.sample.inputs import Family, legal_values
from kernellab.task.sample.sizes import input_bytes, runs_at
from kernellab.verifier.boundary_checks.attempt import is_right
from kernellab.verifier.cases import answers, cases, selection
from kernellab.verifier.cases.cases import is_noise
from kernellab.verifier.coverage.calls import Made
from kernellab.verifier.coverage.limits import COVERAGE
from kernellab.verifier.coverage.placing import free_places
from kernellab.verifier.coverage.start import Change, Element, Start
from kernellab.verifier.judge.process_stats import crowding
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import CORRECT
from kernellab.verifier.survey.proposals import value_bounds
from kernellab.verifier.timing.contents import independent, loose_arguments

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.coverage.native import Gap
    from kernellab.verifier.coverage.stage import Comparison, Covered

#: a number in a source's text, not part of a name
_NUMBER = re.compile(r"(?<![\w.])(\d[\d'_]*\.?\d*(?:[eE][+-]?\d+)?)(?:[fFuUlL]*)(?![\w.])")
#: what asks for the number of threads, and seconds until it has changed
_OF_THREADS = re.compile(r"get_num_(?:threads|procs)|get_max_threads|hardware_concurrency|cpu_count")
_TEAM_SECONDS = 10.0
#: sizes that differ from each other, so that an operand shows which of them it is
_APART = (37, 53, 29, 71, 43, 19)


class Reach:
    """The search: ``covered`` makes the calls, ``gaps`` is what it has not run."""

    def __init__(self, covered: Covered, gaps: list[Gap]) -> None:
        self.covered, self.gaps = covered, gaps
        self.task = covered.stages.task
        self.end = time.monotonic() + COVERAGE.reach_seconds * crowding()
        self.tried = set[Start]()
        texts = covered.stages.source.files.values()
        self._asks_for_threads = any(_OF_THREADS.search(text) for text in texts)
        #: what ran at the case from which others are made
        self.ran_at_start = frozenset[Any]()

    def run(self) -> list[Gap]:
        """Search, compare each case that reaches new code, and return what is left.

        Raises:
            Refused: The kernel is wrong for one that the task's own inputs may draw.
            WorkerFailure: The process that counts has ended.
            ValueError: Its answer is none.
            OSError: It wrote none.
        """
        waiting = list(self._starts())
        while waiting and self.gaps and self._time_left():
            start = waiting.pop(0)
            proposals = [p for p in self._proposals(start) if p not in self.tried]
            for number in range(0, len(proposals), COVERAGE.proposals_at_once):
                at_once = proposals[number : number + COVERAGE.proposals_at_once]
                self.tried.update(at_once)
                reached = self._reach(at_once) if self._time_left() else []
                if reached:
                    # what was just reached has further conditions
                    waiting = [*reached, start, *waiting]
                    break
        return self.gaps

    def _time_left(self) -> bool:
        return time.monotonic() < self.end and len(self.tried) < COVERAGE.proposals

    def _starts(self) -> Iterator[Start]:
        full = self.task.module().default_sizes()
        if self.task.dims:
            apart = {d.name: min(max(_APART[i % len(_APART)], d.min), d.max) for i, d in enumerate(self.task.dims)}
            if runs_at(self.task, tuple(apart.items())):
                yield Start(tuple(apart.items()), secrets.randbits(31))
        if self.covered.stages.context.interpreted:
            full = dict(selection.drawn_base(self.task, True).sizes)
        if input_bytes(self.task, full) <= COVERAGE.reach_bytes:
            yield Start(tuple(full.items()), secrets.randbits(31))

    def _made(self, start: Start) -> Made | None:
        try:
            args = start.case(self.covered).args
            layout = start.placing.layout(args)
        except (KernellabError, RuntimeError, ValueError, OverflowError, TypeError):
            return None
        accepted = self.covered.stages.worker.accepted
        places = layout.places[:accepted]
        return Made("call", type(layout)(places, layout.size), tuple(args[:accepted]))

    def _reach(self, proposals: Sequence[Start]) -> list[Start]:
        """Call at some proposals and compare the kernel's answers to those that reach anything new, which it
        returns."""
        made = {p: m for p in proposals if (m := self._made(p)) is not None}
        before = frozenset(self.covered.ran)
        ran = frozenset[Any]()
        for team in {p.placing.threads for p in made}:
            ran |= self._run([p for p in made if p.placing.threads == team], made)
        new = ran - before
        # each of several conditions may have been met before, and not all at once
        wanted = new or (self.covered.near(self.gaps) - self.ran_at_start) & ran
        if not wanted:
            return []
        # their calls once more, one at a time, say which of them it was
        reaching = [p for p in made if len(made) == 1 or not wanted.isdisjoint(self._run([p], made))]
        if new:
            self.gaps = self.covered.gaps()
            for proposal in reaching:
                self._compare(proposal)
        return reaching

    def _run(self, proposals: Sequence[Start], made: Mapping[Start, Made]) -> frozenset[Any]:
        """Make the calls of proposals with one number of threads, and return what ran."""
        stages, team = self.covered.stages, proposals[0].placing.threads
        if team:
            self.covered.worker.team(team, stages.context.left(_TEAM_SECONDS))
        try:
            return self.covered.run([made[p] for p in proposals]).ran
        finally:
            if team and not self.covered.worker.gone():
                self.covered.worker.team(stages.threads, stages.context.left(_TEAM_SECONDS))

    # -- proposals

    def _proposals(self, start: Start) -> list[Start]:
        """Return cases made from one, other sizes first, then other scalars, then other contents."""
        made = self._made(start)
        if made is None:
            return []
        # forget what earlier calls compared
        self.covered.run([], compared=True)
        self.ran_at_start, answer = self.covered.run([made], compared=True)
        self.gaps = self.covered.gaps()
        case = start.case(self.covered)
        lines = {(gap.file, line) for gap in self.gaps for line in (gap.guard, *gap.lines[:1]) if line}
        all_pairs = list(dict.fromkeys(self._operands(answer.compared, lines)))
        pairs = [(x, y) for a, b in all_pairs for x, y in ((a, b), (b, a)) if a != b]
        numbers = sorted({n for file, line in lines for n in _numbers(self.covered.places.text(file, line))})
        # a number of the source is more often the end of a branch than one that was made
        pairs.sort(key=lambda pair: pair[1] not in numbers)
        free = self._free(case)
        sizes = [p for a, b in pairs for p in self._by_size(start, a, b)]
        sizes += [p for number in numbers for p in self._named_sizes(start, number)]
        values = [p for a, b in pairs for p in self._by_value(start, case, free, a, b)]
        values += [p for number in numbers for p in self._named_values(start, case, free, number)]
        scalars = [i for i, spec in enumerate(self.task.args) if spec.kind is ArgKind.SCALAR]
        values.sort(key=lambda p: p.changes[-1].position not in scalars)
        return list(dict.fromkeys([*sizes, *self._by_place(start, case, all_pairs), *values]))

    def _by_place(self, start: Start, case: Case, pairs: Collection[tuple[float, float]]) -> Iterator[Start]:
        """Yield cases in which an operand changes with where an argument lies, or with the team."""
        places = free_places(case.args, self.covered.stages.written)
        threads = self.covered.stages.threads if self._asks_for_threads else 0
        for a, b in pairs:
            for first, other in ((a, b), (b, a)):
                for placing in start.placing.others(case.args, places, first, other, threads):
                    yield replace(start, placing=placing)

    def _operands(self, compared: Sequence[Comparison], lines: set[tuple[str, int]]) -> Iterator[tuple[float, float]]:
        """Yield the operands of the comparisons in ``lines``."""
        for comparison in compared:
            if self.covered.places.of("/", comparison["file"], comparison["line"]) not in lines:
                continue
            for one, other in comparison["pairs"][: COVERAGE.operand_pairs]:
                if isinstance(one, (int, float)) and isinstance(other, (int, float)):
                    yield one, other

    def _by_size(self, start: Start, a: float, b: float) -> Iterator[Start]:
        """Yield cases in which the operand ``a`` becomes ``b`` or a neighbour, as far as it is made from a size."""
        if not (float(a).is_integer() and float(b).is_integer() and max(abs(a), abs(b)) < 1 << 31):
            return
        step = int(b) - int(a)
        for name, size in start.sizes:
            wanted = [int(b) + d for d in (0, 1, -1)] if size == a else [size + step, size + step + 1, size + step - 1]
            if size and a and size != a and a % size == 0:
                rest = int(a) // size
                wanted += [-(-int(b) // rest), int(b) // rest + 1, int(b) // rest]
            yield from self._sizes(start, name, wanted)

    def _free(self, case: Case) -> set[int]:
        """Return the positions of the tensors of which one element may change without the others."""
        other = cases.Case(self.task, case.sizes, Family.OWN, secrets.randbits(31))
        loose = loose_arguments(self.task, case.args)
        return {
            i for i, (spec, value) in enumerate(zip(self.task.args, case.args, strict=True))
            if isinstance(value, torch.Tensor) and spec.kind is ArgKind.TENSOR and not spec.static and value.numel()
            and (loose[i] or independent(case.args, other.args, i))
        }  # fmt: skip

    def _by_value(self, start: Start, case: Case, free: Collection[int], a: float, b: float) -> Iterator[Start]:
        """The same, as far as the operand is made from a scalar, or from an element of a tensor at a ``free``
        position."""
        for position, (spec, value) in enumerate(zip(self.task.args, case.args, strict=True)):
            if spec.kind is ArgKind.SCALAR and not isinstance(value, bool):
                yield from self._scalars(start, position, value, a, b)
            elif position in free:
                yield from self._contents(start, position, value, a, b)

    def _sizes(self, start: Start, name: str, wanted: Sequence[int]) -> Iterator[Start]:
        dim = next(d for d in self.task.dims if d.name == name)
        for size in dict.fromkeys(wanted):
            if dim.min <= size <= dim.max and size != dict(start.sizes)[name]:
                new = start.with_size(name, size)
                sizes = dict(new.sizes)
                is_small = input_bytes(self.task, sizes) <= COVERAGE.reach_bytes
                if new not in self.tried and is_small and runs_at(self.task, new.sizes):
                    yield new

    def _scalars(self, start: Start, position: int, value: Any, a: float, b: float) -> Iterator[Start]:
        if math.isnan(a):
            return
        if isinstance(value, int):
            if float(b).is_integer() and float(a).is_integer():
                whole = int(b) if value == a else value + int(b) - int(a)
                for number in (whole, whole + 1, whole - 1):
                    yield start.with_value(position, number)
            return
        if math.isfinite(a) and math.isfinite(b):
            near = b if math.isclose(value, a, rel_tol=1e-6) else value + (b - a)
            for other in (near, math.nextafter(near, math.inf), near * 1.01 + 1e-6, near * 0.99 - 1e-6):
                yield start.with_value(position, other)

    def _contents(self, start: Start, position: int, value: torch.Tensor, a: float, b: float) -> Iterator[Start]:
        if value.is_complex() or value.dtype is torch.bool or is_float8(value) or not math.isfinite(b):
            return
        flat = value.reshape(-1)
        hits = (flat == a).nonzero()
        index = int(hits[0]) if len(hits) else secrets.randbelow(flat.numel())
        if value.is_floating_point():
            limit = torch.finfo(value.dtype).max
            if abs(b) > limit:
                return
            exact = torch.tensor(b, dtype=value.dtype)
            up = float(torch.nextafter(exact, torch.full_like(exact, math.inf))) if value.dtype.itemsize >= 4 else b
            down = float(torch.nextafter(exact, torch.full_like(exact, -math.inf))) if value.dtype.itemsize >= 4 else b
            numbers = [n for n in (b, up, down, b * 1.01, b * 0.99) if abs(n) <= limit]
        elif len(hits) and float(b).is_integer() and torch.iinfo(value.dtype).min <= b <= torch.iinfo(value.dtype).max:
            numbers = [b, *(n for n in (b + 1, b - 1) if torch.iinfo(value.dtype).min <= n)]
        else:
            return
        for number in numbers:
            yield start.with_value(position, Element(index, number))
        if value.is_floating_point() and not len(hits):
            # what is compared may be made from all elements
            for number in numbers[-2:]:
                yield start.with_value(position, Element(None, number))

    def _named_sizes(self, start: Start, number: float) -> Iterator[Start]:
        """Yield cases in which a size is a number of the source's condition."""
        if number.is_integer() and number < 1 << 31:
            for name, _ in start.sizes:
                yield from self._sizes(start, name, [int(number), int(number) + 1, int(number) - 1])

    def _named_values(self, start: Start, case: Case, free: Collection[int], number: float) -> Iterator[Start]:
        """Yield cases in which a scalar or an element is a number of the source's condition."""
        for signed in (number, -number):
            for position, (spec, value) in enumerate(zip(self.task.args, case.args, strict=True)):
                if spec.kind is ArgKind.SCALAR and not isinstance(value, bool):
                    yield from self._scalars(start, position, value, float(value), signed)
            by_value = self._by_value(start, case, free, math.nan, signed)
            yield from (p for p in by_value if isinstance(p.changes[-1].value, Element))

    # -- what was reached

    def _compare(self, start: Start) -> None:
        """Compare the kernel's answer to a case that reaches new code. Raises Refused."""
        stages = self.covered.stages
        case = start.case(self.covered)
        try:
            with answers.within(CORRECT.scalar_seconds):
                if not cases.has_answer(case) or not all(map(finite, case.native)):
                    return
        except (TaskError, MemoryError):  # it takes too long or too much memory
            return
        if start.changes:
            case = case.judged_as(Family.EDGES)
            if is_noise(case):
                return
        beyond = [change for change in start.changes if not self._is_own(case, change)]
        scalars = [c.position for c in start.changes if self.task.args[c.position].kind is ArgKind.SCALAR]
        if start.placing and is_right(stages, case):
            self._compare_placed(start, case)
            return
        if not beyond and not scalars:
            stages.check(case)
            return
        if is_right(stages, case, lay_out(case.args)):
            return
        stages.restart_ended()
        for change in start.changes:
            name = self.task.args[change.position].name
            if change.position in scalars:
                default = cases.Case(self.task, start.sizes, Family.OWN, start.seed).args[change.position]
                stages.context.findings.add(ScalarLimit(argument=name, value=default, refuted=True))
            elif change in beyond:
                values = f"{change.value.number:.6g} in {name} not handled"
                stages.context.findings.add(DrawnLimit(argument=name, values=values))

    def _compare_placed(self, start: Start, case: Case) -> None:
        """Compare the kernel's answer where the arguments lie elsewhere, or with another team; it is right otherwise.
        Raises Refused for a team."""
        stages, placing = self.covered.stages, start.placing
        if placing.threads:
            stages.worker.team(placing.threads, stages.context.left(_TEAM_SECONDS))
        try:
            if is_right(stages, case, placing.layout(case.args)):
                return
        finally:
            stages.restart_ended()
            if placing.threads:
                stages.worker.team(stages.threads, stages.context.left(_TEAM_SECONDS))
        for position, dim, _ in placing.strides:
            is_last = dim == case.args[position].dim() - 1
            stages.context.findings.add(StridesLimit(contiguous="rows" if is_last else "all"))
        if placing.moved:
            stages.context.findings.add(AlignmentLimit())
        elif not placing.strides:
            raise stages.refused(case, "race", "wrong with another team of threads, in code that only such a team runs")

    def _is_own(self, case: Case, change: Change) -> bool:
        """May the task's own inputs have such a value?"""
        spec = self.task.args[change.position]
        if spec.kind is ArgKind.SCALAR:
            return True
        drawn = cases.Case(self.task, case.sizes, Family.OWN, case.seed).args[change.position]
        number = change.value.number
        if not drawn.is_floating_point():
            return bool(float(drawn.min()) <= number <= float(drawn.max()))
        low, high = value_bounds(legal_values(spec, drawn, self.task.domain.get(spec.name)), drawn)
        return low <= float(number) <= high


def _numbers(text: str) -> Iterator[float]:
    for match in _NUMBER.finditer(text):
        yield float(match[1].replace("'", "").replace("_", ""))
