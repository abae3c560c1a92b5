"""A closed space of kernels, measured point by point: each kernel, its time, and the rewrites between them."""

from __future__ import annotations

import gzip
from functools import cache, cached_property
from pathlib import Path

from pydantic import Field

from kernellab.errors import EvolveError
from kernellab.evolve.records import Place
from kernellab.records import Record

FOLDER = Path(__file__).parent / "pools"
_SUFFIX = ".json.gz"
#: Ratio of an interval's ends above which a measurement is discarded.
MOST_SPREAD = 3.0


class Point(Record):
    """One kernel. Times are milliseconds; a speedup is the reference kernel's time over this one's."""

    #: Hashes of the sketch's normal form and of its code: two points may have the same code.
    key: str
    code: str = ""
    #: Why it has no time; "" if it has one.
    reason: str = ""
    ms: float | None = None
    #: Speedup over the first design, measured together, with the spread over the sweeps.
    speedup: float = 0.0
    low: float = 0.0
    high: float = 0.0
    modelled_ms: float | None = None
    place: Place = Place()
    #: Number of rewrites from the nearest seed.
    depth: int = 0


class Edges(Record):
    """The points to which one rewrite leads from a point."""

    rewrite: str
    to: tuple[int, ...]


class Provenance(Record):
    """How a pool was made."""

    command: str
    machine: str
    threads: int
    versions: dict[str, str]
    date: str
    #: Number of timing sweeps over all points, and of calls of each in a sweep.
    sweeps: int
    calls: int
    #: The machine's lowest and highest load during the measurement.
    load: tuple[float, float]


class Pool(Record):
    """Points 0 to ``seeds`` - 1 are the rules' designs; ``edges[n]`` are those of point n within the space."""

    name: str
    text: str
    dsl: str
    seeds: int
    points: tuple[Point, ...]
    edges: tuple[tuple[Edges, ...], ...]
    #: Sketches of the seeds and of the fastest point.
    sketches: dict[int, str] = Field(default_factory=dict)
    provenance: Provenance

    @cached_property
    def best(self) -> float:
        """The largest speedup over the first design in the space."""
        return max(point.speedup for point in self.points)


def names() -> list[str]:
    """The recorded spaces of this package."""
    return sorted(p.name.removesuffix(_SUFFIX) for p in FOLDER.glob(f"*{_SUFFIX}"))


@cache
def load(name: str) -> Pool:
    """Return a recorded space by name; a point without a usable measurement has a reason and no time.

    Raises:
        EvolveError: there is no space of that name.
    """
    path = FOLDER / f"{name}{_SUFFIX}"
    if not path.exists():
        raise EvolveError(f"There is no recorded space {name!r}.", f"There are {', '.join(names())}.")
    pool = Pool.model_validate_json(gzip.decompress(path.read_bytes()))
    # all points are compared with the first design: its speedup is 1 by definition, despite the noise of its sweeps
    first = pool.points[0].model_copy(update={"speedup": 1.0, "low": 1.0, "high": 1.0})
    return pool.model_copy(update={"points": (first, *map(_measured, pool.points[1:]))})


def _measured(point: Point) -> Point:
    """Return the point, without its time if the sweeps differ too much."""
    if point.reason or point.high <= MOST_SPREAD * point.low:
        return point
    reason = f"Its sweeps lie between {point.low:.3g}x and {point.high:.3g}x: no measurement."
    return point.model_copy(update={"reason": reason, "ms": None, "speedup": 0.0, "low": 0.0, "high": 0.0})


def write(pool: Pool, folder: Path = FOLDER) -> Path:
    """Write a space; the same content gives the same bytes."""
    path = folder / f"{pool.name}{_SUFFIX}"
    path.write_bytes(gzip.compress(pool.model_dump_json(exclude_defaults=True).encode(), 9, mtime=0))
    return path
