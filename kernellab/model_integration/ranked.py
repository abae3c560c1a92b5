"""A model's profile: regions ranked by what a kernel could gain there, and what that would do to the whole.

    gain = time x (1 - bound / time)

with the bound of the one cost model, and Amdahl's law for the whole: a region of share ``p`` made ``s`` times as fast
leaves ``1 - p + p / s`` of the step (Amdahl, 1967).
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kernellab.errors import CaptureError, ProfileError
from kernellab.model_integration.bound import bound_ms
from kernellab.model_integration.events import Event
from kernellab.model_integration.measure import Measured, join, measure
from kernellab.model_integration.regions import Region, propose, region_at
from kernellab.model_integration.sources import Workload, model_of, workload_of
from kernellab.model_integration.swap.build import swapped
from kernellab.model_integration.task_text import reference_text, task_text
from kernellab.model_integration.tree import text as tree_text
from kernellab.model_integration.unit import Captured, capture_model
from kernellab.model_integration.values import stats_of

if TYPE_CHECKING:
    from kernellab.session import Session

#: the profile of a model, by which its kernels find their places
_PROFILES: weakref.WeakKeyDictionary[Any, Profile] = weakref.WeakKeyDictionary()
#: a region of a smaller share of the step is not listed
_LEAST_SHARE = 0.002
#: a bound that is passed by more was measured badly
_SLACK = 1.05
#: what a kernel is taken to reach of its bound where a prediction is not told (the share of the gain)
REACH = 0.5


@dataclass(frozen=True, eq=False)
class Row:
    """A region, at all places where the model does the same at the same shapes. Times in ms over all places.

    ``backward_ms`` is what its gradients take, in addition to ``time_ms`` of the forward; ``module`` is the path of the
    model's own submodule that is its reference, "" where no submodule is exactly it. ``number`` counts from 1, by
    ``gain_ms``.
    """

    number: int
    name: str
    kind: str
    words: str
    places: tuple[Region, ...]
    time_ms: float
    backward_ms: float
    bound_ms: float
    text: str
    #: kernels that the forward launches on a GPU
    launches: int = 0

    @property
    def module(self) -> str:
        return self.places[0].module

    @property
    def bound_holds(self) -> bool:
        """Is there a bound, and does the model itself take no less? Else its operations cannot be counted, or its rates
        were measured while others worked."""
        return 0 < self.bound_ms <= _SLACK * self.time_ms

    @property
    def gain_ms(self) -> float:
        """What a kernel at the bound would save."""
        return max(0.0, self.time_ms - self.bound_ms)

    @property
    def where(self) -> str:
        """The module's path; with * for what differs between the places."""
        paths = [region.path.split(".") for region in self.places]
        if len({len(p) for p in paths}) > 1:
            return f"{'.'.join(paths[0])} ..."
        return ".".join(w[0] if len(set(w)) == 1 else "*" for w in zip(*paths, strict=True)) or "(model)"

    @property
    def shapes(self) -> str:
        """The first place's activations."""
        unit = self.places[0].unit
        values = [n.meta["val"] for n in self.places[0].inputs if n not in unit.state and n not in unit.constants]
        return ", ".join(f"{str(v.dtype).removeprefix('torch.')}{list(v.shape)}" for v in values[:3])

    @property
    def taken(self) -> frozenset[tuple[str, int]]:
        """The operations that it covers."""
        return frozenset((r.unit.path, i) for r in self.places for i in r.indices)


@dataclass(frozen=True, eq=False)
class Profile:
    """What :func:`profile` found. ``coverage`` is the share of the device time that is joined to the graph."""

    workload: Workload
    captured: Captured
    measured: Measured
    rows: tuple[Row, ...]
    coverage: float

    @property
    def step_ms(self) -> float:
        """One step by the clock; on a GPU replayed as a CUDA graph where the model can be, so that launches are not
        what is measured."""
        return self.measured.graph_ms or self.measured.step_ms

    def within(self, row: Row) -> Row | None:
        """The smallest other row of the list that holds all operations of ``row``; of two alike the first."""
        holds = [
            r for r in self.rows
            if r.taken >= row.taken and r is not row and (r.taken != row.taken or r.number < row.number)
        ]  # fmt: skip
        return min(holds, key=lambda r: len(r.taken), default=None)

    @property
    def busy(self) -> float:
        """The share of a step during which the device works."""
        return min(1.0, self.measured.device_ms / self.measured.step_ms) if self.measured.step_ms else 0.0

    def row(self, which: int | str | Row) -> Row:
        """A row by its number, its name, or the path of a module.

        Raises:
            ProfileError: there is none.
        """
        if isinstance(which, Row):
            return which
        for row in self.rows:
            if which in (row.number, row.name, str(row.number)):
                return row
        for row in self.rows:
            if any(which == region.module for region in row.places):
                return row
        matching = self._at(str(which)) if isinstance(which, str) else None
        if matching is not None:
            return matching
        raise ProfileError(
            f"The profile of {self.workload.name} has no row {which!r}.",
            f"Name a number from 1 to {len(self.rows)}, or the path of a module." if self.rows else self._without(),
        )

    def predict(self, speedups: Mapping[int | str, float] | None = None, *, reach: float | None = None) -> float:
        """ms of a step when rows are so many times as fast; with ``reach`` alone, when all of the list gain that share
        of what they could. Operations that several rows cover count once, for the first.

        Raises:
            ProfileError: there is no such row, or a speedup is no number above 0.
        """
        if speedups is not None:
            for which, factor in speedups.items():
                if not factor > 0:
                    raise ProfileError(f"Row {which!r} cannot be {factor} times as fast.", "Give a number above 0.")
            return self.predict_rows([(self.row(which), factor) for which, factor in speedups.items()])
        share = REACH if reach is None else reach
        return self.predict_rows([(r, r.time_ms / max(r.time_ms - share * r.gain_ms, 1e-9)) for r in self.apart()])

    def predict_rows(self, rates: Iterable[tuple[Row, float]], backward: Mapping[Row, float] | None = None) -> float:
        """As :meth:`predict`, for rows and how many times as fast each becomes, and its ``backward``. A kernel is one
        launch at each place, and every launch fewer saves the gap before it, too."""
        saved, fewer, covered = 0.0, 0, frozenset[tuple[str, int]]()
        for row, factor in rates:
            if factor > 0 and not row.taken & covered:
                saved += row.time_ms * (1 - 1 / factor)
                saved += row.backward_ms * (1 - 1 / (backward or {}).get(row, 1.0))
                fewer += max(0, row.launches - len(row.places))
                covered |= row.taken
        return max(self.step_ms - saved * self._scale - fewer * self.measured.gap_ms, 1e-9)

    def apart(self) -> tuple[Row, ...]:
        """Rows that share no operation, the greatest gain first."""
        rows: list[Row] = []
        covered: frozenset[tuple[str, int]] = frozenset()
        for row in self.rows:
            if row.gain_ms > 0 and not row.taken & covered:
                rows.append(row)
                covered |= row.taken
        return tuple(rows)

    def open(self, which: int | str | Row, **options: Any) -> Session:
        """A design session for a row, at exactly its shapes; options are :func:`kernellab.design`'s.

        Raises:
            ProfileError: there is no such row, or the model could not be captured.
        """
        from kernellab.session import design

        row = self.row(which)
        return design(row.text, name=row.name, **self.usual(options))

    def usual(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """A design's options; where neither they nor the workspace name a DSL, that of the model's device."""
        from kernellab.session.config import defaults
        from kernellab.session.record.journal import find_workspace

        own = "triton" if self.workload.device.type == "cuda" else "cpp"
        workspace = options.get("workspace")
        place = Path(workspace) if workspace is not None else find_workspace()
        return {**options, "dsl": options.get("dsl") or defaults(place).dsl or own}

    @property
    def _scale(self) -> float:
        """The profiler slows small operations down: their times are those of a step that takes as long as it does."""
        device = self.measured.device_ms
        return min(1.0, self.step_ms / device) if device else 1.0

    def _without(self) -> str:
        if not self.captured.problems:
            return "No operation of it takes time that a kernel could save."
        return f"Nothing of it was captured: {self.captured.problems[0].text}"

    def _at(self, path: str) -> Row | None:
        """A row for the module at ``path``, whatever its size."""
        times = join(self.measured, self.captured.units)
        for unit in self.captured.units:
            region = region_at(unit, path)
            if region is not None:
                return _row(region, [region], times, self.workload)
        return None

    @property
    def tree(self) -> str:
        """The tree of modules with the time of each: print it."""
        return tree_text(self.measured, self.workload.name)

    def __repr__(self) -> str:
        from kernellab.model_integration.display import table

        return table(self)


def profile(
    model: Any, *args: Any, train: bool = False, device: str | None = None, steps: int = 5, loss: Any = None,
    **kwargs: Any,
) -> Profile:  # fmt: skip
    """Where a model's time goes, and what kernels could gain.

    ``model`` is a module of this process, with the call's arguments behind it, or the path or text of a file that
    defines ``model`` or ``Model`` and ``inputs``. ``train``: a step is forward, loss and backward.

    Raises:
        ProfileError: the model cannot be built or called, or holds kernels already. What cannot be captured is reported
            in ``captured.problems``.
    """
    if isinstance(model, (str, Path)):
        workload = model_of(model, device=device, train=train)
    else:
        if isinstance(model, torch.nn.Module) and swapped(model):
            raise ProfileError(
                f"Kernels are installed in this {type(model).__name__}: its parts are no longer its own.",
                "Take them out first, kernellab.uninstall(model); the profile from before says what else could gain.",
            )
        workload = workload_of(model, args, kwargs, train=train, loss=loss)
    captured = capture_model(workload)
    measured = measure(workload, steps)
    times = join(measured, captured.units)
    joined = sum(event.forward + event.backward for event in times.values())
    groups: dict[str, list[Region]] = {}
    for unit in captured.units:
        for region in propose(unit):
            try:
                groups.setdefault(reference_text(region) + _layout(region), []).append(region)
            except ProfileError:
                continue
    least = _LEAST_SHARE * measured.device_ms
    heavy = [places for places in groups.values() if sum(e.forward for e in _events(places, times)) >= least]
    rows = sorted((_row(places[0], places, times, workload) for places in heavy), key=lambda r: -r.gain_ms)
    named = tuple(_numbered(rows))
    covered = joined / measured.device_ms if measured.device_ms else 0.0
    result = Profile(workload, captured, measured, named, covered)
    _PROFILES[workload.model] = result
    return result


def _row(first: Region, places: Iterable[Region], times: Mapping[tuple[str, int], Event], workload: Workload) -> Row:
    regions = tuple(places)
    stats = stats_of(workload, first)
    text = task_text(first, stats)
    events = _events(regions, times)
    name = _name(first)
    try:
        least = bound_ms(text, name, workload.device.type) * len(regions)
    except CaptureError:
        least = 0.0
    return Row(
        number=0, name=name, kind=first.kind, words=first.words, places=regions, bound_ms=least, text=text,
        time_ms=sum(e.forward for e in events), backward_ms=sum(e.backward for e in events),
        launches=sum(e.launches for e in events),
    )  # fmt: skip


def _numbered(rows: Iterable[Row]) -> Iterable[Row]:
    used: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        used[row.name] = count = used.get(row.name, 0) + 1
        name = row.name if count == 1 else f"{row.name}_{count}"
        yield replace(row, number=number, name=name)


def _name(region: Region) -> str:
    words = [w for w in re.split(r"\W+", region.words) if w]
    short = "_".join(dict.fromkeys(words[:1] + words[1:4]))
    name = re.sub(r"\W", "_", f"{region.path.rpartition('.')[2]}_{short}" if region.module else short)
    return name if name[:1].isalpha() else f"r_{name}"


def _events(places: Iterable[Region], times: Mapping[tuple[str, int], Event]) -> list[Event]:
    return [times[r.unit.path, i] for r in places for i in r.indices if (r.unit.path, i) in times]


def _layout(region: Region) -> str:
    """What the text does not say: shapes, dtypes and strides of what goes in."""
    values = [node.meta["val"] for node in region.inputs]
    return "\n# " + "; ".join(f"{v.dtype}{tuple(v.shape)}{v.stride()}" for v in values)


def profile_of(model: Any) -> Profile | None:
    """The newest profile of a model; a profile's own is itself."""
    return model if isinstance(model, Profile) else _PROFILES.get(model)


def forget(profile: Profile) -> None:
    """Lets a profile's model go: what is kept for :func:`profile_of` holds the model, too."""
    if _PROFILES.get(profile.workload.model) is profile:
        del _PROFILES[profile.workload.model]


__all__ = ["REACH", "Profile", "Row", "forget", "profile", "profile_of"]
