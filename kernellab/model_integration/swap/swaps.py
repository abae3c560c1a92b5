"""What is installed in a model: each kernel in its places, what was known of it before and measured then.

A module's ``forward`` is replaced on the instance: parameters, buffers and state_dict stay what they were. A unit (a
module that was captured as one graph) whose regions hold kernels runs its graph with the kernels' calls in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from kernellab.model_integration.ranked import Profile, Row
from kernellab.model_integration.sources import Workload
from kernellab.model_integration.swap.build import PlacedCall, build, calling, guarded
from kernellab.model_integration.swap.clock import Paired
from kernellab.model_integration.swap.place import InPlace, graph_speedup
from kernellab.model_integration.unit import Unit

#: a prediction is never below this, so that its ratio is a number
_LEAST_MS = 1e-9


@dataclass(frozen=True, eq=False)
class Gain:
    """What is known of a kernel before it is measured in the model. Speedups are kernel against region."""

    row: Row
    #: by itself, again and again on the same tensors
    speedup_alone: float
    #: the same of its gradients, where the model trains and ``in_place`` is None: below 1 without a backward kernel,
    #: since the reference's forward then runs again
    backward_speedup: float = 1.0
    #: kernel and region timed in the model's own step, on a CPU: then the prediction is of this, else of the profile
    in_place: InPlace | None = None


@dataclass(frozen=True, eq=False)
class Swap:
    """A kernel in its places: what was known before it was put in, and what was measured then."""

    label: str
    gain: Gain
    #: ms of a step of the model: predicted with all that is installed, and profiled without any kernel
    predicted_ms: float
    profiled_ms: float
    #: the model with all that is installed, compared with the model without any kernel and with the one before this
    #: kernel; None if not measured
    against_original: Paired | None = None
    against_previous: Paired | None = None

    @property
    def row(self) -> Row:
        return self.gain.row

    @property
    def predicted(self) -> float:
        """How many times as fast the whole model was predicted to be, with all that is installed."""
        return self.profiled_ms / self.predicted_ms

    @property
    def measured(self) -> float | None:
        return self.against_original.speedup if self.against_original else None

    def __repr__(self) -> str:
        measured = f", measured {self.against_original.text}" if self.against_original else ""
        places = f"{len(self.row.places)} places" if len(self.row.places) > 1 else "1 place"
        return (
            f"<{self.label} at {self.row.where} ({places}): {self.gain.speedup_alone:.2f}x by itself; "
            f"the model predicted {self.predicted:.3f}x{measured}>"
        )


@dataclass
class Installed:
    """What is installed in one model: the swaps in order, and the calls of kernels by the path of their unit."""

    workload: Workload
    swaps: list[Swap] = field(default_factory=list)
    calls: dict[str, list[PlacedCall]] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)
    #: :func:`graph_speedup` of the units that hold a kernel, by their paths: it is measured once
    graph_speedups: dict[frozenset[str], float] = field(default_factory=dict)

    def paused(self) -> AbstractContextManager[None]:
        """The model as it was, for as long as this lasts."""
        return calling({unit.module: None for unit in self.units.values()})

    def apply(self) -> None:
        """Write each unit's call again."""
        for path, unit in self.units.items():
            unit.module.__dict__.pop("forward", None)
            if self.calls[path]:
                unit.module.__dict__["forward"] = guarded(unit, build(unit, self.calls[path]))

    def put_in(self, calls: Iterable[PlacedCall]) -> None:
        """Kernels take the place of their regions in the model."""
        for call in calls:
            unit = call.region.unit
            self.units[unit.path] = unit
            self.calls.setdefault(unit.path, []).append(call)
        self.apply()

    def take_out(self, swaps: Iterable[Swap]) -> None:
        """These swaps' regions are computed by the model's own operations again."""
        gone = list(swaps)
        regions = {id(region) for swap in gone for region in swap.row.places}
        self.calls = {
            path: [call for call in calls if id(call.region) not in regions] for path, calls in self.calls.items()
        }
        self.apply()
        self.swaps = [swap for swap in self.swaps if swap not in gone]

    def predicted_ms(self, profile: Profile, new: Gain) -> float:
        """ms of a step with what is installed and ``new``, by what was known before."""
        gains = [*(swap.gain for swap in self.swaps), new]
        profiled = [(gain.row, gain.speedup_alone) for gain in gains if gain.in_place is None]
        predicted = profile.predict_rows(profiled, {gain.row: gain.backward_speedup for gain in gains})
        timed = [gain.in_place for gain in gains if gain.in_place is not None]
        if not timed:
            return predicted
        predicted -= profile.step_ms * sum(in_place.share for in_place in timed)
        return max(predicted, _LEAST_MS) / self._graph_speedup()

    def _graph_speedup(self) -> float:
        units = [unit for path, unit in self.units.items() if self.calls.get(path)]
        paths = frozenset(unit.path for unit in units)
        if paths not in self.graph_speedups:
            self.graph_speedups[paths] = graph_speedup(self.workload, units, self.paused)
        return self.graph_speedups[paths]


_BY_MODEL: weakref.WeakKeyDictionary[Any, Installed] = weakref.WeakKeyDictionary()


def installed_in(model: Any) -> Installed | None:
    """What is installed in a model; None where nothing ever was."""
    return _BY_MODEL.get(model)


def to_install_in(profile: Profile) -> Installed:
    """The same for a profile's model, which may be empty."""
    return _BY_MODEL.setdefault(profile.workload.model, Installed(profile.workload))


__all__ = ["Gain", "Installed", "Swap", "installed_in", "to_install_in"]
