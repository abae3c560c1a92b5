"""Input cases for a candidate: sizes, families and seeds, with the reference's answers.

A case is data: the same task, sizes, family, seed and change give the same arguments. What is drawn and computed for it
is kept in :class:`Computed`, each value once, when it is first asked for. Similar cases (another change, other
arguments, other limits) are copies that share what is the same for both.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.task import Task
from kernellab.task.dtypes import is_inexact, wide
from kernellab.task.sample.inputs import Family, redraw
from kernellab.verifier.cases import answers, device, rounded_answers, rounding
from kernellab.verifier.cases.changes import changed, in_words
from kernellab.verifier.cases.input_specs import forms_of
from kernellab.verifier.cases.statics import Statics, current_statics, with_statics
from kernellab.verifier.compare.compare import Reference
from kernellab.verifier.protocol.rules import DRAWN

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


@dataclass(frozen=True)
class Native:
    """The reference's outputs in the declared dtype, and the seconds that it took.

    ``used``: of these the processor's seconds of this thread, which other work on the machine does not prolong. On a
    device, whose results are waited for, all of them."""

    outputs: tuple[Tensor, ...]
    seconds: float
    used: float


@dataclass
class Computed:
    """What has been drawn and computed for a case, each value once; None where it has not been yet."""

    #: the arguments as drawn, without replacements and changes
    sample: tuple[Any, ...] | None = None
    args: tuple[Any, ...] | None = None
    native: Native | None = None
    references: tuple[Reference, ...] | None = None
    nudged: tuple[Reference, ...] | None = None


@dataclass(frozen=True)
class Case:
    """One set of inputs: Dim sizes, family, seed. The arguments and the reference's outputs are computed once.

    A copy by :func:`dataclasses.replace` has nothing computed; the methods that return a similar case share what is the
    same for both."""

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
    #: Values held by :func:`~kernellab.verifier.cases.statics.static_held` when this case was created.
    statics: Statics | None = field(default_factory=current_statics, compare=False, repr=False)
    computed: Computed = field(default_factory=Computed, init=False, compare=False, repr=False)

    # -- similar cases -------------------------------------------------------------------------------------------------

    def _similar(self, computed: Computed, **fields: Any) -> Case:
        """Return a copy with other ``fields``, for which ``computed`` is known."""
        similar = replace(self, **fields)
        object.__setattr__(similar, "computed", computed)
        return similar

    def with_change(self, change: tuple[Any, ...]) -> Case:
        """Return the same case with a change to its arguments, without drawing them again."""
        return self._similar(Computed(sample=self.computed.sample), change=change)

    def judged_as(self, family: Family) -> Case:
        """Return the same case, judged by the limits of ``family``."""
        return self._similar(replace(self.computed, nudged=None), family=family)

    def in_double(self) -> Case:
        """Return the case with float64 answers; the arguments and outputs are reused."""
        if self.double:
            return self
        return self._similar(Computed(args=self.computed.args, native=self.computed.native), double=True)

    def glance(self) -> Case:
        """Return the case compared in the declared dtype, and in float64 only where that is not enough."""
        return self._similar(replace(self.computed, references=None, nudged=None), double=False)

    def answered(self, args: tuple[Any, ...], native: tuple[Tensor, ...], seconds: float) -> Case:
        """Return the same case with arguments made elsewhere and the reference's outputs for them."""
        return self._similar(Computed(args=args, native=Native(native, seconds, seconds)))

    def given(self, args: tuple[Any, ...]) -> Case:
        """Return the same case with other arguments, made elsewhere."""
        return self._similar(Computed(args=args), held=args)

    def timed(self) -> Case:
        """Return the same case with the reference's seconds, and without what was drawn and computed for it."""
        return self._similar(Computed(native=replace(self._native(), outputs=())))

    def exact(self) -> Case:
        """Return the same case as if the reference's outputs in the declared dtype were exact in float64."""
        references = tuple(
            Reference(n, wide(n), nudged=wide(n)) if self.double and is_inexact(n) else Reference(n, None)
            for n in self.native
        )
        computed = Computed(
            args=self.computed.args, native=self.computed.native, references=references, nudged=references
        )
        return self._similar(computed, double=True)

    # -- arguments and answers -----------------------------------------------------------------------------------------

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments, with replacements and the change applied."""
        if self.computed.args is None:
            drawn = self._drawn()
            if self.held:
                drawn = tuple(d if h is None else h for d, h in zip(drawn, self.held, strict=True))
            self.computed.args = drawn
        return self.computed.args

    def _drawn(self) -> tuple[Any, ...]:
        if self.computed.sample is None:
            self.computed.sample = make_args(self.task, dict(self.sizes), self.family, self.seed, self.device)
        drawn = self.computed.sample
        if self.statics is None:
            return changed(drawn, self.change)
        # A change does not apply to static arguments.
        values = changed(with_statics(self.task, drawn, self.statics), self.change)
        return with_statics(self.task, values, self.statics)

    @property
    def native(self) -> tuple[Tensor, ...]:
        """The reference's outputs at the declared dtype."""
        return self._native().outputs

    @property
    def reference_seconds(self) -> float:
        """Seconds that the reference took for these arguments, by the wall's clock: for deadlines of other calls."""
        return self._native().seconds

    @property
    def reference_used(self) -> float:
        """Seconds of the processor that the reference took (:class:`Native`): for what is decided by its work."""
        return self._native().used

    def _native(self) -> Native:
        if self.computed.native is None:
            args = self.args
            device.synchronize()
            start, began = time.perf_counter(), time.thread_time()
            outputs = answers.run_reference(self.task, args)
            device.synchronize()
            seconds, used = time.perf_counter() - start, time.thread_time() - began
            self.computed.native = Native(outputs, seconds, used if device.current() == "cpu" else seconds)
        return self.computed.native

    @property
    def references(self) -> tuple[Reference, ...]:
        """The reference's outputs in the declared dtype and in float64."""
        if self.computed.references is None:
            self.computed.references = answers.references(self.task, self.args, self.double, self.native)
        return self.computed.references

    @property
    def asked(self) -> tuple[Reference, ...]:
        """The references if computed already, else an empty tuple."""
        return self.computed.references or ()

    @property
    def nudged(self) -> tuple[Reference, ...]:
        """The references, with bounds on the effect of rounding:

        - ``nudged``: float64 answer at inputs moved by at most one unit in the last place (where factors may be TF32,
          by the TF32 rounding);
        - ``summed``: magnitude of the summed terms, where sums can cancel, or there are few outputs;
        - ``either``: float64 answers with the sums in other orders;
        - ``tied``: answers with equal elements in another order.

        Used only before a kernel is refused, because it costs one or more further float64 runs.
        """
        if self.computed.nudged is None:
            references = rounding.with_bounds(self.task, self.args, self.references, self.family, self.seed)
            self.computed.nudged = tuple(
                replace(
                    r,
                    either=None if r.double is None else partial(self._either, i),
                    tied=partial(self._by_ties, i),
                )
                for i, r in enumerate(references)
            )
        return self.computed.nudged

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
        return rounded_answers.tied(self.task, self.args, self.references)

    @cached_property
    def _reordered(self) -> list[tuple[Tensor, ...]]:
        return rounded_answers.reordered(self.task, self.args, self.references, self.seed)

    @cached_property
    def mean_to_spread(self) -> float:
        """See :func:`kernellab.verifier.cases.rounding.mean_to_spread`."""
        return rounding.mean_to_spread(self.args)

    @property
    def is_declared(self) -> bool:
        """Whether the sizes are the declared ones, which are timed."""
        return dict(self.sizes) == self.task.module().default_sizes()

    @property
    def words(self) -> str:
        """A description of the case: sizes, family, change."""
        sizes = ", ".join(f"{k}={v}" for k, v in self.sizes)
        names = [spec.name for spec in self.task.args]
        change = f", {in_words(names, lambda at: self.args[at].shape, self.change)}" if self.change else ""
        kind = "the task's own" if self.family is Family.OWN else self.family.value
        return f"{sizes + ', ' if sizes else ''}{kind} inputs{change}"


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


def has_answer(case: Case) -> bool:
    """Return whether the reference accepts the case. A matrix of equal rows has no inverse, and indices of one table
    may be out of range for another."""
    try:
        return bool(case.references)
    except TaskError:
        return False


def is_noise(case: Case) -> bool:
    """Return whether the reference's answer is noise: its float64 answer differs, or is finite elsewhere."""
    for reference in case.in_double().references:
        native, double = reference.native, reference.double
        if double is None or not (native.is_floating_point() or native.is_complex()) or not native.numel():
            continue
        both_finite = native.isfinite() & double.isfinite()
        difference = (native.to(double.dtype) - double)[both_finite]
        if bool((native.isfinite() != double.isfinite()).any()):
            return True
        if float(difference.norm()) > DRAWN.noise_error * float(double[both_finite].norm()):
            return True
    return False


def case(task: Task, sizes: Mapping[str, int], family: Family) -> Case:
    """Return a case with a random secret seed."""
    return Case(task, tuple(sizes.items()), family, secrets.randbits(31))
