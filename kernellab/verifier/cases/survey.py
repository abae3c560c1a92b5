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
from enum import Enum
from itertools import combinations, product
from math import isfinite
from typing import TYPE_CHECKING, Any

from kernellab.conditions import DrawnLimit
from kernellab.errors import KernellabError
from kernellab.task import ArgKind
from kernellab.task.dtypes import finite, is_float8
from kernellab.task.sample.draw import Legal, Support
from kernellab.task.sample.inputs import legal_values
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.changes import SPECIAL, USUAL
from kernellab.verifier.cases.input_specs import meet
from kernellab.verifier.cases.ranges import Range, is_permutation, is_safe, range_of, runs
from kernellab.verifier.protocol.rules import CORRECT, DRAWN

if TYPE_CHECKING:
    import torch

    from kernellab.verifier.boundary_checks.operations import Edge
    from kernellab.verifier.boundary_checks.watch import TurnedAnswers, Watch

    Tensor = torch.Tensor


#: a condition that says nothing of other values
_ANY = DrawnLimit(values="")


class Grade(str, Enum):
    """What a wrong answer to a drawn input is."""

    #: a failure: the values are the task's own, or its reference's operations are there for them
    REFUSED = "refused"
    #: a failure where the answer does not change at all, else a condition: the task's own inputs always have one value
    IGNORED = "ignored"
    #: a condition of the verdict: the values are none of the task's own inputs
    CONDITION = "condition"


@dataclass(frozen=True)
class Drawn:
    """A case, what a wrong answer to it is, and the condition in words; ``beyond``: the values lie outside what the
    task's own inputs draw, so that a ``DOMAIN`` may exclude them; ``right``: for what the kernel is then right."""

    case: Case
    argument: str
    grade: Grade
    condition: str
    beyond: bool = False
    right: DrawnLimit = _ANY
    #: is all its arithmetic exact, so that a right answer is the reference's whatever the order of its operations?
    exact: bool = False
    #: float64's answers, where they differ: a kernel that has these compares as float64 does, which is a condition
    wider: tuple[Tensor, ...] = ()
    #: conditions of which one says as much
    covered: frozenset[str] = frozenset()
    #: the answers of one who decides otherwise where elements of two arguments are equal, and where they tell
    turned: tuple[TurnedAnswers, ...] = ()


@dataclass(frozen=True)
class _Proposal:
    change: tuple[Any, ...]
    grade: Grade
    condition: str
    #: is it tried where it reaches no new edge?
    always: bool = False
    beyond: bool = False
    #: edges that make a wrong answer a failure, where they are reached: a word of their names; "" for any
    purpose: str | None = None
    #: what the kernel is right for where it is wrong here
    right: DrawnLimit = _ANY
    covered: frozenset[str] = frozenset()


class Survey:
    """The drawn cases of ``base`` and what they reach; at most ``most`` cases, found in ``seconds`` of this thread."""

    def __init__(
        self, base: Case, most: int = DRAWN.cases, seconds: float = DRAWN.seconds, conditions: bool = True
    ) -> None:
        """Without ``conditions``, only cases on which a wrong answer is a failure, and a NaN in each argument."""
        self.base, self.task, self.most = base, base.task, most
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

    def make(self) -> Iterator[None]:
        """Makes the cases, one at each step."""
        from kernellab.verifier.boundary_checks.watch import warmed

        # nothing of NumPy comes to torch's dispatcher
        watching = self.task.framework != "numpy"
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
        for proposal in self._proposals():
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

    def _proposals(self) -> list[_Proposal]:
        import torch

        found: list[_Proposal] = []
        for position, (spec, value) in enumerate(zip(self.task.args, self.base.args, strict=True)):
            domain = self.task.domain.get(spec.name)
            if spec.kind is not ArgKind.TENSOR or spec.static or domain == "fixed" or not hasattr(value, "numel"):
                continue
            if not value.numel() or is_float8(value) or value.dtype == torch.uint64:
                continue
            if value.is_complex():
                found += _complex(spec.name, position, value)
            elif value.is_floating_point():
                found += _floats(spec.name, position, value, legal_values(spec, value, domain), domain)
            else:
                found += self._integers(spec.name, position, value, domain)
        return _in_order([*found, *self._together(), *self._near(), *self._at_ends()])

    def _at_ends(self) -> Iterator[_Proposal]:
        """All integers at the least and at the largest that the task's own inputs draw, at once: what two make together
        (the sum of two products in 16 bits) is the largest there. Of floats, a sum of many equal terms is rounded."""
        words = f"{' and '.join(self.task.args[i].name for i in self._ranges)} at their ends at once not handled"
        rounded = any(o.is_floating_point() or o.is_complex() for o in self.base.native)
        grade = Grade.CONDITION if rounded else Grade.REFUSED
        for end in ("low", "high") if len(self._ranges) > 1 else ():
            values = tuple((i, getattr(at, end)) for i, at in self._ranges.items())
            yield _Proposal(("still", values[0][0], values, ()), grade, words, True)

    def _together(self) -> list[_Proposal]:
        """Special values in two arguments at one place: of the first pairs of arguments, so that two verdicts of one
        kernel tell of the same."""
        free = [
            i for i, (spec, value) in enumerate(zip(self.task.args, self.base.args, strict=True))
            if spec.kind is ArgKind.TENSOR and not spec.static and self.task.domain.get(spec.name) in (None, "real")
            and hasattr(value, "numel") and value.numel() and value.is_floating_point() and not is_float8(value)
        ]  # fmt: skip
        found: list[_Proposal] = []
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
            covered = [f"{said} {both}", *(_not_propagated(kind, name) for kind in _SPECIAL for name in names)]
            for values, words, others in ((usual, said, ()), (SPECIAL, "special values", covered)):
                change = ("together", a, b, secrets.randbits(31), values)
                condition = f"{words} {both}"
                found.append(_Proposal(change, Grade.CONDITION, condition, True, True, covered=frozenset(others)))
        return found

    def _hidden(self, a: int, b: int) -> _Proposal:
        one, two = (self.task.args[i].name for i in (a, b))
        words, covered = f"inf in {two} times 0 in {one} not handled", frozenset((_not_propagated("inf", two),))
        change = ("hidden", a, b, secrets.randbits(31))
        return _Proposal(change, Grade.CONDITION, words, True, True, covered=covered)

    def _near(self) -> list[_Proposal]:
        """A second argument whose rows are nearly those of a first: where formulas subtract, all digits cancel."""
        free = [i for i, low in self._float_bounds(DRAWN.far).items() if self.base.args[i].dim() and low[0] < 0]
        for a, b in combinations(free, 2):
            one, two = self.base.args[a].shape, self.base.args[b].shape
            if one == two or (min(len(one), len(two)) > 1 and one[-1] == two[-1]):
                words = f"nearly equal {self.task.args[a].name} and {self.task.args[b].name} not handled"
                return [_Proposal(("near", a, b, secrets.randbits(31)), Grade.CONDITION, words, True, True)]
        return []

    def _integers(self, name: str, position: int, value: Tensor, domain: str | None) -> list[_Proposal]:
        watch = self._watch
        from kernellab.verifier.boundary_checks.watch import SIZED_BY_VALUES

        sized = watch is None or bool(SIZED_BY_VALUES & watch.calls.keys())
        sizes = dict(self.base.sizes) or None
        try:
            more = [self.task.module().sample(sizes, seed)[position].to(value.device) for seed in (1, 2)]
        except KernellabError:
            more = []
        samples = [value, *(m for m in more if m.shape == value.shape and m.dtype == value.dtype)]
        is_at = range_of(samples, domain, runs(self.task, self.base.args, position), sized)
        if not (is_at.mask or is_at.fixed or is_at.is_sorted or is_permutation(value)):
            self._ranges[position] = is_at
        found = list(_of_range(name, position, value, is_at, domain is not None))
        if domain is None and not is_at.mask:
            extents = {n for a in self.base.args if hasattr(a, "shape") for n in a.shape}
            for number in sorted(n for n in {0, 1, *extents} if not is_at.low <= n <= is_at.high)[:6]:
                if not sized:
                    found.append(_value(name, position, "low", number, ""))
            found += [_value(name, position, "some", number, "ignored") for number in (-100, -1)]
        return found

    # -- trying

    def _try(self, proposal: _Proposal) -> None:
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
        if watch is not None:
            self._take(watch, grade, case)

    def _indexes(self) -> bool:
        """May floats become places? True where nothing is known of the reference's operations."""
        from kernellab.verifier.boundary_checks.operations import INDEXED

        watch = self._watch
        return watch is None or (bool(INDEXED & watch.calls.keys()) and any(e.op == "_to_copy" for e in watch.edges))

    def _grade(self, proposal: _Proposal, new: frozenset[Edge]) -> Grade | None:
        """What a wrong answer is; None where the proposal is for an edge alone that it does not reach."""
        if proposal.purpose is None:
            return proposal.grade
        if any(e.purpose and proposal.purpose in e.name for e in new):
            return Grade.REFUSED
        told = self.conditions or proposal.purpose == "NaN"
        return proposal.grade if told and proposal.grade is not Grade.REFUSED else None

    def _add(self, case: Case, proposal: _Proposal, grade: Grade) -> None:
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
        the reference itself is noise. Of integers that decide sizes an answer may be longer, which is told."""
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
            i: _bounds(legal_values(spec, value, self.task.domain.get(spec.name)), value, far)
            for i, (spec, value) in enumerate(zip(self.task.args, self.base.args, strict=True))
            if spec.kind is ArgKind.TENSOR and not spec.static and hasattr(value, "numel") and value.numel()
            and value.is_floating_point() and not is_float8(value)
            and self.task.domain.get(spec.name) not in ("fixed", "prob", "sorted")
        }  # fmt: skip

    def _of_elements(self, position: int, values: tuple[tuple[int, float], ...]) -> _Proposal:
        spec, value = self.task.args[position], self.base.args[position]
        low, high = _bounds(legal_values(spec, value, self.task.domain.get(spec.name)), value)
        beyond = any(not low <= number <= high for _, number in values)
        return _Proposal(("elements", position, values), Grade.REFUSED, f"{spec.name} at an edge", beyond=beyond)

    def _run(self, args: Sequence[Any]) -> Watch | None:
        try:
            return self._watched(args)
        except (KernellabError, RuntimeError):
            return None


def _in_order(proposals: list[_Proposal]) -> list[_Proposal]:
    """First what is tried whatever it reaches. Those that tell of conditions come in the same order each time, each
    argument's first one before any's second, so that two verdicts of one kernel tell of the same; the others in an
    order that no one knows. The two take turns, so that time is left for both."""
    told = [p for p in proposals if p.grade is Grade.CONDITION and p.always]
    places = Counter[int]()
    turns = []
    for p in told:
        turns.append((places[p.change[1]], p))
        places[p.change[1]] += 1
    told = [p for _, p in sorted(turns, key=lambda turn: turn[0])]
    others = [p for p in proposals if p not in told]
    secrets.SystemRandom().shuffle(others)
    others.sort(key=lambda p: (p.grade is Grade.CONDITION or p.purpose is None, not p.always, p.grade))
    found: list[_Proposal] = []
    while told or others:
        found += [*told[:1], *others[:1]]
        del others[:1], told[:1]
    return found


# -- what is proposed for one argument ---------------------------------------------------------------------------------


def _bounds(legal: Legal, value: Tensor, least: float = 32.0) -> tuple[float, float]:
    """What patterns inside the task's own values may put there: ``least`` at least, where the support has room."""
    import torch

    size = max(least, 30.0 * legal.rms)
    most = min(size, torch.finfo(value.dtype).max / 64)
    if legal.support is Support.DISCRETE:
        return min(legal.values), max(legal.values)
    return max(legal.low, -most), min(legal.high, most)


#: patterns of float arguments that stay within the task's own values, and whether they are always tried
_INSIDE = {
    "unusual row": True, "one on a grid": True,
    "constant rows": False, "grid": False, "ties": False, "zeros of both signs": False, "zero": False,
    "positive": False, "negative": False, "largest first": False, "largest last": False,
}  # fmt: skip
#: of all elements at once, where that alone reaches an edge
_FACTORS = (1 / 64, 8.0)
_SPECIAL = ("NaN", "inf", "-inf")
#: by so much positions are moved: past what 16 bits hold
_FAR = 1 << 16
#: supports whose values patterns cannot set one by one
_SHUT = (Support.PROB, Support.FIXED, Support.DISCRETE)


def _not_propagated(kind: str, name: str) -> str:
    return f"{kind} in {name} not propagated"


def _floats(name: str, position: int, value: Tensor, legal: Legal, domain: str | None) -> Iterator[_Proposal]:
    import torch

    low, high = _bounds(legal, value)
    if legal.support not in _SHUT and not legal.is_sorted:
        for kind, always in _INSIDE.items():
            yield _Proposal(_pattern(position, kind, low, high), Grade.REFUSED, f"{name} {kind} not handled", always)
        # what all elements make together (the norm of a gradient) reaches the other side of a clamp so
        smallest, largest = (float(end) for end in value.aminmax())
        for factor in _FACTORS:
            if legal.low <= smallest * factor and largest * factor <= legal.high:
                of_size = f"{name} of another size not handled"
                yield _Proposal(("scale", position, factor), Grade.REFUSED, of_size, purpose="")
    if legal.support is Support.PROB:
        yield _Proposal(_pattern(position, "one hot", 0, 1), Grade.REFUSED, f"{name} one hot not handled", True)
    if domain not in (None, "real"):
        return
    info = torch.finfo(value.dtype)
    if legal.support in (Support.UNIT, Support.NONNEGATIVE, Support.NONPOSITIVE) and not legal.is_sorted:
        # the verdict says that it holds up to these ends, which the samples come near to
        drawn = legal.support is Support.UNIT and legal.low < DRAWN.near_zero
        grade, positive = Grade.REFUSED if drawn else Grade.CONDITION, legal.support is not Support.NONPOSITIVE
        right = DrawnLimit(values="", low=info.tiny if positive else None, high=None if positive else -info.tiny)
        yield _Proposal(_pattern(position, "some", 0, 0), grade, f"0 in {name} not handled", True, True, right=right)
    nan, most = DrawnLimit(values="", not_nan=True), DrawnLimit(values="", high=info.max)
    specials = {"NaN": nan, "inf": most, "-inf": DrawnLimit(values="", low=info.min)}
    lone, words = _pattern(position, "lone NaN", 0, 0), "NaN decides"
    yield _Proposal(lone, Grade.REFUSED, f"NaN in {name}", beyond=True, purpose=words)
    for kind, right in specials.items():
        yield _Proposal(
            _pattern(position, kind, 0, 0), Grade.CONDITION, _not_propagated(kind, name), True, True,
            purpose=kind if kind == "NaN" else "inf", right=right,
        )  # fmt: skip
    rms = legal.rms if isfinite(legal.rms) else 1.0
    least = info.tiny / 16 if value.dtype == torch.float16 else info.tiny * 64  # float16's denormals are usual numbers
    huge, tiny = info.max / 64 / max(rms, 1e-30), least / max(rms, 1e-30)
    large, small = f"large {name} not handled", f"tiny {name} not handled"
    # samples that come near to zero end there; what zero itself does is asked above
    near = 0 <= low < DRAWN.near_zero * (1.0 if legal.support is Support.UNIT else rms)
    inside = DrawnLimit(values="", low=0.0 if near else low, high=high)
    usual = DrawnLimit(values="", least=rms * DRAWN.usual)
    of_all = inside.model_copy(update={"least": usual.least})
    # also all of one sign: a maximum from -1e30 shows in no other
    kinds = (("scaled", 1), ("uniform", -1), ("uniform", 1))[: 1 + (legal.low < 0) * (1 + (legal.high > 0))]
    for size, (kind, sign) in product((huge**0.5, huge), kinds):
        yield _Proposal(_pattern(position, kind, sign * size, 0), Grade.CONDITION, large, True, True, right=inside)
    for size, always in ((tiny**0.5, True), (tiny, value.dtype == torch.float16)):
        yield _Proposal(_pattern(position, "scaled", size, 0), Grade.CONDITION, small, always, True, right=usual)
    ends = (info.smallest_normal, info.max / 4)
    yield _Proposal(_pattern(position, "magnitudes", *ends), Grade.CONDITION, large, False, True, right=of_all)


def _complex(name: str, position: int, value: Tensor) -> Iterator[_Proposal]:
    """Zeros and numbers on the axes; numbers of all quadrants, not finite, large and tiny ones."""
    import torch

    yield _Proposal(_pattern(position, "some", 0, 0), Grade.REFUSED, f"0 in {name} not handled", True, True)
    # of parts of one sign, zero lies at the end of what the samples show
    apart = [float(bool((part > 0).any() and (part < 0).any())) for part in (value.imag, value.real)]
    if any(apart):
        on_axes = _pattern(position, "on axes", *apart)
        yield _Proposal(on_axes, Grade.REFUSED, f"{name} on an axis not handled", True, True)
    yield _Proposal(_pattern(position, "turned", 0, 0), Grade.CONDITION, f"{name} as drawn only", True, True)
    for kind in _SPECIAL:
        yield _Proposal(_pattern(position, kind, 0, 0), Grade.CONDITION, _not_propagated(kind, name), True, True)
    info = torch.finfo(value.dtype)
    for size, what in ((info.max / 64, "large"), (info.tiny * 64, "tiny")):
        for factor in (size**0.5, size):
            words = f"{what} {name} not handled"
            yield _Proposal(_pattern(position, "scaled", factor, 0), Grade.CONDITION, words, True, True)


def _of_range(name: str, position: int, value: Tensor, at: Range, stated: bool) -> Iterator[_Proposal]:
    """Of a mask all, none and whole rows; of integers the ends of their range, and beyond it unless one is stated."""
    if at.mask:
        for kind, number in (("low", 0), ("high", 1), ("a whole row true", 1), ("a whole row false", 0)):
            yield _Proposal(
                _pattern(position, kind, number, number), Grade.REFUSED, f"{name} as drawn only", True, beyond=at.fixed
            )
        yield _Proposal(
            _pattern(position, "uniform", 0, 1), Grade.REFUSED, f"{name} as drawn only", True, beyond=at.fixed
        )
        return
    inside = f"{name} as drawn only"
    if at.fixed:
        kind = "sorted" if at.is_sorted else "uniform"
        yield _Proposal(_pattern(position, kind, at.low, at.high), Grade.IGNORED, inside, True, beyond=True)
        if not stated and at.most >= at.high + _FAR:
            # positions, which a later call begins elsewhere
            right = DrawnLimit(values="", low=at.low, high=at.high)
            words = f"{name} in {at.low}..{at.high} only"
            yield _Proposal(_pattern(position, "moved", _FAR, 0), Grade.CONDITION, words, True, True, right=right)
    elif not at.is_sorted and not is_permutation(value):
        yield _Proposal(_pattern(position, "low", at.low, at.low), Grade.REFUSED, inside, True)
        yield _Proposal(_pattern(position, "high", at.high, at.high), Grade.REFUSED, inside, True)
        yield _Proposal(_pattern(position, "ends", at.low, at.high), Grade.REFUSED, inside)
    elif is_permutation(value) and not stated:
        yield _Proposal(_pattern(position, "uniform", at.low, at.high), Grade.CONDITION, inside, True, True)
    if at.is_sorted and not at.fixed:
        # offsets of segments, of which some are empty
        repeated = _pattern(position, "repeated", at.low, at.high)
        yield _Proposal(repeated, Grade.CONDITION, f"equal neighbours in {name} not handled", True, True)
    if stated or at.fixed or at.is_sorted or is_permutation(value):
        return
    patterns: list[tuple[str, int, int, bool]] = []
    if at.least < 0 <= at.low:
        patterns.append(("uniform", max(at.least, -at.high - 1), -1, True))
    if at.least <= 0 < at.low:
        patterns.append(("some", 0, 0, True))
    if at.most > at.high or at.least < min(at.low, -at.high - 1):
        near = (max(at.least, -(1 << 25)), min(at.most, 1 << 25))
        patterns += [("uniform", at.least, at.most, True), ("ends", at.least, at.most, True), ("uniform", *near, False)]
    for kind, low, high, always in patterns:
        yield _Proposal(
            _pattern(position, kind, low, high), Grade.CONDITION, f"{name} in {at.low}..{at.high} only", always, True,
            right=DrawnLimit(values="", low=at.low, high=at.high),
        )  # fmt: skip


def _value(name: str, position: int, kind: str, number: int, purpose: str) -> _Proposal:
    """One number throughout, or in some places, tried where the reference's operations are there for it alone."""
    every = _pattern(position, kind, number, number)
    return _Proposal(every, Grade.REFUSED, f"{name} as drawn only", False, True, purpose)


def _pattern(position: int, kind: str, low: float, high: float) -> tuple[Any, ...]:
    return ("pattern", position, kind, secrets.randbits(31), low, high)
