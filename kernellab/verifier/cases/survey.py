"""Inputs drawn from what a task declares, guided by the edges of its reference; made once for a task.

Each argument in turn has patterns (:mod:`kernellab.verifier.cases.patterns`), integers of its range, masks of whole
rows. A watched run of the reference says which edges each reaches; those that add nothing are left out, and a solver
looks for the rest. Where the reference raises, or its own float64 differs, an input says nothing and is dropped.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from kernellab.conditions import DrawnLimit
from kernellab.errors import KernellabError
from kernellab.task import ArgKind
from kernellab.task.dtypes import finite, is_float8
from kernellab.task.sample.inputs import legal_values
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.changes import SPECIAL, USUAL
from kernellab.verifier.cases.input_specs import meet
from kernellab.verifier.cases.proposals import (
    ANY,
    SPECIAL_KINDS,
    Grade,
    Proposal,
    codes,
    complexes,
    floats,
    in_order,
    not_handled,
    number_at,
    of_range,
    value_bounds,
)
from kernellab.verifier.cases.ranges import Range, is_permutation, is_safe, range_of, runs, sizes_by_values
from kernellab.verifier.protocol.rules import CORRECT, DRAWN

if TYPE_CHECKING:
    import torch

    from kernellab.verifier.boundary_checks.operations import Edge
    from kernellab.verifier.boundary_checks.watch import TurnedAnswers, Watch

    Tensor = torch.Tensor


@dataclass(frozen=True)
class Drawn:
    """A case, what a wrong answer to it is, and the condition in words; ``beyond``: the values lie outside what the
    task's own inputs draw, so that a ``DOMAIN`` may exclude them; ``right``: for what the kernel is then right."""

    case: Case
    argument: str
    grade: Grade
    condition: str
    beyond: bool = False
    right: DrawnLimit = ANY
    #: is all its arithmetic exact, so that a right answer is the reference's whatever the order of its operations?
    exact: bool = False
    #: float64's answers, where they differ: a kernel that has these compares as float64 does, which is a condition
    wider: tuple[Tensor, ...] = ()
    #: conditions of which one says as much
    covered: frozenset[str] = frozenset()
    #: the answers of one who decides otherwise where elements of two arguments are equal, and where they tell
    turned: tuple[TurnedAnswers, ...] = ()


class Survey:
    """The drawn cases of ``base`` and what they reach; at most ``most`` cases, found in ``seconds`` of this thread."""

    def __init__(
        self, base: Case, most: int = DRAWN.cases, seconds: float = DRAWN.seconds, conditions: bool = True,
        given: Sequence[Proposal] = (), alone: bool = False, named: bool = False,
    ) -> None:  # fmt: skip
        """Without ``conditions``, only cases on which a wrong answer is a failure, and a NaN in each argument.
        Proposals that are ``given`` come before all others; ``alone``: they are all, and no edge is looked for.
        ``named``: the sizes of ``base`` are numbers of a source, so that no integer stands for one of them."""
        self.base, self.task, self.most = base, base.task, most + len(given)
        self._given, self._alone, self._named = given, alone, named
        self.conditions = conditions
        self.cases: list[Drawn] = []
        self.edges: set[Edge] = set()
        self.reached: set[Edge] = set()
        #: of these, those that inputs reach on which a wrong answer is a failure
        self.sure: set[Edge] = set()
        #: inputs at which the reference raises, answers in another form, or is noise
        self.dropped = 0
        #: proposals for which no time was left
        self.untried = 0
        #: of integers, what the task's own inputs draw
        self._ranges: dict[int, Range] = {}
        #: how often it was looked whether equal elements of a comparison decide in a pattern
        self._asked: Counter[Edge] = Counter()
        self._seconds = seconds
        self._spent = 0.0
        self._began = 0.0
        self._watch: Watch | None = None
        #: what follows from the proposal that was tried last
        self._next: list[Proposal] = []

    def make(self) -> Iterator[None]:
        """Makes the cases, one at each step."""
        from kernellab.verifier.boundary_checks.watch import warmed

        # nothing of NumPy comes to torch's dispatcher
        watching = self.task.framework != "numpy" and not self._alone
        warmed()
        # a reference that names a dtype is captured for its float64 answer, once
        _ = self.base.references
        self._began = time.thread_time()
        if not self.cases:
            self.most = min(self.most, self._affordable())
        self._is_finite = all(map(finite, self.base.native))
        # without its edges where the reference does not run at torch's dispatcher
        self._watch = self._run(self.base.args) if watching else None
        if self._watch is not None:
            self._take(self._watch, Grade.REFUSED)
        for proposal in self._in_turn([*self._given, *([] if self._alone else self._proposals())]):
            self._pause()
            yield
            self._resume()
            if proposal.grade is Grade.CONDITION and proposal.purpose is None and not self.conditions:
                continue
            # one in any case: without conditions that is a NaN, which too few kernels keep
            if len(self.cases) >= self.most or ((self.cases or self.dropped) and not self._time_left(DRAWN.drawing)):
                self.untried += 1
                continue
            self._try(proposal)
        yield from self._solved()
        if not self._alone:
            self._add_exact()
        self._pause()

    def _affordable(self) -> int:
        """Cases that a kernel can be tried with: each costs a few runs of the reference, and passes over its data."""
        each = DRAWN.runs * self.base.reference_seconds + self._bytes() / DRAWN.bytes_a_second
        return max(DRAWN.least, int(DRAWN.call_seconds / each))

    def _bytes(self) -> int:
        return input_bytes(self.task, dict(self.base.sizes) or None)

    # -- the clock of this thread, which stands while others work

    def _pause(self) -> None:
        self._spent += time.thread_time() - self._began

    def _resume(self) -> None:
        self._began = time.thread_time()

    def _time_left(self, share: float = 1.0) -> bool:
        return self._spent + time.thread_time() - self._began < self._seconds * share

    # -- proposals

    def _proposals(self) -> list[Proposal]:
        import torch

        found: list[Proposal] = []
        for position, (spec, value) in enumerate(zip(self.task.args, self.base.args, strict=True)):
            domain = self.task.domain.get(spec.name)
            if spec.kind is not ArgKind.TENSOR or spec.static or domain == "fixed" or not hasattr(value, "numel"):
                continue
            if not value.numel():
                continue
            if value.dtype == torch.uint64:
                # patterns are made of signed integers
                found.append(Proposal(
                    ("bits", position, secrets.randbits(31)), Grade.CONDITION, f"{spec.name} from 2^63 on not handled",
                    True, True,
                ))  # fmt: skip
            elif is_float8(value):
                found += codes(spec.name, position) if domain in (None, "real") else ()
            elif value.is_complex():
                found += complexes(spec.name, position, value)
            elif value.is_floating_point():
                found += floats(spec.name, position, value, legal_values(spec, value, domain), domain)
            else:
                found += self._integers(spec.name, position, value, domain)
        return in_order([*found, *self._together(), *self._near(), *self._at_ends()])

    def _in_turn(self, proposals: Sequence[Proposal]) -> Iterator[Proposal]:
        """Each, and behind it what follows from it."""
        for proposal in proposals:
            yield proposal
            while self._next:
                yield self._next.pop()

    def _follow(self, proposal: Proposal, case: Case) -> None:
        """Of many special values that leave nothing finite of an output, as a sum over rows does, one alone: a kernel
        that is wrong for one is right for many."""
        kind, *rest = proposal.change[2:] if proposal.change[0] == "pattern" else ("",)
        hidden = (o for o in case.native if o.is_floating_point() and o.numel())
        if kind in SPECIAL_KINDS and self._is_finite and any(not bool(o.isfinite().any()) for o in hidden):
            self._next.append(replace(proposal, change=(*proposal.change[:2], f"one {kind}", *rest)))

    def _at_ends(self) -> Iterator[Proposal]:
        """All integers at the least and at the largest that the task's own inputs draw, at once: what two make together
        (the sum of two products in 16 bits) is the largest there. Of floats, a sum of many equal terms is rounded."""
        words = f"{' and '.join(self.task.args[i].name for i in self._ranges)} at their ends at once not handled"
        rounded = any(o.is_floating_point() or o.is_complex() for o in self.base.native)
        grade = Grade.CONDITION if rounded else Grade.REFUSED
        for end in ("low", "high") if len(self._ranges) > 1 else ():
            values = tuple((i, getattr(at, end)) for i, at in self._ranges.items())
            yield Proposal(("still", values[0][0], values, ()), grade, words, True)

    def _together(self) -> list[Proposal]:
        """Special values in two arguments at one place: of the first pairs of arguments, so that two verdicts of one
        kernel tell of the same."""
        free = [
            i for i, (spec, value) in enumerate(zip(self.task.args, self.base.args, strict=True))
            if spec.kind is ArgKind.TENSOR and not spec.static and self.task.domain.get(spec.name) in (None, "real")
            and hasattr(value, "numel") and value.numel() and value.is_floating_point() and not is_float8(value)
        ]  # fmt: skip
        found: list[Proposal] = []
        pairs = []
        for a, b in combinations(free, 2):
            if meet(self.base.args[a].shape, self.base.args[b].shape):
                pairs.append((a, b))
            elif len(found) < 2 * DRAWN.pairs:
                # what leaves out the terms of a zero (of a product of matrices) makes 0 of 0 * inf
                found += [self._hidden(a, b), self._hidden(b, a)]
        for a, b in pairs[: DRAWN.pairs]:
            names = [self.task.args[i].name for i in (a, b)]
            both = f"in {names[0]} and {names[1]} at once not handled"
            # of numbers that are never negative, -1 would be refused where 0 and 1 are right
            signed = all(bool((self.base.args[i] < 0).any()) for i in (a, b))
            usual, said = ((*USUAL, -1.0), "0, near 0, 1 or -1") if signed else (USUAL, "0, near 0 or 1")
            covered = [f"{said} {both}", *(not_handled(kind, name) for kind in SPECIAL_KINDS for name in names)]
            for values, words, others in ((usual, said, ()), (SPECIAL, "special values", covered)):
                change = ("together", a, b, secrets.randbits(31), values)
                condition = f"{words} {both}"
                found.append(Proposal(change, Grade.CONDITION, condition, True, True, covered=frozenset(others)))
        return found

    def _hidden(self, a: int, b: int) -> Proposal:
        one, two = (self.task.args[i].name for i in (a, b))
        words, covered = f"inf in {two} times 0 in {one} not handled", frozenset((not_handled("inf", two),))
        change = ("hidden", a, b, secrets.randbits(31))
        return Proposal(change, Grade.CONDITION, words, True, True, covered=covered)

    def _near(self) -> list[Proposal]:
        """A second argument whose rows are nearly those of a first: where formulas subtract, all digits cancel."""
        free = [i for i, low in self._float_bounds(DRAWN.far).items() if self.base.args[i].dim() and low[0] < 0]
        for a, b in combinations(free, 2):
            one, two = self.base.args[a].shape, self.base.args[b].shape
            if one == two or (min(len(one), len(two)) > 1 and one[-1] == two[-1]):
                words = f"nearly equal {self.task.args[a].name} and {self.task.args[b].name} not handled"
                return [Proposal(("near", a, b, secrets.randbits(31)), Grade.CONDITION, words, True, True)]
        return []

    def _integers(self, name: str, position: int, value: Tensor, domain: str | None) -> list[Proposal]:
        watch = self._watch
        from kernellab.verifier.boundary_checks.watch import SIZED_BY_VALUES

        sized = sizes_by_values(self.task.text) if watch is None else bool(SIZED_BY_VALUES & watch.calls.keys())
        sizes = dict(self.base.sizes) or None
        try:
            more = [self.task.module().sample(sizes, seed)[position].to(value.device) for seed in (1, 2)]
        except KernellabError:
            more = []
        samples = [value, *(m for m in more if m.shape == value.shape and m.dtype == value.dtype)]
        is_at = range_of(samples, domain, runs(self.task, self.base.args, position), sized)
        if not (is_at.mask or is_at.fixed or is_at.is_sorted or is_permutation(value)):
            self._ranges[position] = is_at
        found = list(of_range(name, position, value, is_at, domain is not None))
        if domain is None and not is_at.mask:
            extents = {n for a in self.base.args if hasattr(a, "shape") and not self._named for n in a.shape}
            for number in sorted(n for n in {0, 1, *extents} if not is_at.low <= n <= is_at.high)[:6]:
                if not sized:
                    found.append(number_at(name, position, "low", number, ""))
            found += [number_at(name, position, "some", number, "ignored") for number in (-100, -1)]
        return found

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
        """May floats become places? True where nothing is known of the reference's operations."""
        from kernellab.verifier.boundary_checks.operations import INDEXED

        watch = self._watch
        return watch is None or (bool(INDEXED & watch.calls.keys()) and any(e.op == "_to_copy" for e in watch.edges))

    def _grade(self, proposal: Proposal, new: frozenset[Edge]) -> Grade | None:
        """What a wrong answer is; None where the proposal is for an edge alone that it does not reach."""
        if proposal.purpose is None:
            return proposal.grade
        if any(e.purpose and proposal.purpose in e.name for e in new):
            return Grade.REFUSED
        told = self.conditions or proposal.purpose == "NaN"
        return proposal.grade if told and proposal.grade is not Grade.REFUSED else None

    def _add(self, case: Case, proposal: Proposal, grade: Grade) -> None:
        became = self._is_finite and not all(map(finite, case.native))
        if became and grade is Grade.REFUSED and proposal.purpose is None:
            # the reference itself answers with NaN or infinity, where the task's own inputs never make it
            grade = Grade.CONDITION
        # a condition of two arguments names none
        name = (
            ""
            if proposal.change[0] in ("together", "hidden", "near", "still")
            else self.task.args[proposal.change[1]].name
        )
        if self._bytes() > CORRECT.family_bytes:
            # much data is drawn again, so that it does not lie in memory together with all the others
            case = self.base.with_change(proposal.change)
        condition, beyond, right, covered = proposal.condition, proposal.beyond, proposal.right, proposal.covered
        self.cases.append(Drawn(case, name, grade, condition, beyond, right, covered=covered))

    def _is_sound(self, case: Case, grade: Grade) -> bool:
        """Has the answer the form of every other, and does the reference's float64 agree with it? Where it does not,
        the reference itself is noise. Of integers that decide sizes an answer may be longer; the verdict says so."""
        sized = grade is Grade.CONDITION and case.change[1] in self._ranges
        if [(o.dim() if sized else o.shape, o.dtype) for o in case.native] != [
            (o.dim() if sized else o.shape, o.dtype) for o in self.base.native
        ]:
            return False
        for found in case.references:
            native, double = found.native, found.double
            if double is None or not (native.is_floating_point() or native.is_complex()) or not native.numel():
                continue
            both = native.isfinite() & double.isfinite()
            apart = (native.to(double.dtype) - double)[both]
            if bool((native.isfinite() != double.isfinite()).any()):
                return False
            scale = float(double[both].norm())
            if float(apart.norm()) > DRAWN.noise * scale:
                return False
        return True

    def _add_exact(self) -> None:
        from kernellab.verifier.cases.exact import ExactCases

        spans = self._float_bounds(32.0)
        if not spans or any(low >= high for low, high in spans.values()):
            return
        calls = self._watch.calls if self._watch is not None else ()
        made = ExactCases(self.base, spans, self.edges, calls, self._run, lambda: self._time_left(DRAWN.exact_share))
        for one in made.make():
            name = self.task.args[one.case.change[1]].name
            grade = Grade.REFUSED if one.sure else Grade.CONDITION
            words = f"{name} at a limit compared as in float64" if one.wider else f"{name} at ties not handled"
            self.cases.append(Drawn(one.case, name, grade, words, exact=True, wider=one.wider))
        self.dropped += made.dropped

    def _watched(self, args: Sequence[Any]) -> Watch:
        from kernellab.verifier.boundary_checks.watch import watched

        return watched(self.task.module().results, args)

    def _take(self, watch: Watch, grade: Grade, case: Case | None = None) -> None:
        """Notes what a run has reached, of the case that was added last, or of the base."""
        self.edges |= watch.edges.keys()
        self.reached |= watch.reached
        if grade is Grade.REFUSED:
            new = watch.reached - self.sure
            self.sure |= {e for e in new if not watch.compares_two(e) or (case is not None and self._decided(e, case))}

    def _decided(self, edge: Edge, case: Case) -> bool:
        # what the solver has found is looked at in any case
        self._asked[edge] += case.change[0] != "elements"
        return (case.change[0] == "elements" or self._asked[edge] <= DRAWN.ties) and self._decides(edge, case)

    def _decides(self, edge: Edge, case: Case) -> bool:
        """Does it matter in ``case`` how the reference answers for the equal elements of ``edge``? Where both answers
        agree (at zero, of ``x if x > y else -y``) a kernel that compares otherwise would not show."""
        from kernellab.verifier.boundary_checks.watch import turned

        try:
            other = turned(self.task.module().results, case.args, case.native, edge)
        except (KernellabError, RuntimeError):
            return True
        if other.of_arguments and self.cases and self.cases[-1].case.change == case.change:
            last = self.cases[-1]
            self.cases[-1] = replace(last, turned=(*last.turned, other))
        return other.matters

    # -- the solver

    def _solved(self) -> Iterator[None]:
        """Cases for the edges that nothing reached, with all patches of an argument together."""
        from kernellab.verifier.boundary_checks.solve import Patch, Solver

        if self._watch is None:
            return
        bounds = self._float_bounds(DRAWN.far)
        missing = sorted(self.edges - self.sure, key=lambda e: not e.purpose)
        watch = self._watch

        def decides(edge: Edge, at: tuple[int, int, float]) -> bool:
            change = ("elements", at[0], (at[1:],))
            return not watch.compares_two(edge) or self._decides(edge, self.base.with_change(change))

        solver = Solver(self._run, self.base.args, watch, bounds, secrets.randbits(31), decides)
        patches: dict[int, dict[int, Patch]] = {}
        later: list[Patch] = []
        for patch in solver.solve(missing, self._time_left):
            here = patches.setdefault(patch.position, {})
            if patch.index in here:
                later.append(patch)
            else:
                here[patch.index] = patch
            self._pause()
            yield
            self._resume()
        for position, of in patches.items():
            values = tuple((p.index, p.value) for p in of.values())
            self._try(self._of_elements(position, values))
        for patch in later:
            if patch.edge not in self.sure and len(self.cases) < self.most + DRAWN.solved:
                self._try(self._of_elements(patch.position, ((patch.index, patch.value),)))

    def _float_bounds(self, far: float) -> dict[int, tuple[float, float]]:
        """What values of the float arguments that may be drawn may be, as far as ``far`` where nothing bounds them."""
        return {
            i: value_bounds(legal_values(spec, value, self.task.domain.get(spec.name)), value, far)
            for i, (spec, value) in enumerate(zip(self.task.args, self.base.args, strict=True))
            if spec.kind is ArgKind.TENSOR and not spec.static and hasattr(value, "numel") and value.numel()
            and value.is_floating_point() and not is_float8(value)
            and self.task.domain.get(spec.name) not in ("fixed", "prob", "sorted")
        }  # fmt: skip

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
