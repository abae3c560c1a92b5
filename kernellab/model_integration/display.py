"""A profile and the steps of a swap as text and as plain data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernellab.model_integration.tree import parts

if TYPE_CHECKING:
    from kernellab.model_integration.ranked import Profile, Row

#: cores of other work that are said; the share of a step below which a GPU waits for its launches
_BUSY, _LAUNCH_BOUND = 0.2, 0.7
#: rows of a table that is shown without being asked for more
ROWS = 15


def head(profile: Profile) -> list[str]:
    """What was measured, in sentences."""
    measured, workload = profile.measured, profile.workload
    what = "a training step" if workload.train else "a call"
    by = " as a CUDA graph" if measured.graph_ms else ""
    lines = [
        f"{workload.name} on {workload.device.type}: {what} takes {profile.step_ms:.3g} ms{by}; the device works "
        f"{measured.device_ms:.3g} ms ({100 * profile.busy:.0f} % of {measured.step_ms:.3g} ms by the clock).",
        f"{100 * profile.coverage:.1f} % of the device time is joined to the captured graph.",
    ]
    if measured.launches and profile.busy < _LAUNCH_BOUND:
        lines.append(
            f"Launch-bound: {measured.launches} kernels with {1e3 * measured.gap_ms:.2g} us from one to the next; "
            "fewer launches count most."
        )
    if measured.others > _BUSY:
        lines.append(
            f"Busy machine: other work used {measured.others:.1f} of {os.cpu_count()} cores meanwhile. Profile it "
            "again on a quiet one before you trust small differences."
        )
    lines += [f"Not captured: {problem.text}" for problem in profile.captured.problems]
    lines += [
        f"{name}: {ms:.3g} ms" for name, ms in sorted(measured.other.items(), key=lambda x: -x[1])[:3] if ms > 0.01
    ]
    return lines


def table(profile: Profile, most: int = ROWS) -> str:
    """The profile as text: one line for each row, ranked by what a kernel could gain."""
    lines = head(profile)
    if not profile.rows:
        return "\n".join(lines)
    step = profile.measured.device_ms or 1.0
    lines.append(f"{'#':>3} {'gain':>8} {'time':>8} {'bound':>8} {'share':>6}  {'n':>3} {'kind':<10} region")
    for depth, row in _nested(profile, profile.rows[:most]):
        lines.append(
            f"{row.number:>3} {row.gain_ms:8.3f} {row.time_ms:8.3f} {_bound(row):>8} "
            f"{100 * row.time_ms / step:5.1f}%  {len(row.places):>3} {row.kind:<10} {'  ' * depth}{_region(row)}"
        )
    if len(profile.rows) > most:
        lines.append(f"    ... and {len(profile.rows) - most} more")
    if any(row.bound_ms and not row.bound_holds for row in profile.rows[:most]):
        lines.append(
            "    bound -: the model takes less than the rates measured just now allow: profile it on a quiet machine."
        )
    if not all(row.bound_ms for row in profile.rows[:most]):
        lines.append("    bound ?: its operations cannot be counted; the gain is all of its time.")
    limit = profile.predict(reach=1.0)
    lines.append(
        f"All of them at their bounds: {limit:.3g} ms ({profile.step_ms / limit:.2f}x); halfway there: "
        f"{profile.predict():.3g} ms ({profile.step_ms / profile.predict():.2f}x). Times in ms, all places together."
    )
    return "\n".join(lines)


def _nested(profile: Profile, rows: Sequence[Row]) -> Iterator[tuple[int, Row]]:
    """The rows in order, those whose operations are all in another one below that, a level deeper."""
    below: dict[int, list[Row]] = {}
    for row in rows:
        holder = profile.within(row)
        while holder is not None and holder not in rows:
            holder = profile.within(holder)
        below.setdefault(holder.number if holder is not None else 0, []).append(row)

    def visit(number: int, depth: int) -> Iterator[tuple[int, Row]]:
        for row in below.get(number, ()):
            yield depth, row
            yield from visit(row.number, depth + 1)

    return visit(0, 0)


def sentence(profile: Profile, speedups: Mapping[int | str, float]) -> str:
    """Amdahl's law with rows that become so many times as fast. Raises ProfileError, as :meth:`Profile.predict`."""
    after = profile.predict(speedups)
    return f"A step takes {profile.step_ms:.3g} ms; so it would take {after:.3g} ms: {profile.step_ms / after:.2f}x."


def _bound(row: Row) -> str:
    return f"{row.bound_ms:.3g}" if row.bound_holds else "-" if row.bound_ms else "?"


def _region(row: Row) -> str:
    words = row.words if len(row.words) < 60 else f"{row.words[:57]}..."
    own = " (a separate module)" if row.module else ""
    return f"{words}  {row.where}{own}  {row.shapes}"


def as_dict(profile: Profile) -> dict[str, Any]:
    """The profile as plain data."""
    return {
        "model": profile.workload.name,
        "device": profile.workload.device.type,
        "train": profile.workload.train,
        "step_ms": profile.step_ms,
        "clock_ms": profile.measured.step_ms,
        "device_ms": profile.measured.device_ms,
        "coverage": profile.coverage,
        "problems": [
            {"part": p.path, "reason": p.reason, "remedy": p.remedy} for p in profile.captured.problems
        ],
        "other_ms": dict(profile.measured.other),
        "cores_of_others": profile.measured.others,
        "modules": [{"path": p.path, "total_ms": p.total_ms, "self_ms": p.self_ms} for p in parts(profile.measured)],
        "at_bound_ms": profile.predict(reach=1.0),
        "rows": [
            {
                "number": row.number, "name": row.name, "kind": row.kind, "operations": row.words, "where": row.where,
                "module": row.module, "places": len(row.places), "shapes": row.shapes, "time_ms": row.time_ms,
                "backward_ms": row.backward_ms, "bound_ms": row.bound_ms if row.bound_holds else None,
                "gain_ms": row.gain_ms, "within": within.number if (within := profile.within(row)) else None,
            }
            for row in profile.rows
        ],
    }  # fmt: skip


__all__ = ["ROWS", "as_dict", "head", "sentence", "table"]
