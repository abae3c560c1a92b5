"""Inputs drawn from a task's declarations, guided by the edges of its reference; made once for each task.

For each argument in turn, the proposals are patterns (:mod:`kernellab.verifier.cases.patterns`), integers of its range
and masks of whole rows. A watched run of the reference shows which edges each input reaches. Inputs that reach no new
edge are dropped, and a solver looks for the remaining edges. An input is also dropped if the reference raises or its
float64 answer differs.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernellab.conditions import DrawnLimit
from kernellab.errors import KernellabError
from kernellab.task import ArgKind
from kernellab.task.dtypes import finite, is_float8
from kernellab.task.sample.inputs import legal_values
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.cases.cases import Case, is_noise
from kernellab.verifier.protocol.rules import CORRECT, DRAWN
from kernellab.verifier.survey.joint_proposals import at_ends, float_bounds, nearly_equal, together
from kernellab.verifier.survey.proposals import (
    ANY,
    SPECIAL_KINDS,
    Grade,
    Proposal,
    codes,
    complexes,
    floats,
    in_order,
    number_at,
    of_range,
    outside,
    value_bounds,
)
from kernellab.verifier.survey.ranges import Range, is_permutation, is_safe, range_of, runs, sizes_by_values

if TYPE_CHECKING:
    import torch

    from kernellab.verifier.survey.operations import Edge
    from kernellab.verifier.survey.watch import TurnedAnswers, Watch

    Tensor = torch.Tensor


@dataclass(frozen=True)
class Drawn:
    """A case, the grade of a wrong answer to it, and the condition in words. ``beyond``: the values are outside those
    that the task's own inputs draw, so a ``DOMAIN`` may exclude them. ``right``: the limit within which the kernel is
    still right."""

    case: Case
    argument: str
    grade: Grade
    condition: str
    beyond: bool = False
    right: DrawnLimit = ANY
    #: Whether all arithmetic is exact, so that a right answer equals the reference's in any order of operations.
    exact: bool = False
    #: Float64 answers where they differ. A kernel with these answers compares as float64 does, which is a condition.
    wider: tuple[Tensor, ...] = ()
    #: Conditions that make this one redundant.
    covered: frozenset[str] = frozenset()
    #: Answers with equal elements of two arguments compared the other way, and where they decide the output.
    turned: tuple[TurnedAnswers, ...] = ()


class Survey:
    """The drawn cases of ``base`` and the edges they reach: at most ``most`` cases, in ``seconds`` of this thread."""

    def __init__(
        self, base: Case, most: int = DRAWN.verdict_cases, seconds: float = DRAWN.seconds, conditions: bool = True,
        given: Sequence[Proposal] = (), alone: bool = False, named: bool = False,
    ) -> None:  # fmt: skip
        """Without ``conditions``, only cases where a wrong answer is a failure, and a NaN in each argument. The
        ``given`` proposals come first; with ``alone`` there are no others and no edge search. ``named``: the sizes of
        ``base`` are numbers from a source, so no integer stands for one of them."""
        self.base, self.task, self.most = base, base.task, most + len(given)
        self._given, self._alone, self._named = given, alone, named
        self.conditions = conditions
        self.cases: list[Drawn] = []
        self.edges: set[Edge] = set()
        self.reached: set[Edge] = set()
        #: Edges reached by inputs for which a wrong answer is a failure.
        self.sure: set[Edge] = set()
        #: Number of inputs at which the reference raises, changes its output form, or is noise.
        self.dropped = 0
        #: Number of proposals not tried for lack of time.
        self.untried = 0
        #: Ranges of the integer arguments in the task's own inputs.
        self._ranges: dict[int, Range] = {}
        #: Number of checks per edge whether equal elements of a comparison decide in a pattern.
        self._asked: Counter[Edge] = Counter()
        self._seconds = seconds
        self._spent = 0.0
        self._began = 0.0
        self._watch: Watch | None = None
        #: Proposals that follow from the last one tried.
        self._next: list[Proposal] = []

    @property
    def ranges(self) -> Mapping[int, Range]:
        """The ranges of integer arguments whose elements are independent, once the cases are made."""
        return self._ranges

    def make(self) -> Iterator[None]:
        """Make the cases, one at each step."""
        from kernellab.verifier.survey.watch import warmed

        # NumPy calls do not reach torch's dispatcher.
        watching = self.task.framework != "numpy" and not self._alone
        warmed()
        # A reference that names a dtype is captured once for its float64 answer.
        _ = self.base.references
        self._began = time.thread_time()
        if not self.cases:
            self.most = min(self.most, self._affordable())
        self._is_finite = all(map(finite, self.base.native))
        # Without edges if the reference does not run under torch's dispatcher.
        self._watch = self._run(self.base.args) if watching else None
        if self._watch is not None:
            self._take(self._watch, Grade.REFUSED)
        for proposal in self._in_turn([*self._given, *([] if self._alone else self._proposals())]):
            self._pause()
            yield
            self._resume()
            if proposal.grade is Grade.CONDITION and proposal.purpose is None and not self.conditions:
                continue
            # Try at least one proposal. Without conditions this is a NaN, which too few kernels propagate.
            if len(self.cases) >= self.most or (
                (self.cases or self.dropped) and not self._time_left(DRAWN.drawing_share)
            ):
                self.untried += 1
                continue
            self._try(proposal)
        yield from self._solved()
        if not self._alone:
            self._add_exact()
        self._pause()

    def _affordable(self) -> int:
        """Return the number of cases affordable for a kernel: each costs some reference runs and passes over its
        data."""
        each = DRAWN.runs_per_case * self.base.reference_used + self._bytes() / DRAWN.bytes_a_second
        return max(DRAWN.min_cases, int(DRAWN.call_seconds / each))

    def _bytes(self) -> int:
        return input_bytes(self.task, dict(self.base.sizes) or None)

    # -- the clock of this thread, paused while other code runs

    def _pause(self) -> None:
        self._spent += time.thread_time() - self._began

    def _resume(self) -> None:
        self._began = time.thread_time()

    def _time_left(self, share: float = 1.0) -> bool:
        return self._spent + time.thread_time() - self._began < self._seconds * share

    # -- proposals

    def _proposals(self) -> list[Proposal]:
        import torch

        proposals: list[Proposal] = []
        for position, (spec, value) in enumerate(zip(self.task.args, self.base.args, strict=True)):
            domain = self.task.domain.get(spec.name)
            if spec.kind is not ArgKind.TENSOR or spec.static or domain == "fixed" or not hasattr(value, "numel"):
                continue
            if not value.numel():
                continue
            if value.dtype == torch.uint64:
                # Patterns consist of signed integers.
                bits = ("bits", position, secrets.randbits(31))
                proposals.append(outside(bits, f"{spec.name} from 2^63 on not handled"))
            elif is_float8(value):
                proposals += codes(spec.name, position) if domain in (None, "real") else ()
            elif value.is_complex():
                proposals += complexes(spec.name, position, value)
            elif value.is_floating_point():
                proposals += floats(spec.name, position, value, legal_values(spec, value, domain), domain)
            else:
                proposals += self._integers(spec.name, position, value, domain)
        several = (*together(self.base), *nearly_equal(self.base), *at_ends(self.base, self._ranges))
        return in_order([*proposals, *several])

    def _in_turn(self, proposals: Sequence[Proposal]) -> Iterator[Proposal]:
        """Yield each proposal, followed by the proposals that follow from it."""
        for proposal in proposals:
            yield proposal
            while self._next:
                yield self._next.pop()

    def _follow(self, proposal: Proposal, case: Case) -> None:
        """If many special values leave nothing finite in an output, as in a sum over rows, try a single one: a kernel
        that is wrong for one value can be right for many."""
        kind, *rest = proposal.change[2:] if proposal.change[0] == "pattern" else ("",)
        hidden = (o for o in case.native if o.is_floating_point() and o.numel())
        if kind in SPECIAL_KINDS and self._is_finite and any(not bool(o.isfinite().any()) for o in hidden):
            self._next.append(replace(proposal, change=(*proposal.change[:2], f"one {kind}", *rest)))

    def _integers(self, name: str, position: int, value: Tensor, domain: str | None) -> list[Proposal]:
        watch = self._watch
        from kernellab.verifier.survey.watch import SIZED_BY_VALUES

        sized = sizes_by_values(self.task.text) if watch is None else bool(SIZED_BY_VALUES & watch.calls.keys())
        sizes = dict(self.base.sizes) or None
        try:
            more = [self.task.module().sample(sizes, seed)[position].to(value.device) for seed in (1, 2)]
        except KernellabError:
            more = []
        samples = [value, *(m for m in more if m.shape == value.shape and m.dtype == value.dtype)]
        integer_range = range_of(samples, domain, runs(self.task, self.base.args, position), sized)
        if not (integer_range.mask or integer_range.fixed or integer_range.is_sorted or is_permutation(value)):
            self._ranges[position] = integer_range
        proposals = list(of_range(name, position, value, integer_range, domain is not None))
        if domain is None and not integer_range.mask:
            extents = {n for a in self.base.args if hasattr(a, "shape") and not self._named for n in a.shape}
            for number in sorted(n for n in {0, 1, *extents} if not integer_range.low <= n <= integer_range.high)[:6]:
                if not sized:
                    proposals.append(number_at(name, position, "low", number, ""))
            proposals += [number_at(name, position, "some", number, "ignored") for number in (-100, -1)]
        return proposals

    # -- trying

    def _try(self, proposal: Proposal) -> None:
        case = self.base.with_change(proposal.change)
        try:
            if not is_safe(self.task, case.args, proposal.change[1], self._indexes()):
                self.dropped += 1
                return
            watch = self._watched(case.args) if self._watch is not None else None
            reached = watch.reached if watch is not None else frozenset()
            new = reached - (self.reached if proposal.grade is Grade.CONDITION else self.sure)
            grade = self._grade(proposal, new)
            if grade is None or not (new or proposal.always):
                return
            if not self._is_sound(case, grade):
                self.dropped += 1
                return
        except (KernellabError, RuntimeError, MemoryError, OverflowError, ValueError):
            self.dropped += 1
            return
        self._add(case, proposal, grade)
        self._follow(proposal, case)
        if watch is not None:
            self._take(watch, grade, case)

    def _indexes(self) -> bool:
        """Return whether floats may become indices; True if the reference's operations are unknown."""
        from kernellab.verifier.survey.operations import INDEXED

        watch = self._watch
        return watch is None or (bool(INDEXED & watch.calls.keys()) and any(e.op == "_to_copy" for e in watch.edges))

    def _grade(self, proposal: Proposal, new: frozenset[Edge]) -> Grade | None:
        """Return the grade of a wrong answer, or None if the proposal targets an edge that it does not reach."""
        if proposal.purpose is None:
            return proposal.grade
        if any(e.purpose and proposal.purpose in e.name for e in new):
            return Grade.REFUSED
        reported = self.conditions or proposal.purpose == "NaN"
        return proposal.grade if reported and proposal.grade is not Grade.REFUSED else None

    def _add(self, case: Case, proposal: Proposal, grade: Grade) -> None:
        became = self._is_finite and not all(map(finite, case.native))
        if became and grade is Grade.REFUSED and proposal.purpose is None:
            # The reference returns NaN or infinity, which it never does for the task's own inputs.
            grade = Grade.CONDITION
        # A condition on two arguments names neither.
        name = (
            ""
            if proposal.change[0] in ("together", "hidden", "near", "still")
            else self.task.args[proposal.change[1]].name
        )
        if self._bytes() > CORRECT.family_bytes:
            # Draw large data again instead of keeping all cases in memory.
            case = self.base.with_change(proposal.change)
        condition, beyond, right, covered = proposal.condition, proposal.beyond, proposal.right, proposal.covered
        self.cases.append(Drawn(case, name, grade, condition, beyond, right, covered=covered))

    def _is_sound(self, case: Case, grade: Grade) -> bool:
        """Return whether the answer has the usual form and agrees with the reference's float64 answer. If it does not
        agree, the reference is noise. Integers that decide sizes may change the extents; the verdict reports that."""
        sized = grade is Grade.CONDITION and case.change[1] in self._ranges
        if [(o.dim() if sized else o.shape, o.dtype) for o in case.native] != [
            (o.dim() if sized else o.shape, o.dtype) for o in self.base.native
        ]:
            return False
        return not is_noise(case)

    def _add_exact(self) -> None:
        from kernellab.verifier.survey.exact import ExactCases

        spans = float_bounds(self.base, 32.0)
        if not spans or any(low >= high for low, high in spans.values()):
            return
        calls = self._watch.calls if self._watch is not None else ()
        exact_cases = ExactCases(
            self.base, spans, self.edges, calls, self._run, lambda: self._time_left(DRAWN.exact_seconds_share)
        )
        for exact in exact_cases.make():
            name = self.task.args[exact.case.change[1]].name
            grade = Grade.REFUSED if exact.sure else Grade.CONDITION
            words = f"{name} at a limit compared as in float64" if exact.wider else f"{name} at ties not handled"
            self.cases.append(Drawn(exact.case, name, grade, words, exact=True, wider=exact.wider))
        self.dropped += exact_cases.dropped

    def _watched(self, args: Sequence[Any]) -> Watch:
        from kernellab.verifier.survey.watch import watched

        return watched(self.task.module().results, args)

    def _take(self, watch: Watch, grade: Grade, case: Case | None = None) -> None:
        """Record the edges that a run reached, for the case added last or for the base."""
        self.edges |= watch.edges.keys()
        self.reached |= watch.reached
        if grade is Grade.REFUSED:
            new = watch.reached - self.sure
            self.sure |= {e for e in new if not watch.compares_two(e) or (case is not None and self._decided(e, case))}

    def _decided(self, edge: Edge, case: Case) -> bool:
        # Always check cases that the solver found.
        self._asked[edge] += case.change[0] != "elements"
        return (case.change[0] == "elements" or self._asked[edge] <= DRAWN.tie_patterns) and self._decides(edge, case)

    def _decides(self, edge: Edge, case: Case) -> bool:
        """Return whether the output in ``case`` depends on how the reference compares the equal elements of ``edge``.
        Where both answers agree (``x if x > y else -y`` at zero), a kernel that compares otherwise is not detected."""
        from kernellab.verifier.survey.watch import turned

        try:
            turned_answers = turned(self.task.module().results, case.args, case.native, edge)
        except (KernellabError, RuntimeError):
            return True
        if turned_answers.of_arguments and self.cases and self.cases[-1].case.change == case.change:
            last = self.cases[-1]
            self.cases[-1] = replace(last, turned=(*last.turned, turned_answers))
        return turned_answers.matters

    # -- the solver

    def _solved(self) -> Iterator[None]:
        """Add cases for the edges not reached yet, with all patches of an argument combined."""
        from kernellab.verifier.survey.solve import Patch, Solver

        if self._watch is None:
            return
        bounds = float_bounds(self.base, DRAWN.far_magnitude)
        missing = sorted(self.edges - self.sure, key=lambda e: not e.purpose)
        watch = self._watch

        def decides(edge: Edge, at: tuple[int, int, float]) -> bool:
            change = ("elements", at[0], (at[1:],))
            return not watch.compares_two(edge) or self._decides(edge, self.base.with_change(change))

        solver = Solver(self._run, self.base.args, watch, bounds, secrets.randbits(31), decides)
        patches: dict[int, dict[int, Patch]] = {}
        later: list[Patch] = []
        for patch in solver.solve(missing, self._time_left):
            by_index = patches.setdefault(patch.position, {})
            if patch.index in by_index:
                later.append(patch)
            else:
                by_index[patch.index] = patch
            self._pause()
            yield
            self._resume()
        for position, placed in patches.items():
            values = tuple((p.index, p.value) for p in placed.values())
            self._try(self._of_elements(position, values))
        for patch in later:
            if patch.edge not in self.sure and len(self.cases) < self.most + DRAWN.solver_cases:
                self._try(self._of_elements(patch.position, ((patch.index, patch.value),)))

    def _of_elements(self, position: int, values: tuple[tuple[int, float], ...]) -> Proposal:
        spec, value = self.task.args[position], self.base.args[position]
        low, high = value_bounds(legal_values(spec, value, self.task.domain.get(spec.name)), value)
        beyond = any(not low <= number <= high for _, number in values)
        return Proposal(("elements", position, values), Grade.REFUSED, f"{spec.name} at an edge", beyond=beyond)

    def _run(self, args: Sequence[Any]) -> Watch | None:
        try:
            return self._watched(args)
        except (KernellabError, RuntimeError):
            return None
