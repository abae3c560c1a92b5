"""Transfers a remembered sketch to new designs: the most similar design, and the values of its tunables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernellab.errors import SketchError
from kernellab.sketch.check import load_program
from kernellab.sketch.program.program import Program

Value = int | float

#: Minimum similarity of designs: below it, nothing is carried over.
_LEAST = 0.5


@dataclass(frozen=True)
class Carried:
    """A design by index, with ``values`` of its tunables; ``likeness`` (0 to 1) is its structural similarity."""

    design: int
    values: tuple[tuple[str, Value], ...]
    likeness: float


def carried(
    sketch: str, values: Mapping[str, Value], designs: Sequence[str], why: str = "", whys: Sequence[str] = ()
) -> Carried | None:
    """Return the design most like ``sketch``, with the nearest of its choices for each of ``values``.

    ``why`` and ``whys`` are the rationales of both, whose first sentence names the schedule. None if no design is
    similar, or if the remembered sketch is no longer readable.

    Raises:
        SketchError: one of ``designs`` is invalid.
    """
    try:
        old = load_program(sketch)
    except SketchError:
        return None
    chosen = {c.name: c.value for c in old.tunables if c.value is not None} | dict(values)
    best: Carried | None = None
    best_score = 0.0
    for index, design in enumerate(designs):
        new = load_program(design)
        likeness = _likeness(old, new)
        same_schedule = bool(why) and index < len(whys) and why.split(".")[0] == whys[index].split(".")[0]
        if likeness < _LEAST or likeness + same_schedule <= best_score:
            continue
        best_score = likeness + same_schedule
        carried_over = {
            c.name: _nearest(chosen[c.name], c.choices) if c.name in chosen else c.value
            for c in new.tunables
            if c.name in chosen or c.value is not None
        }
        best = Carried(index, tuple(sorted((n, v) for n, v in carried_over.items() if v is not None)), likeness)
    return best


def with_values(sketch: str, values: Mapping[str, Value]) -> str:
    """Return ``sketch`` with other defaults of its tunables. Raises SketchError."""
    from kernellab.sketch.rewrite import edit
    from kernellab.sketch.syntax.parse import parse
    from kernellab.sketch.syntax.printer import format

    tree = parse(sketch)
    for name, value in values.items():
        if isinstance(value, int):
            tree = edit.with_value(tree, name, value)
    return format(tree)


def _likeness(old: Program, new: Program) -> float:
    """The similarity of two programs: equal launches, equal tunables, and overlapping sets of choices."""
    old_tunables, new_tunables = {c.name: c for c in old.tunables}, {c.name: c for c in new.tunables}
    all_names = old_tunables.keys() | new_tunables.keys()
    names = len(old_tunables.keys() & new_tunables.keys()) / len(all_names) if all_names else 1.0
    launches = min(len(old.kernels), len(new.kernels)) / max(len(old.kernels), len(new.kernels), 1)
    shared = [
        _overlap(old_tunables[n].choices, new_tunables[n].choices) for n in old_tunables.keys() & new_tunables.keys()
    ]
    sets = sum(shared) / len(shared) if shared else names
    return 0.5 * names + 0.25 * launches + 0.25 * sets


def _overlap(one: Sequence[Value], other: Sequence[Value]) -> float:
    a, b = set(one), set(other)
    return len(a & b) / len(a | b) if a | b else 1.0


def _nearest(value: Value, choices: Sequence[Value]) -> Value:
    """The choice with the smallest ratio to ``value``."""
    return min(choices, key=lambda c: abs(math.log2(max(c, 1e-9) / max(value, 1e-9))), default=value)


__all__ = ["Carried", "carried", "with_values"]
