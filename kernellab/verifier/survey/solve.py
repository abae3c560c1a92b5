"""Find inputs that reach an edge which no drawn input reached.

One element of an argument is changed, and the distances of all operations follow. If a distance is linear in the
element (affine and pointwise operations between the argument and the edge), one step of the secant method is
back-substitution and reaches the edge exactly; otherwise the steps are a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nextafter
from typing import Any

import torch

from kernellab.verifier.survey.operations import Edge
from kernellab.verifier.survey.watch import Place, Watch

Tensor = torch.Tensor
#: Secant steps for one edge; elements of an argument that are tried; and more of them for an edge that was reached
#: where it decides nothing.
_STEPS, _ELEMENTS, _MORE = 6, 2, 6
#: Denominator of the short fractions that are also tried.
_SHORT = 64
_SIDES = {"below": -1, "at": 0, "above": 1}


@dataclass(frozen=True)
class Patch:
    """``value`` at the flat ``index`` of the argument at ``position`` reaches ``edge``."""

    edge: Edge
    position: int
    index: int
    value: float


class Solver:
    """Search from ``args`` over the float arguments in ``bounds``, which holds the limits of their values. ``decides``:
    whether an answer depends on an edge that arguments reach; ``step``: the first step of a search from zero."""

    def __init__(
        self, run: Callable[[Sequence[Any]], Watch | None], args: Sequence[Any], base: Watch,
        bounds: dict[int, tuple[float, float]], seed: int, decides: Callable[[Edge, tuple[int, int, float]], bool],
        step: float = 0.125,
    ) -> None:  # fmt: skip
        self.run, self.args, self.base, self.bounds, self.decides = run, list(args), base, bounds, decides
        self.step = step
        self.generator = torch.Generator().manual_seed(seed)

    def solve(self, missing: Sequence[Edge], left: Callable[[], bool]) -> Iterator[Patch]:
        """Yield a patch for each edge in ``missing`` that can be reached while there is time ``left``."""
        unreached = {edge: located for edge in missing if (located := _place(edge, self.base)) is not None}
        undecided: set[Edge] = set()
        for position in self.bounds:
            count = self.args[position].numel()
            for number, index in enumerate(torch.randint(count, (_MORE,), generator=self.generator).tolist()):
                if number >= _ELEMENTS and undecided.isdisjoint(unreached):
                    break
                current = float(self.args[position].reshape(-1)[index])
                step = 0.25 * abs(current) + self.step
                moved = self._moved(position, index, current + step) if unreached and left() else None
                if moved is None:
                    continue
                for edge, (place, side) in list(unreached.items()):
                    if not left() or (number >= _ELEMENTS and edge not in undecided):
                        continue
                    value = self._reach(edge, place, side, (position, index), current, step, moved)
                    if value is None:
                        continue
                    if not self.decides(edge, (position, index, value)):
                        undecided.add(edge)
                        continue
                    del unreached[edge]
                    yield Patch(edge, position, index, value)

    def _moved(self, position: int, index: int, value: float) -> Watch | None:
        changed = self.args[position].contiguous().clone()
        changed.view(-1)[index] = value
        return self.run([*self.args[:position], changed, *self.args[position + 1 :]])

    def _reach(
        self, edge: Edge, place: Place, side: int, at: tuple[int, int], now: float, step: float, moved: Watch
    ) -> float | None:
        """Return the value at which the edge is reached, or None if this element does not lead there."""
        before, after = self._values(self.base, place), self._values(moved, place)
        if before is None or after is None or before.shape != after.shape:
            return None
        change = (after - before).nan_to_num(0.0, 0.0, 0.0)
        if not change.numel() or not bool(change.any()):
            return None
        element = int(change.abs().argmax())
        low, high = self.bounds[at[0]]
        x0, d0, x1, d1 = now, float(before[element]), now + step, float(after[element])
        if side == 0 and d1 == 0.0 and moved.edges.get(edge):
            return x1
        for _ in range(_STEPS):
            slope = (d1 - d0) / (x1 - x0) if x1 != x0 else 0.0
            if not isfinite(slope) or slope == 0.0:
                return None
            # Aim slightly beyond the edge for a side of it.
            target = side * max(0.25 * abs(d1), 1e-3) if side else 0.0
            x2 = min(max(x1 + (target - d1) / slope, low), high)
            if not isfinite(x2) or x2 == x1:
                return None
            watch = self._moved(*at, x2)
            if watch is None:
                return None
            values = self._values(watch, place)
            if values is None or values.shape != before.shape:
                return x2 if watch.edges.get(edge) else None
            # Another element may have reached the edge before.
            if watch.edges.get(edge) and _is_at(values[element], side):
                return x2
            x0, d0, x1, d1 = x1, d1, x2, float(values[element])
            if side == 0 and abs(d1) <= 1e-5 * (abs(d0) + abs(x1)):
                near = self._next_to(edge, place, element, at, x1)
                if near is not None:
                    return near
        return None

    def _next_to(self, edge: Edge, place: Place, element: int, at: tuple[int, int], x: float) -> float | None:
        """Try the values one rounding away from ``x``, and the nearest short fraction, for the edge itself."""
        tensor = self.args[at[0]]
        near = torch.tensor(x, dtype=tensor.dtype)
        values_near = [round(x * _SHORT) / _SHORT]
        for towards in (inf, -inf):
            if tensor.dtype.itemsize >= 4:
                values_near.append(float(torch.nextafter(near, torch.tensor(towards, dtype=tensor.dtype))))
            else:
                values_near.append(nextafter(x, towards))
        for value in values_near:
            watch = self._moved(*at, value)
            values = None if watch is None else self._values(watch, place)
            if watch is not None and watch.edges.get(edge) and (values is None or _is_at(values[element], 0)):
                return value
        return None

    @staticmethod
    def _values(watch: Watch, place: Place) -> Tensor | None:
        distance = watch.distances.get(place)
        return None if distance is None else distance.values.reshape(-1)


def _is_at(distance: Tensor, side: int) -> bool:
    return float(distance.sign()) == side


def _place(edge: Edge, base: Watch) -> tuple[Place, int] | None:
    """Return the distance whose sign an edge is, and that sign; None for other kinds of edges."""
    name, _, side = edge.name.rpartition(" ")
    place = (edge.op, edge.number, name)
    return (place, _SIDES[side]) if side in _SIDES and place in base.distances else None
