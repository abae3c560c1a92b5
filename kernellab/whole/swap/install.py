"""Puts kernels in the places of a model's parts, checks the whole model on hidden inputs, times it, and takes them out.

A module's ``forward`` is replaced on the instance: parameters, buffers and state_dict stay what they were. A call that
the kernels were not made for (another shape, dtype, layout, device or mode) runs the model's own forward, said once.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab.errors import ProfileError, SwapError
from kernellab.whole.given import Given
from kernellab.whole.ranked import Profile, Row, profile_of
from kernellab.whole.regions import Region
from kernellab.whole.swap.build import build
from kernellab.whole.swap.call import Stand, callable_of, stand_of
from kernellab.whole.swap.check import expected, fault, misfit
from kernellab.whole.swap.clock import Paired, alone, backward_alone, paired
from kernellab.whole.unit import Unit

if TYPE_CHECKING:
    import torch

    from kernellab.session import Session
    from kernellab.session.kernel import BestKernel
    from kernellab.whole.gradient.pair import Pair

    Module = torch.nn.Module


@dataclass(frozen=True, eq=False)
class Swap:
    """A kernel in its places. ``factor`` is how many times as fast as the region it is by itself; ``predicted_ms`` of
    a step follows from it and the profile alone; ``time`` is what was measured, None where that was not asked for.
    ``backward`` is the factor of its gradients where the model trains: below 1 without a backward kernel, since the
    reference's forward then runs again."""

    row: Row
    label: str
    factor: float
    predicted_ms: float
    profiled_ms: float
    time: Paired | None = None
    backward: float = 1.0

    @property
    def predicted(self) -> float:
        """How many times as fast the whole model was predicted to be, with all that is installed."""
        return self.profiled_ms / self.predicted_ms

    @property
    def measured(self) -> float | None:
        return self.time.speedup if self.time else None

    def __repr__(self) -> str:
        told = f", measured {self.time.text}" if self.time else ""
        places = f"{len(self.row.places)} places" if len(self.row.places) > 1 else "1 place"
        return (
            f"<{self.label} at {self.row.where} ({places}): {self.factor:.2f}x by itself; "
            f"the model predicted {self.predicted:.3f}x{told}>"
        )


@dataclass
class Installed:
    """What is installed in one model: the swaps in order, and each unit's rewritten call."""

    given: Given
    swaps: list[Swap] = field(default_factory=list)
    places: dict[str, list[tuple[Region, Callable[..., Any]]]] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The model as it was, for as long as this lasts."""
        held = {unit: unit.module.__dict__.pop("forward", None) for unit in self.units.values()}
        try:
            yield
        finally:
            for unit, forward in held.items():
                if forward is not None:
                    unit.module.__dict__["forward"] = forward

    def apply(self) -> None:
        """Write each unit's call anew."""
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
    the model is timed with and without. ``kernel`` is a session, its ``best``, a pair, or a function of the row's
    inputs; ``backward(gradients, inputs)`` gives the inputs' gradients where it is a function.

    Raises:
        ProfileError: the model was not profiled, or has no such row.
        SwapError: the kernel does not fit, or the model's numerics change; the model is then as it was before.
    """
    found = profile_of(model)
    if found is None:
        raise ProfileError(
            f"This {type(model).__name__} was not profiled.", "Profile it first: p = kernellab.profile(model, *inputs)."
        )
    row = found.row(at)
    function, label, factor, own = _kernel(kernel)
    backward = backward or own
    owner = found.given.model
    state = _INSTALLED.setdefault(owner, Installed(found.given))
    _check_free(state, row)
    places: list[tuple[Unit, Region, Callable[..., Any]]] = []
    for region in row.places:
        stand = stand_of(region, function, label, backward)
        if region is row.places[0]:
            _check_fits(found.given, row, stand)
        places.append((region.unit, region, callable_of(stand, len(region.inputs), len(region.outputs))))
    if factor is None:
        factor = alone(found.given, row, function)
    with state.paused():
        hidden = expected(found.given)
    before = {path: list(places) for path, places in state.places.items()}
    try:
        for unit, region, call in places:
            state.units[unit.path] = unit
            state.places.setdefault(unit.path, []).append((region, call))
        state.apply()
        wrong = fault(found.given, hidden)
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
            f"With {label} at {row.where} the model fails: {type(error).__name__}: {str(error).splitlines()[:1]}.",
            "It was taken out again; see that the kernel takes the row's inputs in order.",
        ) from error
    back = backward_alone(found.given, row, stand_of(row.places[0], function, label, backward))
    backs = {**{s.row: s.backward for s in state.swaps}, row: back}
    predicted = found.predict_rows([*((s.row, s.factor) for s in state.swaps), (row, factor)], backs)
    time = paired(found.given, state.paused) if measure else None
    swap = Swap(row, label, factor, predicted, found.step_ms, time, back)
    state.swaps.append(swap)
    return swap


def uninstall(model: Module | Profile, at: int | str | Row | None = None) -> int:
    """Take a kernel out again, or all of them; how many there were.

    Raises:
        SwapError: there is none at ``at``.
    """
    found = profile_of(model)
    owner = found.given.model if found is not None else model
    state = _INSTALLED.get(owner)
    if state is None or not state.swaps:
        if at is None:
            return 0
        raise SwapError(
            "No kernel is installed in this model.", "Install one with kernellab.install(model, row, kernel)."
        )
    gone = state.swaps if at is None else [s for s in state.swaps if s.row is at or at in (s.row.number, s.row.name)]
    gone = gone or [s for s in state.swaps if any(at == region.module for region in s.row.places)]
    if not gone:
        there = ", ".join(s.row.name for s in state.swaps)
        raise SwapError(f"No kernel is installed at {at!r}.", f"Choose one of {there}.")
    taken = {id(region) for swap in gone for region in swap.row.places}
    state.places = {path: [p for p in places if id(p[0]) not in taken] for path, places in state.places.items()}
    state.apply()
    count = len(gone)
    state.swaps = [s for s in state.swaps if s not in gone]
    return count


def installed(model: Module | Profile) -> tuple[Swap, ...]:
    """The kernels in a model, in the order of their coming."""
    owner = model.given.model if isinstance(model, Profile) else model
    state = _INSTALLED.get(owner)
    return tuple(state.swaps) if state else ()


def guarded(unit: Unit, rewritten: Callable[..., Any]) -> Callable[..., Any]:
    """A module's forward: ``rewritten`` for calls like the captured one, else the module's own."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_unflatten

    module = unit.module
    args, kwargs = unit.call
    wanted = [_guard(leaf) for leaf in tree_leaves((tuple(args), dict(kwargs)))]
    plain = not kwargs and all(isinstance(a, torch.Tensor) for a in args)
    outputs_spec, training = unit.out_spec, module.training
    single = len(unit.outputs) == 1 and outputs_spec.is_leaf()
    own = type(module).forward
    told: list[bool] = []

    def forward(*given: Any, **named: Any) -> Any:
        leaves = list(given) if plain and not named else tree_leaves((given, named))
        fits = module.training == training and len(leaves) == len(wanted)
        if not fits or [_guard(leaf) for leaf in leaves] != wanted:
            if not told and not torch.compiler.is_compiling():
                told.append(True)
                warnings.warn(
                    f"{type(module).__name__} was called otherwise than its kernels were made for (shape, dtype, "
                    "layout, device or mode): its own forward runs.",
                    stacklevel=3,
                )
            return own(module, *given, **named)
        made = rewritten(module, *leaves)
        return made[0] if single else tree_unflatten(list(made), outputs_spec)

    return forward


def _guard(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return tuple(value.shape), tuple(value.stride()), value.dtype, value.device
    return value


def _check_free(state: Installed, row: Row) -> None:
    for swap in state.swaps:
        if swap.row.taken & row.taken:
            raise SwapError(
                f"{swap.label} is installed at {swap.row.where}, and {row.name} covers some of the same operations.",
                f"kernellab.uninstall(model, {swap.row.number or swap.row.name!r}) first.",
            )


def _check_fits(given: Given, row: Row, stand: Stand) -> None:
    """Does the kernel run on the model's own values, with the region's results?"""
    remedy = "See that it takes the row's inputs in the order of its task (row.text)."
    try:
        wrong = misfit(given, row, stand)
    except Exception as error:  # whatever a kernel raises
        said = next(iter(str(error).splitlines()), "").rstrip(".")
        raise SwapError(f"{stand.label} fails at {row.where}: {type(error).__name__}: {said}.", remedy) from error
    if wrong:
        raise SwapError(f"{stand.label} does not fit {row.where}: {wrong}.", remedy)


def _kernel(kernel: Any) -> tuple[Callable[..., Any], str, float | None, Callable[..., Any] | None]:
    """The function, what it is called, how many times as fast as the region the judge found it, and its backward."""
    from kernellab.session import Session
    from kernellab.session.kernel import BestKernel
    from kernellab.whole.gradient.pair import Pair

    if isinstance(kernel, Pair):
        function, backward = kernel.kernels
        return function, kernel.task.name, kernel.forward.best.verdict.speedup, kernel.gradients_by(backward)

    best = kernel.best if isinstance(kernel, Session) else kernel
    if isinstance(best, BestKernel):
        best.check_allowed()
        return best.quick, best.name, best.verdict.speedup, None
    if not callable(best):
        raise SwapError(
            f"A {type(kernel).__name__} is not a kernel.",
            "Give a session, its best, a pair, or a function of the row's inputs.",
        )
    return best, getattr(best, "__name__", "kernel").strip("<>"), None, None


__all__ = ["Installed", "Swap", "install", "installed", "uninstall"]
