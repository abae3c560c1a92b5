"""Puts kernels in the places of a model's parts, checks the whole model on hidden inputs, times it, and takes them out.

A call that the kernels were not made for (another shape, dtype, layout, device or mode) runs the model's own forward,
said once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernellab.errors import ProfileError, SwapError
from kernellab.model_integration.ranked import Profile, Row, profile_of
from kernellab.model_integration.sources import Workload
from kernellab.model_integration.swap.build import PlacedCall, calling, swapped
from kernellab.model_integration.swap.call import Replacement, callable_of, replacement_of
from kernellab.model_integration.swap.check import expected, fault, misfit
from kernellab.model_integration.swap.clock import alone, backward_alone, paired
from kernellab.model_integration.swap.place import InPlace, in_place
from kernellab.model_integration.swap.swaps import Gain, Installed, Swap, installed_in, to_install_in
from kernellab.model_integration.unit import Unit

if TYPE_CHECKING:
    import torch

    from kernellab.model_integration.gradient.pair import Pair
    from kernellab.session import Session
    from kernellab.session.kernel import BestKernel

    Module = torch.nn.Module


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
    profile = _profiled(model)
    row = profile.row(at)
    offer = _offered(kernel)
    in_model = to_install_in(profile)
    _check_free(in_model, row)
    replacements = _replacements(row, offer, backward)
    _check_fits(profile.workload, row, replacements[0])
    gain = _gain_of_forward(profile, in_model, row, offer, replacements, in_step=measure)
    calls = [PlacedCall(one.region, callable_of(one)) for one in replacements]
    units = {call.region.unit for call in calls}
    earlier = {unit.module: unit.module.__dict__.get("forward") for unit in {*in_model.units.values(), *units}}
    _put_in_and_check(in_model, row, calls, offer.label)
    _warn_of_hooks(units)
    if gain.in_place is None:
        gain = replace(gain, backward_speedup=backward_alone(profile.workload, row, replacements[0]))
    predicted_ms = in_model.predicted_ms(profile, gain)
    against_original = against_previous = None
    if measure:
        # next to the model with the kernels that were in it before, if there were any, and next to it without any
        previous = [lambda: calling(earlier)] if in_model.swaps else []
        times = paired(profile.workload, [*previous, in_model.paused])
        against_previous, against_original = times[0], times[-1]
    swap = Swap(offer.label, gain, predicted_ms, profile.step_ms, against_original, against_previous)
    in_model.swaps.append(swap)
    return swap


def uninstall(model: Module | Profile, at: int | str | Row | None = None) -> int:
    """Take a kernel out again, or all of them; how many there were (of a copy of a model: in how many modules).

    Raises:
        SwapError: there is none at ``at``.
    """
    profile = profile_of(model)
    owner = profile.workload.model if profile is not None else model
    in_model = installed_in(owner)
    if in_model is None or not in_model.swaps:
        if at is None:
            return _uninstall_copy(owner)
        raise SwapError(
            "No kernel is installed in this model.", "Install one with kernellab.install(model, row, kernel)."
        )
    chosen = _swaps_at(in_model.swaps, at)
    if not chosen:
        names = ", ".join(swap.row.name for swap in in_model.swaps)
        raise SwapError(f"No kernel is installed at {at!r}.", f"Choose one of {names}.")
    in_model.take_out(chosen)
    return len(chosen)


def installed(model: Module | Profile) -> tuple[Swap, ...]:
    """The kernels in a model, in the order of their coming."""
    in_model = installed_in(model.workload.model if isinstance(model, Profile) else model)
    return tuple(in_model.swaps) if in_model else ()


def compared_in_place(model: Module | Profile, at: int | str | Row, kernel: Session | BestKernel | Pair) -> InPlace:
    """``kernel`` compared with its row's region in steps of the model on a CPU; nothing is put in.

    Raises:
        ProfileError, SwapError: as :func:`install`.
    """
    profile = _profiled(model)
    row = profile.row(at)
    offer = _offered(kernel)
    replacements = _replacements(row, offer, None)
    _check_fits(profile.workload, row, replacements[0])
    return _compared_in_place(to_install_in(profile), row, replacements)


def _profiled(model: Module | Profile) -> Profile:
    profile = profile_of(model)
    if profile is None:
        raise ProfileError(
            f"This {type(model).__name__} was not profiled.", "Profile it first: p = kernellab.profile(model, *inputs)."
        )
    return profile


def _swaps_at(swaps: Sequence[Swap], at: int | str | Row | None) -> list[Swap]:
    """All for None; else those of a row, by itself, its number or its name, else of a module's path."""
    if at is None:
        return list(swaps)
    by_row = [swap for swap in swaps if swap.row is at or at in (swap.row.number, swap.row.name)]
    return by_row or [swap for swap in swaps if any(at == region.module for region in swap.row.places)]


def _uninstall_copy(model: Any) -> int:
    """A copy of a model has kernels in its modules, and no record of them."""
    modules = swapped(model)
    for module in modules:
        del module.__dict__["forward"]
    return len(modules)


def _gain_of_forward(
    profile: Profile, in_model: Installed, row: Row, offer: _Offer, replacements: Sequence[Replacement], in_step: bool
) -> Gain:  # fmt: skip
    """What the kernel gains by itself, and with ``in_step`` on a CPU within the model's own step."""
    speedup = offer.speedup
    if speedup is None:
        speedup = alone(profile.workload, row, offer.function)
    if in_step and profile.workload.device.type == "cpu":
        return Gain(row, speedup, in_place=_compared_in_place(in_model, row, replacements))
    return Gain(row, speedup)


def _put_in_and_check(in_model: Installed, row: Row, calls: Sequence[PlacedCall], label: str) -> None:
    """Put a kernel's ``calls`` in the places of ``row``, and check the whole model with them.

    Raises:
        SwapError: the model fails or its numerics change; the kernel is then out again, as after any other error.
    """
    workload = in_model.workload
    with in_model.paused():
        hidden = expected(workload)
    earlier = {path: list(calls_of_unit) for path, calls_of_unit in in_model.calls.items()}
    try:
        in_model.put_in(calls)
        wrong = fault(workload, hidden)
        if wrong is not None:
            raise SwapError(
                f"With {label} at {row.where}, {wrong.what} is off by {wrong.error:.2g}, where {wrong.allowed:.2g} is "
                f"allowed (the model's own error was {wrong.before:.2g}); it was taken out again.",
                "Look at its task's DOMAIN and precision, or design it again with precision strict.",
            )
    except BaseException as error:
        in_model.calls = {path: earlier.get(path, []) for path in in_model.units}
        in_model.apply()
        if isinstance(error, (SwapError, KeyboardInterrupt, SystemExit)):
            raise
        raise SwapError(
            f"With {label} at {row.where} the model fails: {type(error).__name__}: {_first_line(error)}.",
            "It was taken out again; see that the kernel takes the row's inputs in order.",
        ) from error


def _replacements(row: Row, offer: _Offer, backward: Callable[..., Any] | None) -> list[Replacement]:
    """What takes the place of each of the row's regions; ``backward`` goes before the kernel's own."""
    gradients = backward or offer.backward
    return [replacement_of(region, offer.function, offer.label, gradients) for region in row.places]


def _compared_in_place(in_model: Installed, row: Row, replacements: Sequence[Replacement]) -> InPlace:
    try:
        return in_place(in_model.workload, replacements, in_model.paused)
    except Exception as error:  # whatever a kernel raises, or its backward
        raise SwapError(
            f"{replacements[0].label} fails at {row.where} in a step of the model: {type(error).__name__}: "
            f"{_first_line(error)}.",
            "See that its results can be used, and its backward called, as the region's.",
        ) from error


def _check_free(in_model: Installed, row: Row) -> None:
    for region in row.places:
        if in_model.calls.get(region.unit.path) and in_model.units[region.unit.path] is not region.unit:
            raise SwapError(
                f"{row.name} is a row of another profile of this model than the kernels that are in it.",
                "Take a row of the profile that they are of, or kernellab.uninstall(model) first.",
            )
    for swap in in_model.swaps:
        if swap.row.taken & row.taken:
            raise SwapError(
                f"{swap.label} is installed at {swap.row.where}, and {row.name} covers some of the same operations.",
                f"kernellab.uninstall(model, {swap.row.number or swap.row.name!r}) first.",
            )


def _check_fits(workload: Workload, row: Row, replacement: Replacement) -> None:
    """Does the kernel run on the model's own values, with the region's results?"""
    remedy = "See that it takes the row's inputs in the order of its task (row.text)."
    try:
        wrong = misfit(workload, row, replacement)
    except Exception as error:  # whatever a kernel raises
        raise SwapError(
            f"{replacement.label} fails at {row.where}: {type(error).__name__}: {_first_line(error)}.", remedy
        ) from error
    if wrong:
        raise SwapError(f"{replacement.label} does not fit {row.where}: {wrong}.", remedy)


def _warn_of_hooks(units: set[Unit]) -> None:
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
class _Offer:
    """A kernel as :func:`install` takes it: its function, its name in messages, how many times as fast as the region
    the judge measured it (None where none did), and ``backward(gradients, inputs)`` if it brings one."""

    function: Callable[..., Any]
    label: str
    speedup: float | None = None
    backward: Callable[..., Any] | None = None


def _offered(kernel: Any) -> _Offer:
    """Return what a session, its best, a pair or a function offers. Raises SwapError for anything else."""
    from kernellab.model_integration.gradient.pair import Pair
    from kernellab.session import Session
    from kernellab.session.kernel import BestKernel

    if isinstance(kernel, Pair):
        forward, backward = kernel.kernels
        speedup = kernel.forward.best.verdict.speedup
        return _Offer(forward, kernel.task.name, speedup, kernel.gradients_by(backward))
    best = kernel.best if isinstance(kernel, Session) else kernel
    if isinstance(best, BestKernel):
        best.check_allowed()
        return _Offer(best.quick, best.name, best.verdict.speedup)
    if not callable(best):
        raise SwapError(
            f"A {type(kernel).__name__} is not a kernel.",
            "Give a session, its best, a pair, or a function of the row's inputs.",
        )
    return _Offer(best, getattr(best, "__name__", "kernel").strip("<>"))


__all__ = ["compared_in_place", "install", "installed", "uninstall"]
