"""Results of tuning on disk, so that the same search on the same machine is made once.

A key names the schedules, the chip, the backend, the versions that decide a kernel's speed, and the sizes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.content import installed, written
from kernellab.errors import KernellabError
from kernellab.records import Record, Timing
from kernellab.tuning.measure import Measured
from kernellab.tuning.search import Tuned
from kernellab.tuning.space import Point, Value

if TYPE_CHECKING:
    from kernellab.target import Target

_VERSIONS = ("kernellab", "torch", "triton", "apache-tvm-ffi")


class _Entry(Record):
    """A measured point, as in :class:`~kernellab.tuning.measure.Measured`."""

    sketch: str
    values: dict[str, int | float]
    time: Timing | None = None
    reason: str = ""


class _Result(Record):
    #: the position of the best point in ``measured``; None where nothing ran
    best: int | None
    measured: list[_Entry]


def key(designs: Sequence[str], target: Target, sizes: Mapping[str, object], fixed: Mapping[str, Value | str]) -> str:
    """Return a name for one search. ``sizes`` are those that it is made at, shapes and all."""
    described = {
        "designs": list(designs),
        "chip": [target.chip.name, target.chip.cores],
        "backend": target.backend.value,
        "dsl": target.dsl,
        "versions": {name: installed(name) for name in _VERSIONS},
        "sizes": {name: str(size) for name, size in sorted(sizes.items())},
        "fixed": dict(sorted(fixed.items())),
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:24]


def folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "kernellab" / "tuning"


def read(name: str, limit: int | str) -> Tuned | None:
    """Return the result of an earlier search with the same ``limit``; None without one."""
    try:
        result = _Result.model_validate_json((folder() / f"{name}-{limit}.json").read_text())
    except (OSError, ValueError):
        return None  # never searched, or a file that was cut off or of another version
    measured = [Measured(Point.of(e.sketch, e.values), e.time, e.reason) for e in result.measured]
    return Tuned(measured[result.best].point if result.best is not None else None, measured, cached=True)


def write(name: str, limit: int | str, tuned: Tuned) -> None:
    """Store a search's result; nothing is stored in a folder that cannot be written."""
    points = [m.point for m in tuned.measured]
    result = _Result(
        best=points.index(tuned.best) if tuned.best in points else None,
        measured=[
            _Entry(sketch=m.point.sketch, values=dict(m.point.values), time=m.time, reason=m.reason)
            for m in tuned.measured
        ],
    )
    with suppress(KernellabError):
        written(folder() / f"{name}-{limit}.json", result.model_dump_json())
