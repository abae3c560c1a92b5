"""The layout of the memory's tables: columns, and conversions between rows and records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kernellab.memory.features import LOGIC, SHAPE
from kernellab.memory.records import Failure, Kernel, Skill

if TYPE_CHECKING:
    import pyarrow as pa

KERNELS, FAILURES, SKILLS, META = "kernels", "failures", "skills", "meta"
#: Columns with few values, by which searches filter.
FILTERS = ("dsl", "backend", "operator_class", "chip")
#: The filters of nearly every search, the first N of FILTERS, as one column: an index with one short list of rows is
#: read instead of several long ones that must be intersected.
JOINED: Mapping[int, str] = {2: "by_backend", 3: "by_class", 4: "by_chip"}
#: Bytes of the two vectors at the beginning of each packed record.
_HEAD = 4 * (LOGIC + SHAPE)


class Tally(NamedTuple):
    """A value (:class:`kernellab.memory.records.Value`) in a form that a search reads thirty times faster."""

    mean: float
    uses: int


class Facts(NamedTuple):
    """What ranks a kernel. A packed record holds them as a JSON list in this order, so a new one goes last, with a new
    version of the store."""

    id: str
    graph: str
    dsl: str
    backend: str
    operator_class: str
    chip: str
    #: Digest of its sketch.
    made: str
    draft: Tally
    refine: Tally
    thumb: int
    pinned: bool
    stale: bool

    @classmethod
    def of(cls, kernel: Kernel) -> Facts:
        made = hashlib.sha256((kernel.sketch or kernel.id).encode()).hexdigest()[:16]
        draft, refine = Tally(kernel.draft.mean, kernel.draft.uses), Tally(kernel.refine.mean, kernel.refine.uses)
        return cls(
            kernel.id, kernel.graph, kernel.dsl, kernel.backend, kernel.operator_class, kernel.chip, made, draft,
            refine, kernel.thumb, kernel.pinned, bool(kernel.stale),
        )  # fmt: skip

    def as_list(self) -> list[Any]:
        """The facts as they are stored: the two tallies as two numbers each."""
        *names, draft, refine, thumb, pinned, stale = self
        return [*names, *draft, *refine, thumb, pinned, stale]

    @classmethod
    def from_list(cls, stored: list[Any]) -> Facts:
        id, graph, dsl, backend, operator_class, chip, made, *values = stored
        draft_mean, draft_uses, refine_mean, refine_uses, thumb, pinned, stale = values
        draft, refine = Tally(draft_mean, draft_uses), Tally(refine_mean, refine_uses)
        return cls(id, graph, dsl, backend, operator_class, chip, made, draft, refine, thumb, pinned, stale)


@dataclass(frozen=True)
class Near:
    """A kernel that a search has found: the facts that rank it, and its record, which is parsed when it is chosen."""

    facts: Facts
    logic: np.ndarray
    shape: np.ndarray
    cosine: float
    #: The record as stored, or as an object.
    record: bytes | Kernel
    #: The layer of the kernel; "" is the workspace's own.
    layer: str = ""

    @property
    def row(self) -> Row:
        kernel = self.record if isinstance(self.record, Kernel) else Kernel.model_validate_json(self.record)
        return Row(kernel, self.logic, self.shape, self.layer)


@dataclass(frozen=True)
class Row:
    """A kernel with its two vectors, as stored."""

    kernel: Kernel
    logic: np.ndarray
    shape: np.ndarray
    #: The layer from which it was read; "" is the workspace's own.
    layer: str = ""


def schema(name: str) -> pa.Schema:
    """Return a table's Arrow schema."""
    import pyarrow as pa

    text = pa.string()
    columns: dict[str, list[tuple[str, Any]]] = {
        META: [],
        KERNELS: [
            ("graph", text), ("task", text), *((column, text) for column in FILTERS), ("dtype", text),
            *((column, text) for column in JOINED.values()),
            ("speedup", pa.float32()), ("stale", pa.bool_()), ("text", text),
            ("logic", pa.list_(pa.float32(), LOGIC)), ("shape", pa.list_(pa.float32(), SHAPE)),
        ],
        FAILURES: [("graph", text), ("dsl", text), ("operator_class", text), ("signature", text)],
        SKILLS: [("operator_class", text), ("dsl", text), ("chip", text), ("approved", pa.bool_())],
    }  # fmt: skip
    record = ("record", pa.binary() if name == KERNELS else text)
    return pa.schema([("id", text), *columns[name], record])


def joined(values: Mapping[str, str]) -> tuple[str, str] | None:
    """The column of JOINED that covers all ``values``, and its value; None if there is none."""
    columns = FILTERS[: len(values)]
    if len(values) not in JOINED or not all(column in values for column in columns):
        return None
    # only the last one, the chip, is free text
    return JOINED[len(values)], "|".join(values[column] for column in columns)


def kernel_row(row: Row) -> dict[str, Any]:
    """Return a kernel's row for the store."""
    kernel = row.kernel
    filters = {column: getattr(kernel, column) for column in FILTERS}
    keys = (joined({column: filters[column] for column in FILTERS[:count]}) for count in JOINED)
    return {
        **filters, **dict(pair for pair in keys if pair),
        "id": kernel.id, "graph": kernel.graph, "task": kernel.task, "dtype": kernel.dtype,
        "speedup": kernel.measured.speedup or 0.0, "stale": bool(kernel.stale),
        "text": text_of(kernel),
        "logic": row.logic.astype(np.float32), "shape": row.shape.astype(np.float32),
        "record": _packed(row),
    }  # fmt: skip


def text_of(kernel: Kernel) -> str:
    """The text that a search by words reads."""
    return " ".join((kernel.name, kernel.operator_class, *kernel.words, kernel.rationale))


def failure_row(failure: Failure) -> dict[str, Any]:
    """Return a failure's row for the store."""
    return {
        "id": failure.id, "graph": failure.graph, "dsl": failure.dsl, "operator_class": failure.operator_class,
        "signature": failure.signature, "record": failure.model_dump_json(),
    }  # fmt: skip


def skill_row(skill: Skill) -> dict[str, Any]:
    """Return a skill's row for the store."""
    return {
        "id": skill.id, "operator_class": skill.operator_class, "dsl": skill.dsl, "chip": skill.chip,
        "approved": skill.approved, "record": skill.model_dump_json(),
    }  # fmt: skip


def _packed(row: Row) -> bytes:
    """Pack a kernel into one value, beginning with the ranking data: a search reads one value per row, and the cost of
    reads depends more on their number than on their size. Layout: both vectors, the length of the facts, the facts, the
    record."""
    kernel = row.kernel
    facts = json.dumps(Facts.of(kernel).as_list()).encode()
    vectors = row.logic.astype(np.float32).tobytes(), row.shape.astype(np.float32).tobytes()
    return b"".join((*vectors, len(facts).to_bytes(4, "little"), facts, kernel.model_dump_json().encode()))


class _Packed(NamedTuple):
    """What follows the vectors in a packed value, both JSON."""

    facts: bytes
    record: bytes


def _unpacked(value: bytes) -> _Packed:
    start = _HEAD + 4
    end = start + int.from_bytes(value[_HEAD:start], "little")
    return _Packed(value[start:end], value[end:])


def near_of(row: Row, logic: np.ndarray) -> Near:
    """Return an in-memory row in the form of a search result."""
    lengths = float(np.linalg.norm(row.logic) * np.linalg.norm(logic))
    cosine = float(row.logic @ logic) / max(lengths, 1e-30)
    return Near(Facts.of(row.kernel), row.logic, row.shape, cosine, row.kernel, row.layer)


def near(table: Any, logic: np.ndarray) -> list[Near]:
    """Return the rows of an Arrow table with a ``record`` column, nearest to ``logic`` first.

    An index stores its vectors with one byte per number; the cosines are computed here from the exact vectors in the
    rows.
    """
    values = table["record"].to_pylist()
    if not values:
        return []
    vectors = np.stack([np.frombuffer(value, np.float32, LOGIC + SHAPE) for value in values])
    logics, shapes = vectors[:, :LOGIC], vectors[:, LOGIC:]
    lengths = np.linalg.norm(logics, axis=1) * np.linalg.norm(logic)
    cosines = (logics @ logic.astype(np.float32)) / np.maximum(lengths, 1e-30)
    packed = [_unpacked(value) for value in values]
    # one call for all rows, which takes a fraction of the time
    facts = json.loads(b"[" + b",".join(value.facts for value in packed) + b"]")
    return [
        Near(Facts.from_list(facts[at]), logics[at], shapes[at], float(cosines[at]), packed[at].record)
        for at in np.argsort(-cosines, kind="stable")
    ]


def row_of(value: bytes) -> Row:
    """Return the row of a packed record."""
    vectors = np.frombuffer(value, np.float32, LOGIC + SHAPE)
    return Row(Kernel.model_validate_json(_unpacked(value).record), vectors[:LOGIC], vectors[LOGIC:])


__all__ = [
    "FAILURES", "FILTERS", "JOINED", "KERNELS", "META", "SKILLS", "Facts", "Near", "Row", "Tally", "failure_row",
    "joined", "kernel_row", "near", "near_of", "row_of", "schema", "skill_row", "text_of",
]  # fmt: skip
