"""A profile and the steps of a swap as text and as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernellab.model_integration.ranked import Profile, Row

#: rows of a table that is shown without being asked for more
ROWS = 15


def head(found: Profile) -> list[str]:
    """What was measured, in sentences."""
    measured, given = found.measured, found.given
    what = "a training step" if given.train else "a call"
    by = " as a CUDA graph" if measured.graph_ms else ""
    lines = [
        f"{given.name} on {given.device.type}: {what} takes {found.step_ms:.3g} ms{by}; the device works "
        f"{measured.device_ms:.3g} ms ({100 * found.busy:.0f} % of {measured.step_ms:.3g} ms by the clock).",
        f"{100 * found.coverage:.1f} % of the device time is joined to the captured graph.",
    ]
    lines += [f"Not captured: {problem.text}" for problem in found.captured.problems]
    lines += [
        f"{name}: {ms:.3g} ms" for name, ms in sorted(measured.other.items(), key=lambda x: -x[1])[:3] if ms > 0.01
    ]
    return lines


def table(found: Profile, most: int = ROWS) -> str:
    """The profile as text: one line for each row, ranked by what a kernel could gain."""
    lines = head(found)
    if not found.rows:
        return "\n".join(lines)
    step = found.measured.device_ms or 1.0
    lines.append(f"{'#':>3} {'gain':>8} {'time':>8} {'bound':>8} {'share':>6}  {'n':>3} {'kind':<10} region")
    for row in found.rows[:most]:
        lines.append(
            f"{row.number:>3} {row.gain_ms:8.3f} {row.time_ms:8.3f} {_bound(row):>8} "
            f"{100 * row.time_ms / step:5.1f}%  {len(row.places):>3} {row.kind:<10} {_region(row)}"
        )
    if len(found.rows) > most:
        lines.append(f"    ... and {len(found.rows) - most} more")
    if not all(row.bound_holds for row in found.rows[:most]):
        lines.append(
            "    bound -: the model takes less than the rates measured just now allow: profile it on a quiet machine."
        )
    limit = found.predict(reach=1.0)
    lines.append(
        f"All of them at their bounds: {limit:.3g} ms ({found.step_ms / limit:.2f}x); halfway there: "
        f"{found.predict():.3g} ms ({found.step_ms / found.predict():.2f}x). Times in ms, all places together."
    )
    return "\n".join(lines)


def sentence(found: Profile, speedups: Mapping[int | str, float]) -> str:
    """Amdahl's law with rows that become so many times as fast. Raises ProfileError, as :meth:`Profile.predict`."""
    after = found.predict(speedups)
    return f"A step takes {found.step_ms:.3g} ms; so it would take {after:.3g} ms: {found.step_ms / after:.2f}x."


def _bound(row: Row) -> str:
    return f"{row.bound_ms:.3f}" if row.bound_holds else "-"


def _region(row: Row) -> str:
    words = row.words if len(row.words) < 60 else f"{row.words[:57]}..."
    own = " (a module of its own)" if row.module else ""
    return f"{words}  {row.where}{own}  {row.shapes}"


def as_dict(found: Profile) -> dict[str, Any]:
    """The profile as plain data."""
    return {
        "model": found.given.name,
        "device": found.given.device.type,
        "train": found.given.train,
        "step_ms": found.step_ms,
        "clock_ms": found.measured.step_ms,
        "device_ms": found.measured.device_ms,
        "coverage": found.coverage,
        "problems": [
            {"part": p.path, "reason": p.reason, "remedy": p.remedy} for p in found.captured.problems
        ],
        "other_ms": dict(found.measured.other),
        "at_bound_ms": found.predict(reach=1.0),
        "rows": [
            {
                "number": row.number, "name": row.name, "kind": row.kind, "operations": row.words, "where": row.where,
                "module": row.module, "places": len(row.places), "shapes": row.shapes, "time_ms": row.time_ms,
                "backward_ms": row.backward_ms, "bound_ms": row.bound_ms if row.bound_holds else None,
                "gain_ms": row.gain_ms,
            }
            for row in found.rows
        ],
    }  # fmt: skip


__all__ = ["ROWS", "as_dict", "head", "sentence", "table"]
