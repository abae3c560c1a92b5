"""A closed space of kernels, measured point by point: what each is, what it took, and which rewrites lead where."""

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
#: an interval whose ends are farther apart than this factor is no measurement
MOST_SPREAD = 3.0


class Point(Record):
    """One kernel. Times are milliseconds; a speedup is the reference kernel's time over this one's."""

    #: the hash of the sketch's normal form, and of its code: two points may be one code
    key: str
    code: str = ""
    #: why it has no time; "" where it has
    reason: str = ""
    ms: float | None = None
    #: the ratio to the first design, measured together with it, and the spread over the sweeps
    speedup: float = 0.0
    low: float = 0.0
    high: float = 0.0
    modelled_ms: float | None = None
    place: Place = Place()
    #: rewrites away from the nearest seed
    depth: int = 0


class Edges(Record):
    """Where one rewrite leads from a point."""

    rewrite: str
    to: tuple[int, ...]


class Provenance(Record):
    """How a pool came to be."""

    command: str
    machine: str
    threads: int
    versions: dict[str, str]
    date: str
    #: of the clock: sweeps over all points, and calls of each in a sweep
    sweeps: int
    calls: int
    #: the machine's load while it was measured, least and most
    load: tuple[float, float]


class Pool(Record):
    """Points 0 to ``seeds`` - 1 are the rules' designs; ``edges[n]`` are those of point n within the space."""

    name: str
    text: str
    dsl: str
    seeds: int
    points: tuple[Point, ...]
    edges: tuple[tuple[Edges, ...], ...]
    #: sketches of the seeds and of the fastest point
    sketches: dict[int, str] = Field(default_factory=dict)
    provenance: Provenance

    @cached_property
    def best(self) -> float:
        """The largest speedup over the first design that the space has."""
        return max(point.speedup for point in self.points)


def names() -> list[str]:
    """The recorded spaces of this package."""
    return sorted(p.name.removesuffix(_SUFFIX) for p in FOLDER.glob(f"*{_SUFFIX}"))


@cache
def load(name: str) -> Pool:
    """A recorded space by name; a point without a usable measurement has a reason and no time.

    Raises:
        EvolveError: there is none of that name.
    """
    path = FOLDER / f"{name}{_SUFFIX}"
    if not path.exists():
        raise EvolveError(f"There is no recorded space {name!r}.", f"There are {', '.join(names())}.")
    pool = Pool.model_validate_json(gzip.decompress(path.read_bytes()))
    # the first design is what all others are compared with: 1 by definition, however its own sweeps scattered
    first = pool.points[0].model_copy(update={"speedup": 1.0, "low": 1.0, "high": 1.0})
    return pool.model_copy(update={"points": (first, *map(_measured, pool.points[1:]))})


def _measured(point: Point) -> Point:
    """The point; without its time where the sweeps differ so much that they say nothing."""
    if point.reason or point.high <= MOST_SPREAD * point.low:
        return point
    why = f"Its sweeps lie between {point.low:.3g}x and {point.high:.3g}x: no measurement."
    return point.model_copy(update={"reason": why, "ms": None, "speedup": 0.0, "low": 0.0, "high": 0.0})


def write(pool: Pool, folder: Path = FOLDER) -> Path:
    """Keep a space, the same bytes for the same content."""
    path = folder / f"{pool.name}{_SUFFIX}"
    path.write_bytes(gzip.compress(pool.model_dump_json(exclude_defaults=True).encode(), 9, mtime=0))
    return path
