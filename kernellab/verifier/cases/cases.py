"""Which inputs a candidate meets: sizes, families, seeds."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.task import ArgKind, Task, small_sizes
from kernellab.task.dtypes import is_inexact, scaled, wide
from kernellab.task.sample.inputs import Family, families, redraw
from kernellab.task.sample.sizes import input_bytes, runs_at
from kernellab.verifier.cases import answers, device
from kernellab.verifier.cases.changes import changed, in_words
from kernellab.verifier.cases.extents import (
    Sizes,
    asked,
    at_ends,
    at_numbers,
    beyond_tiles,
    more_sizes,
    of_numbers,
    secret_sizes,
)
from kernellab.verifier.cases.input_specs import forms_of
from kernellab.verifier.cases.last_elements import decided_last
from kernellab.verifier.compare.compare import Limits, Reference
from kernellab.verifier.protocol.rules import CAPS, CORRECT, DRAWN, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: families some of whose rows are of equal numbers
EQUAL = (Family.STRUCTURED, Family.MIXED, Family.EDGES)
#: families in which sums may cancel, or a row be constant
CANCELLING = (Family.STRUCTURED, Family.MIXED, Family.SCALED, Family.EDGES)
#: elements of an output of which one decides, and the share of what a ramp may lose that sums of few other terms may
_FEW, _OTHER_ROUNDINGS = 8, 1 / 8
#: elements of an output of which two that nearly cancel are more than tau allows
_SOME = 4096
#: tile sizes whose multiples and neighbours the hidden sizes visit
_AROUND = (16, 64)

#: sizes at which a failing kernel is tried: single elements, whole tiles and their neighbours
PROBES = (1, 2, 8, 15, 16, 29, 32, 33, 64, 65)

#: where a model's parameters lie among the statics that its constructor gave
_BUILT = ("built",)

#: values of arguments marked static that a worker has met, by position, shape and dtype
Statics = dict[tuple[Any, ...], Any]
_statics: ContextVar[Statics | None] = ContextVar("statics", default=None)


@dataclass(frozen=True)
class Case:
    """One set of inputs: sizes of the Dims, family, seed. The arguments and the reference's answer are made once."""

    task: Task
    sizes: tuple[tuple[str, int], ...]
    family: Family
    seed: int
    double: bool = True
    #: what is done to the drawn arguments, as :func:`kernellab.verifier.cases.changes.changed` has it
    change: tuple[Any, ...] = ()
    device: str = field(default_factory=device.current)
    #: arguments that stand in for the drawn ones, by position; None leaves what was drawn
    held: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    #: what :func:`static_held` has held when this was made
    statics: Statics | None = field(default_factory=_statics.get, compare=False, repr=False)

    @cached_property
    def args(self) -> tuple[Any, ...]:
        found = self._drawn()
        return tuple(d if h is None else h for d, h in zip(found, self.held, strict=True)) if self.held else found

    def _drawn(self) -> tuple[Any, ...]:
        drawn = self._sample
        if self.statics is None:
            return changed(drawn, self.change)
        # a change is none of theirs either
        return _held(self.task, changed(_held(self.task, drawn, self.statics), self.change), self.statics)

    @cached_property
    def _sample(self) -> tuple[Any, ...]:
        return make_args(self.task, dict(self.sizes), self.family, self.seed, self.device)

    def with_change(self, change: tuple[Any, ...]) -> Case:
        """The same case with a change to its arguments, which are not drawn again."""
        return self._sharing(replace(self, change=change), "_sample")

    def judged_as(self, family: Family) -> Case:
        """The same case, judged by the limits of ``family``."""
        return self._sharing(replace(self, family=family), "_sample", "args", "_native", "references")

    def _sharing(self, other: Case, *names: str) -> Case:
        """``other`` with what was made of this case by ``names``."""
        vars(other).update({name: vars(self)[name] for name in names if name in vars(self)})
        return other

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        return answers.references(self.task, self.args, self.double, self._native[0])

    @property
    def native(self) -> tuple[Tensor, ...]:
        """The reference's outputs at the declared dtype."""
        return self._native[0]

    @property
    def is_declared(self) -> bool:
        """Are its sizes those that are timed?"""
        return dict(self.sizes) == self.task.module().default_sizes()

    @property
    def asked(self) -> tuple[Reference, ...]:
        """The references, where somebody has asked for them."""
        found: tuple[Reference, ...] = vars(self).get("references", ())
        return found

    def in_double(self) -> Case:
        """The case with float64's answers; what is drawn and answered by now is not made again."""
        if self.double:
            return self
        return self._sharing(replace(self, double=True), "args", "_native")

    def answered(self, args: tuple[Any, ...], native: tuple[Tensor, ...], seconds: float) -> Case:
        """The same case with arguments that were made elsewhere, and what the reference has given for them."""
        other = replace(self)
        vars(other).update(args=args, _native=(native, seconds))
        return other

    def given(self, args: tuple[Any, ...]) -> Case:
        """The same case with other arguments, made elsewhere."""
        other = replace(self, held=args)
        vars(other)["args"] = args
        return other

    def exact(self) -> Case:
        """The same case as if the reference's answers at the declared dtype had no error: float64 gives the same."""
        found = tuple(
            Reference(n, wide(n), nudged=wide(n)) if self.double and is_inexact(n) else Reference(n, None)
            for n in self.native
        )
        other = self._sharing(replace(self, double=True), "args", "_native")
        vars(other).update(references=found, nudged=found)
        return other

    @property
    def reference_seconds(self) -> float:
        """What the reference took for these arguments."""
        return self._native[1]

    @cached_property
    def _native(self) -> tuple[tuple[Tensor, ...], float]:
        args = self.args
        device.synchronize()
        start = time.perf_counter()
        outputs = answers.run_reference(self.task, args)
        device.synchronize()
        return outputs, time.perf_counter() - start

    @cached_property
    def nudged(self) -> tuple[Reference, ...]:
        """The references with what shows how far rounding alone may lead:

        - ``nudged``: float64's answer at inputs moved by at most a unit in the last place (where factors may be TF32's,
          by what that rounds off);
        - ``summed``: the size of what was added up, where sums may cancel (:data:`CANCELLING`, or few outputs);
        - ``either``: float64's answers with its sums in other orders;
        - ``tied``: its answers with equal elements in another order.

        Only asked for when a kernel is about to be refused: it costs another run in float64, or a few.
        """
        found = self._moved()
        return tuple(
            replace(r, either=None if r.double is None else partial(self._either, i), tied=partial(self._by_ties, i))
            for i, r in enumerate(found)
        )

    def _either(self, output: int) -> list[Tensor]:
        return [wide(run[output]) for run in self._reordered]

    def with_ties(self, output: int) -> Reference:
        """The reference of an output with its answers under another order of equal elements."""
        return replace(self.references[output], tied=partial(self._by_ties, output))

    def _by_ties(self, output: int) -> list[Tensor]:
        found = (run[output] for run in self._tied)
        # float64 has not all of int64
        return [o.double() if o.is_floating_point() else o for o in found]

    @cached_property
    def _tied(self) -> list[tuple[Tensor, ...]]:
        return answers.tied(self.task, self.args, self.references)

    @cached_property
    def _reordered(self) -> list[tuple[Tensor, ...]]:
        return answers.reordered(self.task, self.args, self.references, self.seed)

    def _moved(self) -> tuple[Reference, ...]:
        found = answers.nudged(self.task, self.args, self.references, self.seed)
        few, some = (all(r.native.numel() <= most for r in found) for most in (_FEW, _SOME))
        if found is self.references or not (some or self.family in CANCELLING):
            return found
        structured = self.family is Family.STRUCTURED
        sizes = self._summed() if some or structured else None
        if (few or self.family in CANCELLING) and (sizes is None or not structured):
            found = answers.rounded(self.task, self.args, found, self.seed)
        if sizes is None:
            return found
        return tuple(
            replace(r, summed=n * (1.0 if structured else self._lost(r.native)))
            for r, n in zip(found, sizes, strict=True)
        )

    def _lost(self, native: Tensor) -> float:
        """The share of what a ramp may lose that sums of other terms may: a ramp's are rounded the same way, those of
        others cancel, the more of them the more; and terms of narrow outputs are added in float32. A sum of 976 by
        atomics was off by 1.6e-5; of 131,072 terms rounded to float16 a whole eighth accepted 12 of 12 sums, this 2."""
        import torch

        numbers = [a.numel() for a in self.args if isinstance(a, torch.Tensor) and a.is_floating_point()]
        terms = max(numbers, default=1) / max(native.numel(), 1)
        fewer = min(1.0, max(0.1, math.sqrt(1024 / max(terms, 1))))
        narrow = ERROR.floor["float32"] / Limits.of(str(native.dtype).removeprefix("torch.")).floor
        return _OTHER_ROUNDINGS * fewer * min(1.0, narrow)

    def _summed(self) -> tuple[Tensor, ...] | None:
        """The reference in float64 of the inputs' magnitudes; None where it is not homogeneous (made of products and
        sums), for there it says nothing of what was added up.

        A ramp's sums cancel to nothing after having grown, and what they were rounded to on the way no nudge of the
        inputs shows: the error of a sum is bounded by the magnitudes that it adds (Higham, eq. 4.4).
        """
        import torch

        def of(change: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...] | None:
            return answers.in_double(self.task, [
                change(a) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in self.args
            ])  # fmt: skip

        # of float8, torch computes no products
        one, two = of(torch.abs), of(lambda a: scaled(a.abs(), 2.0))
        if one is None or two is None or [o.shape for o in one] != [r.native.shape for r in self.references]:
            return None
        for a, b in zip(one, two, strict=True):
            if not bool(a.isfinite().all()) or not any(torch.equal(a * 2.0**k, b) for k in (1, 2, 3)):
                return None
            if not bool(a.any()):
                # what cancels even so says nothing of its size
                return None
        return tuple(o.double().abs() for o in one)

    @property
    def equal_terms(self) -> float:
        """What a plain sum in float32 may lose of a row of equal numbers, as a share: they are all rounded the same way
        until the sum is twice as large, so that errors add up. At most n/2 units in the last place (Higham, eq. 4.4) of
        the n along the longest extent; a quarter of that is counted."""
        import torch

        extents = [n for a in self.args if isinstance(a, torch.Tensor) and a.is_floating_point() for n in a.shape]
        return max(extents, default=0) * torch.finfo(torch.float32).eps / 8

    @cached_property
    def hidden(self) -> float:
        """How many times larger than its spread the mean of a row is, root mean square over the rows of the input where
        it is the most. The sum of a row is rounded relative to the mean, and what is left without it is the spread."""
        import torch

        most = 0.0
        for value in self.args:
            is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
            if is_float and value.dim() > 1 and value.shape[-1] >= ERROR.row:
                rows = value.double()
                spread, mean = torch.std_mean(rows, -1, correction=0)
                ratios = (mean / spread)[spread > torch.finfo(value.dtype).eps * mean.abs()]
                most = max(most, float(ratios.square().mean().sqrt()) if ratios.numel() else 0.0)
        return most

    @property
    def words(self) -> str:
        sizes = ", ".join(f"{k}={v}" for k, v in self.sizes)
        names = [spec.name for spec in self.task.args]
        change = f", {in_words(names, lambda at: self.args[at].shape, self.change)}" if self.change else ""
        kind = "the task's own" if self.family is Family.OWN else self.family.value
        return f"{sizes + ', ' if sizes else ''}{kind} inputs{change}"


@contextmanager
def static_held() -> Iterator[None]:
    """Arguments that a function task marks static keep their values inside, for each shape that they have.

    A kernel may pack them once; the first values that it meets stay for as long as its worker lives.
    """
    token = _statics.set({})
    try:
        yield
    finally:
        _statics.reset(token)


def hold_parameters(values: tuple[Tensor, ...]) -> None:
    """A model's parameters and buffers are these in all cases from now on, inside of :func:`static_held`."""
    statics = _statics.get()
    assert statics is not None
    statics[_BUILT] = values


def _held(task: Task, args: tuple[Any, ...], statics: Statics) -> tuple[Any, ...]:
    import torch

    def value(position: int, drawn: Any) -> Any:
        spec = task.args[position]
        if _BUILT in statics and spec.kind in (ArgKind.PARAMETER, ArgKind.BUFFER):
            built = statics[_BUILT]
            return built[position - len(task.args) + len(built)].to(drawn.device)
        # a model's parameters are loaded into the candidate again for each call, and it sees this by their versions
        if not spec.static or spec.kind is not ArgKind.TENSOR or not isinstance(drawn, torch.Tensor):
            return drawn
        # whole numbers may be places in another argument
        beside = () if drawn.is_floating_point() else shapes
        return statics.setdefault((position, tuple(drawn.shape), drawn.dtype, *beside), drawn)

    shapes = tuple(tuple(a.shape) for a in args if isinstance(a, torch.Tensor))
    return tuple(value(i, drawn) for i, drawn in enumerate(args))


def make_args(
    task: Task, sizes: Mapping[str, int], family: Family | str, seed: int, where: str = "cpu"
) -> tuple[Any, ...]:
    """The arguments of a case on the device ``where``; the same seed gives the same arguments there."""
    family, seed = Family(family), seed % (1 << 31)
    if family is Family.OWN:
        return device.sample(task.module(), dict(sizes) or None, seed, where)
    known = forms_of(task, tuple(sizes.items()), where)
    args = known.blank()
    if args is None:
        args = device.sample(task.module(), dict(sizes) or None, seed, where)
    return redraw(task, args, family, seed, legal=known.legal)


def smoke_case(task: Task, interpreted: bool = False) -> Case:
    """The smallest shape that is not empty."""
    sizes = next((s for s in small_sizes(task) if 0 not in s.values()), {})
    return case(task, _shrunk(task, sizes, interpreted), Family.OWN)


def correct_cases(
    task: Task, interpreted: bool = False, numbers: Sequence[int] = (), sizes: Sequence[Sizes] = ()
) -> list[Case]:
    """What the stage correct compares, the declared size with the task's own inputs last: every family that the task
    allows at a small size; hidden sizes of the Dims, each with another family; ``sizes`` that a caller asks for; sizes
    at the ``numbers`` that the source names and at the ends of the ranges.
    """
    full = _shrunk(task, task.module().default_sizes(), interpreted)
    legal = families(task)
    if interpreted:
        # a call takes seconds there, and the rows of a mixed batch are of these kinds
        legal = tuple(f for f in legal if f not in (Family.UNIFORM, Family.STRUCTURED, Family.HEAVY))
    declared = case(task, full, Family.OWN)
    if not task.dims:
        return [declared, *_other_families(task, full, legal)]
    hidden = _hidden(task, interpreted)
    small = _small(task, full, hidden, interpreted)
    cases = [
        *_families_at(task, small, legal, own=small != full),
        *_at_hidden_sizes(task, hidden, legal, small),
        *(case(task, s, of_all(legal)) for s in asked(task, full, sizes)),
    ]
    if interpreted:
        cases += [case(task, s, of_all(legal)) for s in beyond_tiles(task, numbers)]
    else:
        cases += _other_families(task, full, legal) if small != full else []
        cases += _at_secret_sizes(task, full, legal, numbers)
    return [*cases, declared]


def _families_at(task: Task, sizes: Mapping[str, int], legal: Sequence[Family], own: bool) -> list[Case]:
    """All ``legal`` families at ``sizes``, the task's own first, if that is wanted."""
    first = [case(task, sizes, Family.OWN)] if own and Family.OWN in legal else []
    return first + [case(task, sizes, f) for f in legal if f is not Family.OWN]


def _at_hidden_sizes(
    task: Task, hidden: Sequence[Mapping[str, int]], legal: Sequence[Family], small: Mapping[str, int]
) -> list[Case]:
    """Some of the ``hidden`` sizes, evenly taken, with the families in turn."""
    step = max(1, len(hidden) // CORRECT.hidden_sizes)
    return [case(task, s, legal[(i + 1) % len(legal)]) for i, s in enumerate(hidden[::step]) if s != small]


def _at_secret_sizes(
    task: Task, full: Mapping[str, int], legal: Sequence[Family], numbers: Sequence[int]
) -> list[Case]:
    """Sizes that a kernel may treat as special, looked at in the declared dtype: drawn by chance, next to the
    ``numbers`` of the source, at the ends of the Dims' ranges."""
    by_chance = secret_sizes(task, full, input_bytes(task, full))
    ends = [*of_numbers(task, full, numbers), *at_ends(task, full)]
    return [
        *(glance(case(task, s, of_all(legal))) for s in by_chance),
        # of the task's inputs: in a batch of rows of all sizes a small constant is not seen
        *(glance(case(task, s, Family.OWN)) for s in at_numbers(task, full, numbers)),
        *(glance(decided_last(case(task, s, of_all(legal)))) for s in ends),
    ]


def more_cases(task: Task) -> Iterator[Case]:
    """Cases of the task's own inputs at sizes from all over the Dims' ranges, without end; none without Dims."""
    full = task.module().default_sizes()
    for sizes in more_sizes(task, full, input_bytes(task, full)) if task.dims else ():
        yield glance(case(task, sizes, Family.OWN))


def as_long_as_time_allows(task: Task, known: Sequence[tuple[Case, float]]) -> Iterator[Case]:
    """For an interpreter: each Dim in turn as long as its range and some seconds allow, by what the longest of the
    cases ``known`` took, whose other Dims are short; a loop that ends too early shows there."""
    for name in [d.name for d in task.dims][: DRAWN.ends]:
        of = [(dict(one.sizes), seconds) for one, seconds in known]
        sizes, seconds = max(of, key=lambda one: (one[0][name], -input_bytes(task, one[0])))
        end = next(d.max for d in task.dims if d.name == name)
        while True:
            longer = {**sizes, name: min(end, int(sizes[name] * DRAWN.interpreted_long / max(seconds, 1e-3)))}
            fits = longer[name] > 1.2 * sizes[name] and input_bytes(task, longer) <= DRAWN.end_bytes
            if not fits or not runs_at(task, tuple(longer.items())):
                break
            began = time.monotonic()
            yield case(task, longer, of_all(families(task)))
            sizes, seconds = longer, time.monotonic() - began


def _other_families(task: Task, full: Mapping[str, int], legal: Sequence[Family]) -> list[Case]:
    """The families other than the task's own at the size that is timed, where a kernel may do otherwise than at small
    ones: all of them, or of much data those that find the most."""
    first = (Family.MIXED, Family.LARGE, Family.OFFSET, Family.EDGES, Family.NORMAL)
    others = [f for f in dict.fromkeys((*first, *legal)) if f in legal and f is not Family.OWN]
    size = input_bytes(task, full)
    if size > CORRECT.family_bytes:
        many = CORRECT.large_families if size <= CORRECT.large_bytes else CORRECT.huge_families
        others = others[:many]
    found = [case(task, full, f) for f in others]
    return found if size <= CORRECT.large_bytes else [glance(c) for c in found]


def of_all(legal: Sequence[Family]) -> Family:
    """The family of which one batch tells the most."""
    return next((f for f in (Family.MIXED, Family.NORMAL) if f in legal), Family.OWN)


def glance(found: Case) -> Case:
    """A case compared with the reference at the declared dtype; in float64 only where that is not enough."""
    return found._sharing(replace(found, double=False), "_sample", "args", "_native")


def _hidden(task: Task, interpreted: bool) -> list[dict[str, int]]:
    """Small sizes other than the task's own."""
    full = _shrunk(task, task.module().default_sizes(), interpreted)
    return [_shrunk(task, s, interpreted) for s in small_sizes(task, _AROUND, 8) if s != full]


def _small(task: Task, full: dict[str, int], hidden: list[dict[str, int]], interpreted: bool) -> dict[str, int]:
    """The size that the families run at: the full one, where it is not large, else one that is neither tiny nor large,
    of several tiles and a rest."""
    if input_bytes(task, full) <= CORRECT.family_bytes and not interpreted:
        return full
    return hidden[-1] if hidden else full


def declared_case(task: Task, interpreted: bool = False) -> Case:
    """A new case of the task's own inputs at its declared sizes."""
    return case(task, _shrunk(task, task.module().default_sizes(), interpreted), Family.OWN)


def small_case(task: Task, interpreted: bool = False) -> Case:
    """A new case at the size that the families run at."""
    full = _shrunk(task, task.module().default_sizes(), interpreted)
    small = _small(task, full, _hidden(task, interpreted), interpreted) if task.dims else full
    return case(task, small, Family.OWN)


def drawn_base(task: Task, interpreted: bool = False, most: int = DRAWN.case_bytes) -> Case:
    """A case of the task's own inputs at a size at which many others are tried: of several rows and little data, of at
    most so many bytes where the Dims allow."""
    full = _shrunk(task, task.module().default_sizes(), interpreted)
    few = {d.name: max(d.min, min(d.max, 7)) for d in task.dims}
    if interpreted and few and runs_at(task, tuple(few.items())):
        return case(task, few, Family.OWN)
    fitting = [
        s for s in (full, *_hidden(task, interpreted)) if task.dims and 0 not in s.values()
        and input_bytes(task, s) <= most
    ]  # fmt: skip
    return case(task, max(fitting, key=lambda s: input_bytes(task, s), default=full), Family.OWN)


def aligned_and_ragged(task: Task, limit_bytes: int = CORRECT.family_bytes) -> list[tuple[str, Case]]:
    """Pairs of sizes that tell an edge error from others: exact multiples of 64, and just next to them."""
    if not task.dims:
        return []
    found = []
    for kind, offset in (("aligned", 0), ("ragged", -1), ("ragged", 1)):
        for base in (64, 128, 256):
            sizes = {d.name: min(max(base + offset, d.min), d.max) for d in task.dims}
            if input_bytes(task, sizes) <= limit_bytes and runs_at(task, tuple(sizes.items())):
                found.append((kind, case(task, sizes, Family.OWN)))
                break
    return found


def whole_near(task: Task, failing: Case, limit_bytes: int = CORRECT.family_bytes) -> Case | None:
    """The failing case at its nearest multiples of 64, not below where ranges allow; None: no other, or too large."""
    sizes = dict(failing.sizes)
    for dim in task.dims:
        up = -(-sizes[dim.name] // 64) * 64
        sizes[dim.name] = up if up <= dim.max else max(up - 64, dim.min)
    fits = input_bytes(task, sizes) <= limit_bytes and runs_at(task, tuple(sizes.items()))
    return case(task, sizes, Family.OWN) if fits and tuple(sizes.items()) != failing.sizes else None


def probes(task: Task, failing: Case) -> Iterator[Case]:
    """Small cases that tell where a failure begins: every Dim at one size, then each by itself next to a multiple of
    64 while the others are one; of another family than the usual one, the failing sizes in that."""
    if failing.family is not Family.OWN:
        yield case(task, dict(failing.sizes), Family.OWN)
    seen: set[tuple[tuple[str, int], ...]] = {failing.sizes}
    whole = {d.name: min(max(64, d.min), d.max) for d in task.dims}
    alike = [{d.name: min(max(n, d.min), d.max) for d in task.dims} for n in PROBES]
    single = [whole | {d.name: min(max(33, d.min), d.max)} for d in task.dims] if len(task.dims) > 1 else []
    for sizes in (*alike, *single):
        key = tuple(sizes.items())
        if key not in seen and input_bytes(task, sizes) <= CORRECT.family_bytes and runs_at(task, key):
            seen.add(key)
            yield case(task, sizes, Family.OWN)


def public(task: Task, interpreted: bool = False) -> Case | None:
    """The task's own inputs at one small size and one seed, which are no secret; None where they are large."""
    for extent in (8,) if interpreted else (33, 8):
        sizes = {d.name: min(max(extent, d.min), d.max) for d in task.dims}
        fits = input_bytes(task, sizes or None) <= CORRECT.family_bytes
        if fits and (not sizes or runs_at(task, tuple(sizes.items()))):
            return Case(task, tuple(sizes.items()), Family.OWN, 0)
    return None


def has_answer(case: Case) -> bool:
    """Does the reference take the case? A matrix of equal rows has no inverse, and indices of one table may lie beyond
    the end of another."""
    try:
        return bool(case.references)
    except TaskError:
        return False


def case(task: Task, sizes: Mapping[str, int], family: Family) -> Case:
    return Case(task, tuple(sizes.items()), family, secrets.randbits(31))


def _shrunk(task: Task, sizes: Mapping[str, int], interpreted: bool) -> dict[str, int]:
    """Sizes small enough for an interpreter: edges are kept, elements and Dims are capped."""
    sizes = dict(sizes)
    if not interpreted or not task.dims:
        return sizes
    limit = CAPS.interpreter_dim
    while True:
        tried = {d.name: max(d.min, min(sizes[d.name], limit + (sizes[d.name] % 7))) for d in task.dims}
        if limit <= 8 or input_bytes(task, tried) <= 4 * CAPS.interpreter_elements:
            return tried
        limit //= 2
