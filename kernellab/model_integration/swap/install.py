"""Puts kernels in the places of a model's parts, checks the whole model on hidden inputs, times it, and takes them out.

A module's ``forward`` is replaced on the instance: parameters, buffers and state_dict stay what they were. A call that
the kernels were not made for (another shape, dtype, layout, device or mode) runs the model's own forward, said once.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab.errors import ProfileError, SwapError
from kernellab.model_integration.ranked import Profile, Row, profile_of
from kernellab.model_integration.regions import Region
from kernellab.model_integration.sources import Workload
from kernellab.model_integration.swap.build import build, calling, guarded, swapped
from kernellab.model_integration.swap.call import Stand, callable_of, stand_of
from kernellab.model_integration.swap.check import expected, fault, misfit
from kernellab.model_integration.swap.clock import Paired, alone, backward_alone, paired
from kernellab.model_integration.swap.place import InPlace, flat, in_place
from kernellab.model_integration.unit import Unit

if TYPE_CHECKING:
    import torch

    from kernellab.model_integration.gradient.pair import Pair
    from kernellab.session import Session
    from kernellab.session.kernel import BestKernel

    Module = torch.nn.Module


@dataclass(frozen=True, eq=False)
class Swap:
    """A kernel in its places: what was known before it was put in, and what was measured then."""

    row: Row
    label: str
    #: how many times as fast as the region it is by itself
    factor: float
    #: ms of a step of the model: predicted with all that is installed, and profiled without any kernel
    predicted_ms: float
    profiled_ms: float
    #: the model with all that is installed compared with the model without any kernel; None if not measured
    time: Paired | None = None
    #: as ``factor``, of its gradients where the model trains and ``place`` is None: below 1 without a backward kernel,
    #: since the reference's forward then runs again
    backward: float = 1.0
    #: kernel and region timed in the model's own step, on a CPU: then the prediction is of this, else of the profile
    place: InPlace | None = None
    #: as ``time``, compared with the model with the kernels that were in it before
    step: Paired | None = None

    @property
    def predicted(self) -> float:
        """How many times as fast the whole model was predicted to be, with all that is installed."""
        return self.profiled_ms / self.predicted_ms

    @property
    def measured(self) -> float | None:
        return self.time.speedup if self.time else None

    def __repr__(self) -> str:
        measured = f", measured {self.time.text}" if self.time else ""
        places = f"{len(self.row.places)} places" if len(self.row.places) > 1 else "1 place"
        return (
            f"<{self.label} at {self.row.where} ({places}): {self.factor:.2f}x by itself; "
            f"the model predicted {self.predicted:.3f}x{measured}>"
        )


@dataclass
class Installed:
    """What is installed in one model: the swaps in order, and each unit's rewritten call."""

    workload: Workload
    swaps: list[Swap] = field(default_factory=list)
    places: dict[str, list[tuple[Region, Callable[..., Any]]]] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)
    #: how many times as fast a step is by the units' graphs alone, by the paths of the units that hold a kernel
    flat: dict[frozenset[str], float] = field(default_factory=dict)

    def paused(self) -> AbstractContextManager[None]:
        """The model as it was, for as long as this lasts."""
        return calling({unit.module: None for unit in self.units.values()})

    def flattened(self) -> float:
        """:func:`flat` of the units that hold a kernel, measured once."""
        units = [unit for path, unit in self.units.items() if self.places.get(path)]
        key = frozenset(unit.path for unit in units)
        if key not in self.flat:
            self.flat[key] = flat(self.workload, units, self.paused)
        return self.flat[key]

    def apply(self) -> None:
        """Write each unit's call again."""
        for path, unit in self.units.items():
            unit.module.__dict__.pop("forward", None)
            if self.places[path]:
                unit.module.__dict__["forward"] = guarded(unit, build(unit, self.places[path]))


_INSTALLED: weakref.WeakKeyDictionary[Any, Installed] = weakref.WeakKeyDictionary()


def install(
    model: Module | Profile,
    at: int | str | Row,
    kernel: Session | BestKernel | Pair | Callable[..., Any],
    *,
    backward: Callable[..., Any] | None = None,
    measure: bool = True,
) -> Swap:
    """Put ``kernel`` in the place of a row of the model's profile: its number, its name, or a module's path.

    The model's outputs (and, where it trains, all gradients) are compared with what they were on hidden inputs; then
    the model is timed with it, without it, and without any. On a CPU, what it will gain is first predicted within the
    model's own step (:mod:`kernellab.model_integration.swap.place`).

    ``kernel`` is a session, its ``best``, a pair, or a function of the row's inputs; ``backward(gradients, inputs)``
    gives the inputs' gradients where it is a function.

    Raises:
        ProfileError: the model was not profiled, or has no such row.
        SwapError: the kernel does not fit, or the model's numerics change; the model is then as it was before.
    """
    profile = profile_of(model)
    if profile is None:
        raise ProfileError(
            f"This {type(model).__name__} was not profiled.", "Profile it first: p = kernellab.profile(model, *inputs)."
        )
    row = profile.row(at)
    offered = _offered(kernel)
    label = offered.label
    state = _INSTALLED.setdefault(profile.workload.model, Installed(profile.workload))
    _check_free(state, row)
    stands = _stands(row, offered, backward)
    stand = stands[0][1]
    _check_fits(profile.workload, row, stand)
    factor = offered.factor
    if factor is None:
        factor = alone(profile.workload, row, offered.function)
    is_on_cpu = profile.workload.device.type == "cpu"
    place = _compared_in_place(state, row, stands, label) if measure and is_on_cpu else None
    calls = [(region, callable_of(s, len(region.inputs), len(region.outputs))) for region, s in stands]
    units = {region.unit for region, _ in calls}
    earlier = {unit.module: unit.module.__dict__.get("forward") for unit in {*state.units.values(), *units}}
    _put_in(profile.workload, state, row, calls, label)
    _tell_of_hooks(units)
    gain = _Gain(row, factor, backward_alone(profile.workload, row, stand) if place is None else 1.0, place)
    profiled_ms, predicted_ms = profile.step_ms, _predicted(profile, state, gain)
    time = step = None
    if measure:
        # next to the model with the kernels that were in it before, if there were any, and next to it without any
        before = [lambda: calling(earlier)] if state.swaps else []
        *compared_with_before, time = paired(profile.workload, [*before, state.paused])
        step = compared_with_before[0] if compared_with_before else time
    swap = Swap(row, label, factor, predicted_ms, profiled_ms, time, gain.backward, place, step)
    state.swaps.append(swap)
    return swap


def _put_in(
    workload: Workload, state: Installed, row: Row, calls: list[tuple[Region, Callable[..., Any]]], label: str
) -> None:
    """Put a kernel's ``calls`` in the places of ``row``, and check the whole model with them.

    Raises:
        SwapError: the model fails or its numerics change; the kernel is then out again, as after any other error.
    """
    with state.paused():
        hidden = expected(workload)
    before = {path: list(calls_of_unit) for path, calls_of_unit in state.places.items()}
    try:
        for region, call in calls:
            state.units[region.unit.path] = region.unit
            state.places.setdefault(region.unit.path, []).append((region, call))
        state.apply()
        wrong = fault(workload, hidden)
        if wrong is not None:
            raise SwapError(
                f"With {label} at {row.where}, {wrong.what} is off by {wrong.error:.2g}, where {wrong.allowed:.2g} is "
                f"allowed (the model's own error was {wrong.before:.2g}); it was taken out again.",
                "Look at its task's DOMAIN and precision, or design it again with precision strict.",
            )
    except BaseException as error:
        state.places = {path: before.get(path, []) for path in state.units}
        state.apply()
        if isinstance(error, (SwapError, KeyboardInterrupt, SystemExit)):
            raise
        raise SwapError(
            f"With {label} at {row.where} the model fails: {type(error).__name__}: {_first_line(error)}.",
            "It was taken out again; see that the kernel takes the row's inputs in order.",
        ) from error


def compared_in_place(model: Module | Profile, at: int | str | Row, kernel: Session | BestKernel | Pair) -> InPlace:
    """``kernel`` compared with its row's region in steps of the model on a CPU; nothing is put in.

    Raises:
        ProfileError, SwapError: as :func:`install`.
    """
    profile = profile_of(model)
    assert profile is not None
    row = profile.row(at)
    offered = _offered(kernel)
    stands = _stands(row, offered, None)
    _check_fits(profile.workload, row, stands[0][1])
    state = _INSTALLED.setdefault(profile.workload.model, Installed(profile.workload))
    return _compared_in_place(state, row, stands, offered.label)


def _stands(row: Row, offered: _Offered, backward: Callable[..., Any] | None) -> list[tuple[Region, Stand]]:
    """Return the row's regions, each with what takes its place; ``backward`` goes before the kernel's own."""
    gradients = backward or offered.backward
    return [(region, stand_of(region, offered.function, offered.label, gradients)) for region in row.places]


def _compared_in_place(state: Installed, row: Row, stands: list[tuple[Region, Stand]], label: str) -> InPlace:
    try:
        return in_place(state.workload, stands, state.paused)
    except Exception as error:  # whatever a kernel raises, or its backward
        raise SwapError(
            f"{label} fails at {row.where} in a step of the model: {type(error).__name__}: {_first_line(error)}.",
            "See that its results can be used, and its backward called, as the region's.",
        ) from error


@dataclass(frozen=True, eq=False)
class _Gain:
    """What is known of a kernel before it is measured in the model; the fields are those of :class:`Swap`."""

    row: Row
    factor: float
    backward: float
    place: InPlace | None


def _predicted(profile: Profile, state: Installed, new: _Gain) -> float:
    """ms of a step with what is installed and ``new``, by what was known before."""
    gains: list[Swap | _Gain] = [*state.swaps, new]
    profiled = [(gain.row, gain.factor) for gain in gains if gain.place is None]
    predicted = profile.predict_rows(profiled, {gain.row: gain.backward for gain in gains})
    timed = [gain.place for gain in gains if gain.place is not None]
    if not timed:
        return predicted
    predicted -= profile.step_ms * sum(place.share for place in timed)
    return max(predicted, 1e-9) / state.flattened()


def uninstall(model: Module | Profile, at: int | str | Row | None = None) -> int:
    """Take a kernel out again, or all of them; how many there were (of a copy of a model: in how many modules).

    Raises:
        SwapError: there is none at ``at``.
    """
    profile = profile_of(model)
    owner = profile.workload.model if profile is not None else model
    state = _INSTALLED.get(owner)
    if state is None or not state.swaps:
        if at is None:
            copied = swapped(owner)
            for module in copied:
                del module.__dict__["forward"]
            return len(copied)
        raise SwapError(
            "No kernel is installed in this model.", "Install one with kernellab.install(model, row, kernel)."
        )
    gone = state.swaps if at is None else [s for s in state.swaps if s.row is at or at in (s.row.number, s.row.name)]
    gone = gone or [s for s in state.swaps if any(at == region.module for region in s.row.places)]
    if not gone:
        there = ", ".join(s.row.name for s in state.swaps)
        raise SwapError(f"No kernel is installed at {at!r}.", f"Choose one of {there}.")
    removed = {id(region) for swap in gone for region in swap.row.places}
    state.places = {path: [p for p in places if id(p[0]) not in removed] for path, places in state.places.items()}
    state.apply()
    count = len(gone)
    state.swaps = [s for s in state.swaps if s not in gone]
    return count


def installed(model: Module | Profile) -> tuple[Swap, ...]:
    """The kernels in a model, in the order of their coming."""
    owner = model.workload.model if isinstance(model, Profile) else model
    state = _INSTALLED.get(owner)
    return tuple(state.swaps) if state else ()


def _check_free(state: Installed, row: Row) -> None:
    for region in row.places:
        if state.places.get(region.unit.path) and state.units[region.unit.path] is not region.unit:
            raise SwapError(
                f"{row.name} is a row of another profile of this model than the kernels that are in it.",
                "Take a row of the profile that they are of, or kernellab.uninstall(model) first.",
            )
    for swap in state.swaps:
        if swap.row.taken & row.taken:
            raise SwapError(
                f"{swap.label} is installed at {swap.row.where}, and {row.name} covers some of the same operations.",
                f"kernellab.uninstall(model, {swap.row.number or swap.row.name!r}) first.",
            )


def _check_fits(workload: Workload, row: Row, stand: Stand) -> None:
    """Does the kernel run on the model's own values, with the region's results?"""
    remedy = "See that it takes the row's inputs in the order of its task (row.text)."
    try:
        wrong = misfit(workload, row, stand)
    except Exception as error:  # whatever a kernel raises
        raise SwapError(
            f"{stand.label} fails at {row.where}: {type(error).__name__}: {_first_line(error)}.", remedy
        ) from error
    if wrong:
        raise SwapError(f"{stand.label} does not fit {row.where}: {wrong}.", remedy)


def _tell_of_hooks(units: set[Unit]) -> None:
    """A unit's call is one function: the modules within it are not called, and so are not their hooks."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooked = [
        f"{unit.path}.{name}".lstrip(".")
        for unit in units
        for name, module in unit.module.named_modules()
        if name and any(getattr(module, kind, None) for kind in kinds)
    ]
    if hooked:
        warnings.warn(
            f"While kernels are installed the hooks of {', '.join(hooked[:3])}{' ...' if hooked[3:] else ''} are not "
            "called; what they computed when the model was profiled is computed as then.",
            stacklevel=3,
        )


def _first_line(error: BaseException) -> str:
    """An error's first line, without its full stop."""
    return next(iter(str(error).splitlines()), "").rstrip(".")


@dataclass(frozen=True, eq=False)
class _Offered:
    """A kernel as :func:`install` takes it: its function, its name in messages, how many times as fast as the region
    the judge found it (None where none did), and ``backward(gradients, inputs)`` if it brings one."""

    function: Callable[..., Any]
    label: str
    factor: float | None = None
    backward: Callable[..., Any] | None = None


def _offered(kernel: Any) -> _Offered:
    """Return what a session, its best, a pair or a function offers. Raises SwapError for anything else."""
    from kernellab.model_integration.gradient.pair import Pair
    from kernellab.session import Session
    from kernellab.session.kernel import BestKernel

    if isinstance(kernel, Pair):
        forward, backward = kernel.kernels
        speedup = kernel.forward.best.verdict.speedup
        return _Offered(forward, kernel.task.name, speedup, kernel.gradients_by(backward))
    best = kernel.best if isinstance(kernel, Session) else kernel
    if isinstance(best, BestKernel):
        best.check_allowed()
        return _Offered(best.quick, best.name, best.verdict.speedup)
    if not callable(best):
        raise SwapError(
            f"A {type(kernel).__name__} is not a kernel.",
            "Give a session, its best, a pair, or a function of the row's inputs.",
        )
    return _Offered(best, getattr(best, "__name__", "kernel").strip("<>"))


__all__ = ["Installed", "Swap", "install", "installed", "uninstall"]
