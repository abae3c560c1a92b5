"""Input cases for a candidate: sizes, families and seeds."""

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
from kernellab.sandbox.caps import CAPS
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
    at_pairs,
    beyond_tiles,
    more_sizes,
    of_numbers,
    secret_sizes,
)
from kernellab.verifier.cases.input_specs import forms_of
from kernellab.verifier.cases.last_elements import decided_last
from kernellab.verifier.compare.compare import Limits, Reference
from kernellab.verifier.protocol.rules import CORRECT, DRAWN, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: Families in which some rows consist of equal numbers.
EQUAL = (Family.STRUCTURED, Family.MIXED, Family.EDGES)
#: Families in which sums can cancel or a row can be constant.
CANCELLING = (Family.STRUCTURED, Family.MIXED, Family.SCALED, Family.EDGES)
#: Largest output that counts as few elements, and the share of a ramp's rounding loss allowed for sums of other terms.
_FEW, _OTHER_ROUNDINGS = 8, 1 / 8
#: Largest output in which two nearly cancelled elements exceed tau.
_SOME = 4096
#: Tile sizes; the hidden sizes include their multiples and neighbours.
_AROUND = (16, 64)

#: Sizes at which a failing kernel is tried: single elements, whole tiles and their neighbours.
PROBES = (1, 2, 8, 15, 16, 29, 32, 33, 64, 65)

#: Key of a model's constructor parameters in the statics.
_BUILT = ("built",)

#: Values of static arguments that a worker has received, by position, shape and dtype.
Statics = dict[tuple[Any, ...], Any]
_statics: ContextVar[Statics | None] = ContextVar("statics", default=None)


@dataclass(frozen=True)
class Case:
    """One set of inputs: Dim sizes, family, seed. The arguments and the reference's outputs are computed once."""

    task: Task
    sizes: tuple[tuple[str, int], ...]
    family: Family
    seed: int
    double: bool = True
    #: Change applied to the drawn arguments; see :func:`kernellab.verifier.cases.changes.changed`.
    change: tuple[Any, ...] = ()
    device: str = field(default_factory=device.current)
    #: Arguments that replace the drawn ones, by position; None keeps the drawn argument.
    held: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    #: Values held by :func:`static_held` when this case was created.
    statics: Statics | None = field(default_factory=_statics.get, compare=False, repr=False)

    @cached_property
    def args(self) -> tuple[Any, ...]:
        """The arguments, with replacements and the change applied."""
        drawn = self._drawn()
        return tuple(d if h is None else h for d, h in zip(drawn, self.held, strict=True)) if self.held else drawn

    def _drawn(self) -> tuple[Any, ...]:
        drawn = self._sample
        if self.statics is None:
            return changed(drawn, self.change)
        # A change does not apply to static arguments.
        return _held(self.task, changed(_held(self.task, drawn, self.statics), self.change), self.statics)

    @cached_property
    def _sample(self) -> tuple[Any, ...]:
        return make_args(self.task, dict(self.sizes), self.family, self.seed, self.device)

    def with_change(self, change: tuple[Any, ...]) -> Case:
        """Return the same case with a change to its arguments, without drawing them again."""
        return self._sharing(replace(self, change=change), "_sample")

    def judged_as(self, family: Family) -> Case:
        """Return the same case, judged by the limits of ``family``."""
        return self._sharing(replace(self, family=family), "_sample", "args", "_native", "references")

    def _sharing(self, other: Case, *names: str) -> Case:
        """Copy the cached values ``names`` of this case to ``other`` and return it."""
        vars(other).update({name: vars(self)[name] for name in names if name in vars(self)})
        return other

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """The reference's outputs in the declared dtype and in float64."""
        return answers.references(self.task, self.args, self.double, self._native[0])

    @property
    def native(self) -> tuple[Tensor, ...]:
        """The reference's outputs at the declared dtype."""
        return self._native[0]

    @property
    def is_declared(self) -> bool:
        """Whether the sizes are the declared ones, which are timed."""
        return dict(self.sizes) == self.task.module().default_sizes()

    @property
    def asked(self) -> tuple[Reference, ...]:
        """The references if computed already, else an empty tuple."""
        references: tuple[Reference, ...] = vars(self).get("references", ())
        return references

    def in_double(self) -> Case:
        """Return the case with float64 answers; values that are cached already are reused."""
        if self.double:
            return self
        return self._sharing(replace(self, double=True), "args", "_native")

    def answered(self, args: tuple[Any, ...], native: tuple[Tensor, ...], seconds: float) -> Case:
        """Return the same case with arguments made elsewhere and the reference's outputs for them."""
        new_case = replace(self)
        vars(new_case).update(args=args, _native=(native, seconds))
        return new_case

    def given(self, args: tuple[Any, ...]) -> Case:
        """Return the same case with other arguments, made elsewhere."""
        new_case = replace(self, held=args)
        vars(new_case)["args"] = args
        return new_case

    def timed(self) -> Case:
        """Return the same case with the reference's seconds, and without what was drawn and computed for it."""
        new_case = replace(self)
        vars(new_case)["_native"] = ((), self.reference_seconds)
        return new_case

    def exact(self) -> Case:
        """Return the same case as if the reference's outputs in the declared dtype were exact in float64."""
        references = tuple(
            Reference(n, wide(n), nudged=wide(n)) if self.double and is_inexact(n) else Reference(n, None)
            for n in self.native
        )
        exact_case = self._sharing(replace(self, double=True), "args", "_native")
        vars(exact_case).update(references=references, nudged=references)
        return exact_case

    @property
    def reference_seconds(self) -> float:
        """Seconds that the reference took for these arguments."""
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
        """The references, with bounds on the effect of rounding:

        - ``nudged``: float64 answer at inputs moved by at most one unit in the last place (where factors may be TF32,
          by the TF32 rounding);
        - ``summed``: magnitude of the summed terms, where sums can cancel (:data:`CANCELLING`, or few outputs);
        - ``either``: float64 answers with the sums in other orders;
        - ``tied``: answers with equal elements in another order.

        Used only before a kernel is refused, because it costs one or more further float64 runs.
        """
        references = self._moved()
        return tuple(
            replace(r, either=None if r.double is None else partial(self._either, i), tied=partial(self._by_ties, i))
            for i, r in enumerate(references)
        )

    def _either(self, output: int) -> list[Tensor]:
        return [wide(run[output]) for run in self._reordered]

    def with_ties(self, output: int) -> Reference:
        """Return the reference of an output with its answers for other orders of equal elements."""
        return replace(self.references[output], tied=partial(self._by_ties, output))

    def _by_ties(self, output: int) -> list[Tensor]:
        outputs = (run[output] for run in self._tied)
        # float64 cannot represent all int64 values.
        return [o.double() if o.is_floating_point() else o for o in outputs]

    @cached_property
    def _tied(self) -> list[tuple[Tensor, ...]]:
        return answers.tied(self.task, self.args, self.references)

    @cached_property
    def _reordered(self) -> list[tuple[Tensor, ...]]:
        return answers.reordered(self.task, self.args, self.references, self.seed)

    def _moved(self) -> tuple[Reference, ...]:
        references = answers.nudged(self.task, self.args, self.references, self.seed)
        if self.family in EQUAL and references is not self.references:
            references = answers.piled(self.task, self.args, references)
        has_few, has_some = (all(r.native.numel() <= most for r in references) for most in (_FEW, _SOME))
        if references is self.references or not (has_some or self.family in CANCELLING):
            return references
        structured = self.family is Family.STRUCTURED
        sizes = self._summed() if has_some or structured else None
        if (has_few or self.family in CANCELLING) and (sizes is None or not structured):
            references = answers.rounded(self.task, self.args, references, self.seed)
        if sizes is None:
            return references
        return tuple(
            replace(r, summed=n * (1.0 if structured else self._lost(r.native)))
            for r, n in zip(references, sizes, strict=True)
        )

    def _lost(self, native: Tensor) -> float:
        """Return the share of a ramp's rounding loss allowed for sums of other terms. Errors of a ramp add up; errors
        of other terms cancel, more so with more terms; narrow outputs accumulate in float32. A sum of 976 terms by
        atomics was off by 1.6e-5. For 131,072 terms rounded to float16, a share of 1/8 accepted 12 of 12 sums; this
        accepts 2."""
        import torch

        numbers = [a.numel() for a in self.args if isinstance(a, torch.Tensor) and a.is_floating_point()]
        terms = max(numbers, default=1) / max(native.numel(), 1)
        fewer = min(1.0, max(0.1, math.sqrt(1024 / max(terms, 1))))
        narrow = ERROR.floor["float32"] / Limits.of(str(native.dtype).removeprefix("torch.")).floor
        return _OTHER_ROUNDINGS * fewer * min(1.0, narrow)

    def _summed(self) -> tuple[Tensor, ...] | None:
        """Return the float64 reference of the inputs' magnitudes, or None if the reference is not homogeneous (products
        and sums only), because the magnitudes then say nothing about the summed terms.

        A ramp's sums grow and then cancel. Nudging the inputs does not show the rounding on the way, but the magnitudes
        of the terms bound the error of a sum (Higham, eq. 4.4).
        """
        import torch

        def of(change: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...] | None:
            return answers.in_double(self.task, [
                change(a) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in self.args
            ])  # fmt: skip

        # torch computes no float8 products.
        magnitudes, doubled = of(torch.abs), of(lambda a: scaled(a.abs(), 2.0))
        if (
            magnitudes is None
            or doubled is None
            or [o.shape for o in magnitudes] != [r.native.shape for r in self.references]
        ):
            return None
        for a, b in zip(magnitudes, doubled, strict=True):
            if not bool(a.isfinite().all()) or not any(torch.equal(a * 2.0**k, b) for k in (1, 2, 3)):
                return None
            if not bool(a.any()):
                # Magnitudes that cancel as well do not show the size of the terms.
                return None
        return tuple(o.double().abs() for o in magnitudes)

    @property
    def equal_terms(self) -> float:
        """Share that a plain float32 sum of equal numbers can lose. All terms are rounded the same way until the sum
        doubles, so errors add up: at most n/2 units in the last place (Higham, eq. 4.4) for n terms along the longest
        extent. A quarter of this bound is used, as no partial sum but the last ones is as large as the sum. Where one
        term is larger than the others together, all of them are: see :func:`kernellab.verifier.cases.answers.piled`."""
        import torch

        extents = [n for a in self.args if isinstance(a, torch.Tensor) and a.is_floating_point() for n in a.shape]
        return max(extents, default=0) * torch.finfo(torch.float32).eps / 8

    @cached_property
    def hidden(self) -> float:
        """Ratio of a row's mean to its spread, as the root mean square over rows, for the input with the largest ratio.
        The sum of a row is rounded relative to its mean; subtracting the mean leaves the spread."""
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
        """A description of the case: sizes, family, change."""
        sizes = ", ".join(f"{k}={v}" for k, v in self.sizes)
        names = [spec.name for spec in self.task.args]
        change = f", {in_words(names, lambda at: self.args[at].shape, self.change)}" if self.change else ""
        kind = "the task's own" if self.family is Family.OWN else self.family.value
        return f"{sizes + ', ' if sizes else ''}{kind} inputs{change}"


@contextmanager
def static_held() -> Iterator[None]:
    """Hold the values of static arguments of a function task inside the context, for each shape.

    A kernel can pack them once; the first values it receives stay for the lifetime of its worker.
    """
    token = _statics.set({})
    try:
        yield
    finally:
        _statics.reset(token)


def hold_parameters(values: tuple[Tensor, ...]) -> None:
    """Use these model parameters and buffers in all later cases, inside :func:`static_held`."""
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
        # The model's parameters are reloaded into the candidate for each call, which it detects by their versions.
        if not spec.static or spec.kind is not ArgKind.TENSOR or not isinstance(drawn, torch.Tensor):
            return drawn
        # Integers can be indices into another argument.
        shape_key = () if drawn.is_floating_point() else shapes
        return statics.setdefault((position, tuple(drawn.shape), drawn.dtype, *shape_key), drawn)

    shapes = tuple(tuple(a.shape) for a in args if isinstance(a, torch.Tensor))
    return tuple(value(i, drawn) for i, drawn in enumerate(args))


def make_args(
    task: Task, sizes: Mapping[str, int], family: Family | str, seed: int, where: str = "cpu"
) -> tuple[Any, ...]:
    """Return the arguments of a case on the device ``where``; the same seed gives the same arguments there."""
    family, seed = Family(family), seed % (1 << 31)
    if family is Family.OWN:
        return device.sample(task.module(), dict(sizes) or None, seed, where)
    spec = forms_of(task, tuple(sizes.items()), where)
    args = spec.blank()
    if args is None:
        args = device.sample(task.module(), dict(sizes) or None, seed, where)
    return redraw(task, args, family, seed, legal=spec.legal)


def smoke_case(task: Task, interpreted: bool = False) -> Case:
    """Return a case with the smallest shape that is not empty."""
    sizes = next((s for s in small_sizes(task) if 0 not in s.values()), {})
    return case(task, _shrunk(task, sizes, interpreted), Family.OWN)


def correct_cases(
    task: Task, interpreted: bool = False, numbers: Sequence[int] = (), sizes: Sequence[Sizes] = (),
    pairs: Sequence[tuple[int, int]] = (),
) -> list[Case]:  # fmt: skip
    """Return the cases of the stage correct, with the declared size and the task's own inputs last: every legal family
    at a small size; hidden Dim sizes, each with another family; the requested ``sizes``; sizes at the ``numbers`` in
    the source, at the ``pairs`` of them that stand together, and at the ends of the ranges.
    """
    full = _shrunk(task, task.module().default_sizes(), interpreted)
    legal = families(task)
    if interpreted:
        # A call takes seconds in the interpreter, and the rows of a mixed batch cover these families.
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
        cases += (glance(case(task, s, Family.OWN)) for s in at_pairs(task, full, pairs))
    return [*cases, declared]


def _families_at(task: Task, sizes: Mapping[str, int], legal: Sequence[Family], own: bool) -> list[Case]:
    """Return cases of all ``legal`` families at ``sizes``, with the task's own family first if ``own`` is set."""
    first = [case(task, sizes, Family.OWN)] if own and Family.OWN in legal else []
    return first + [case(task, sizes, f) for f in legal if f is not Family.OWN]


def _at_hidden_sizes(
    task: Task, hidden: Sequence[Mapping[str, int]], legal: Sequence[Family], small: Mapping[str, int]
) -> list[Case]:
    """Return cases at evenly spaced ``hidden`` sizes, with the families in turn."""
    step = max(1, len(hidden) // CORRECT.hidden_sizes)
    return [case(task, s, legal[(i + 1) % len(legal)]) for i, s in enumerate(hidden[::step]) if s != small]


def _at_secret_sizes(
    task: Task, full: Mapping[str, int], legal: Sequence[Family], numbers: Sequence[int]
) -> list[Case]:
    """Return cases at sizes that a kernel may treat as special, compared in the declared dtype: random sizes, sizes
    next to the ``numbers`` of the source, and the ends of the Dims' ranges."""
    by_chance = secret_sizes(task, full, input_bytes(task, full))
    ends = [*of_numbers(task, full, numbers), *at_ends(task, full)]
    return [
        *(glance(case(task, s, of_all(legal))) for s in by_chance),
        # Own inputs: a small constant does not show in a batch with rows of all magnitudes.
        *(glance(case(task, s, Family.OWN)) for s in at_numbers(task, full, numbers)),
        *(glance(decided_last(case(task, s, of_all(legal)))) for s in ends),
    ]


def more_cases(task: Task) -> Iterator[Case]:
    """Yield cases of the task's own inputs at sizes from the whole Dim ranges, without end; none without Dims."""
    full = task.module().default_sizes()
    for sizes in more_sizes(task, full, input_bytes(task, full)) if task.dims else ():
        yield glance(case(task, sizes, Family.OWN))


def as_long_as_time_allows(task: Task, known: Sequence[tuple[Case, float]]) -> Iterator[Case]:
    """Yield interpreter cases in which each Dim in turn is as long as its range and a time limit allow, estimated from
    the times of the ``known`` cases, whose other Dims are short. They reveal loops that end too early."""
    for name in [d.name for d in task.dims][: DRAWN.ends]:
        timed = [(dict(known_case.sizes), seconds) for known_case, seconds in known]
        sizes, seconds = max(timed, key=lambda one: (one[0][name], -input_bytes(task, one[0])))
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
    """Return cases of the families other than the task's own at the timed size, where a kernel may take another path:
    all of them, or for large data those that find the most errors."""
    first = (Family.MIXED, Family.LARGE, Family.OFFSET, Family.EDGES, Family.NORMAL)
    chosen = [f for f in dict.fromkeys((*first, *legal)) if f in legal and f is not Family.OWN]
    size = input_bytes(task, full)
    if size > CORRECT.family_bytes:
        many = CORRECT.large_families if size <= CORRECT.large_bytes else CORRECT.huge_families
        chosen = chosen[:many]
    cases = [case(task, full, f) for f in chosen]
    return cases if size <= CORRECT.large_bytes else [glance(c) for c in cases]


def of_all(legal: Sequence[Family]) -> Family:
    """Return the family whose single batch reveals the most errors."""
    return next((f for f in (Family.MIXED, Family.NORMAL) if f in legal), Family.OWN)


def glance(found: Case) -> Case:
    """Return the case compared in the declared dtype, and in float64 only where that is not enough."""
    return found._sharing(replace(found, double=False), "_sample", "args", "_native")


def _hidden(task: Task, interpreted: bool) -> list[dict[str, int]]:
    """Return small sizes other than the task's own."""
    full = _shrunk(task, task.module().default_sizes(), interpreted)
    return [_shrunk(task, s, interpreted) for s in small_sizes(task, _AROUND, 8) if s != full]


def _small(task: Task, full: dict[str, int], hidden: list[dict[str, int]], interpreted: bool) -> dict[str, int]:
    """Return the size for the families: the full size unless it is large, else a medium size with several tiles and a
    remainder."""
    if input_bytes(task, full) <= CORRECT.family_bytes and not interpreted:
        return full
    return hidden[-1] if hidden else full


def declared_case(task: Task, interpreted: bool = False) -> Case:
    """Return a new case of the task's own inputs at the declared sizes."""
    return case(task, _shrunk(task, task.module().default_sizes(), interpreted), Family.OWN)


def small_case(task: Task, interpreted: bool = False) -> Case:
    """Return a new case at the size used for the families."""
    full = _shrunk(task, task.module().default_sizes(), interpreted)
    small = _small(task, full, _hidden(task, interpreted), interpreted) if task.dims else full
    return case(task, small, Family.OWN)


def drawn_base(task: Task, interpreted: bool = False, most: int = DRAWN.case_bytes) -> Case:
    """Return a case of the task's own inputs as a base for many variants: several rows and at most ``most`` bytes where
    the Dims allow."""
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
    """Return size pairs that separate an edge error from other errors: exact multiples of 64 and their neighbours."""
    if not task.dims:
        return []
    pairs = []
    for kind, offset in (("aligned", 0), ("ragged", -1), ("ragged", 1)):
        for base in (64, 128, 256):
            sizes = {d.name: min(max(base + offset, d.min), d.max) for d in task.dims}
            if input_bytes(task, sizes) <= limit_bytes and runs_at(task, tuple(sizes.items())):
                pairs.append((kind, case(task, sizes, Family.OWN)))
                break
    return pairs


def whole_near(task: Task, failing: Case, limit_bytes: int = CORRECT.family_bytes) -> Case | None:
    """Return the failing case at its nearest multiples of 64 (rounded up if the range allows), or None."""
    sizes = dict(failing.sizes)
    for dim in task.dims:
        up = -(-sizes[dim.name] // 64) * 64
        sizes[dim.name] = up if up <= dim.max else max(up - 64, dim.min)
    fits = input_bytes(task, sizes) <= limit_bytes and runs_at(task, tuple(sizes.items()))
    return case(task, sizes, Family.OWN) if fits and tuple(sizes.items()) != failing.sizes else None


def probes(task: Task, failing: Case) -> Iterator[Case]:
    """Yield small cases that locate a failure: all Dims at one size, then each Dim next to a multiple of 64 while the
    others are whole. If the failing family is not the task's own, the failing sizes come first, with the own family."""
    if failing.family is not Family.OWN:
        yield case(task, dict(failing.sizes), Family.OWN)
    visited: set[tuple[tuple[str, int], ...]] = {failing.sizes}
    tile_sizes = {d.name: min(max(64, d.min), d.max) for d in task.dims}
    equal_sizes = [{d.name: min(max(n, d.min), d.max) for d in task.dims} for n in PROBES]
    single_dim = [tile_sizes | {d.name: min(max(33, d.min), d.max)} for d in task.dims] if len(task.dims) > 1 else []
    for sizes in (*equal_sizes, *single_dim):
        key = tuple(sizes.items())
        if key not in visited and input_bytes(task, sizes) <= CORRECT.family_bytes and runs_at(task, key):
            visited.add(key)
            yield case(task, sizes, Family.OWN)


def public(task: Task, interpreted: bool = False) -> Case | None:
    """Return the task's own inputs at one small size and a fixed seed, which are not secret; None if they are large."""
    for extent in (8,) if interpreted else (33, 8):
        sizes = {d.name: min(max(extent, d.min), d.max) for d in task.dims}
        fits = input_bytes(task, sizes or None) <= CORRECT.family_bytes
        if fits and (not sizes or runs_at(task, tuple(sizes.items()))):
            return Case(task, tuple(sizes.items()), Family.OWN, 0)
    return None


def has_answer(case: Case) -> bool:
    """Return whether the reference accepts the case. A matrix of equal rows has no inverse, and indices of one table
    may be out of range for another."""
    try:
        return bool(case.references)
    except TaskError:
        return False


def case(task: Task, sizes: Mapping[str, int], family: Family) -> Case:
    """Return a case with a random secret seed."""
    return Case(task, tuple(sizes.items()), family, secrets.randbits(31))


def _shrunk(task: Task, sizes: Mapping[str, int], interpreted: bool) -> dict[str, int]:
    """Reduce sizes for an interpreter: keep edges, cap Dims and elements."""
    sizes = dict(sizes)
    if not interpreted or not task.dims:
        return sizes
    limit = CAPS.interpreter_dim
    while True:
        shrunk = {d.name: max(d.min, min(sizes[d.name], limit + (sizes[d.name] % 7))) for d in task.dims}
        if limit <= 8 or input_bytes(task, shrunk) <= 4 * CAPS.interpreter_elements:
            return shrunk
        limit //= 2
