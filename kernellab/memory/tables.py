"""What the memory's tables look like: their columns, a row of each record, and a record of each row."""

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
#: columns with few values, by which searches filter
FILTERS = ("dsl", "backend", "operator_class", "chip")
#: what nearly every search filters by, the first so many of FILTERS, as one column: an index of one short list of rows
#: is read instead of several long ones that have to be intersected
JOINED: Mapping[int, str] = {2: "by_backend", 3: "by_class", 4: "by_chip"}
#: bytes of the two vectors that each packed record begins with
_HEAD = 4 * (LOGIC + SHAPE)


class Tally(NamedTuple):
    """A value (:class:`kernellab.memory.records.Value`), as a search reads it thirty times."""

    mean: float
    uses: int


@dataclass(frozen=True)
class Near:
    """What a search tells of a kernel: what it is ranked by, and its record, read when it is chosen. ``made`` names its
    sketch."""

    id: str
    graph: str
    dsl: str
    backend: str
    operator_class: str
    chip: str
    made: str
    draft: Tally
    refine: Tally
    thumb: int
    pinned: bool
    stale: bool
    logic: np.ndarray
    shape: np.ndarray
    cosine: float
    #: the record as the store has it, or as it is in memory
    record: bytes | Kernel
    #: the layer that it is of; "": the workspace's own
    layer: str = ""

    @property
    def row(self) -> Row:
        kernel = self.record if isinstance(self.record, Kernel) else Kernel.model_validate_json(self.record)
        return Row(kernel, self.logic, self.shape, self.layer)


@dataclass(frozen=True)
class Row:
    """A kernel with its two vectors, as the store keeps it."""

    kernel: Kernel
    logic: np.ndarray
    shape: np.ndarray
    #: the layer that it was read from; "": the workspace's own
    layer: str = ""


def schema(name: str) -> pa.Schema:
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
    """The column of JOINED that says all of ``values``, and its value; None where none does."""
    columns = FILTERS[: len(values)]
    if len(values) not in JOINED or not all(column in values for column in columns):
        return None
    # only the last one, the chip, is a text of anybody's
    return JOINED[len(values)], "|".join(values[column] for column in columns)


def kernel_row(row: Row) -> dict[str, Any]:
    kernel = row.kernel
    filters = {column: getattr(kernel, column) for column in FILTERS}
    keys = (joined({column: filters[column] for column in FILTERS[:count]}) for count in JOINED)
    return {
        **filters, **dict(one for one in keys if one),
        "id": kernel.id, "graph": kernel.graph, "task": kernel.task, "dtype": kernel.dtype,
        "speedup": kernel.measured.speedup or 0.0, "stale": bool(kernel.stale),
        "text": text_of(kernel),
        "logic": row.logic.astype(np.float32), "shape": row.shape.astype(np.float32),
        "record": _packed(row),
    }  # fmt: skip


def text_of(kernel: Kernel) -> str:
    """What a search by words looks at."""
    return " ".join((kernel.name, kernel.operator_class, *kernel.words, kernel.rationale))


def failure_row(failure: Failure) -> dict[str, Any]:
    return {
        "id": failure.id, "graph": failure.graph, "dsl": failure.dsl, "operator_class": failure.operator_class,
        "signature": failure.signature, "record": failure.model_dump_json(),
    }  # fmt: skip


def skill_row(skill: Skill) -> dict[str, Any]:
    return {
        "id": skill.id, "operator_class": skill.operator_class, "dsl": skill.dsl, "chip": skill.chip,
        "approved": skill.approved, "record": skill.model_dump_json(),
    }  # fmt: skip


def _packed(row: Row) -> bytes:
    """All of a kernel in one value, what hits are ranked by first: a search reads it once a row, and a read costs by
    its number more than by its bytes. Both vectors, the length of the facts, the facts, the record."""
    kernel = row.kernel
    created = _made(kernel)
    columns = [
        kernel.id, kernel.graph, kernel.dsl, kernel.backend, kernel.operator_class, kernel.chip, created,
        kernel.draft.mean, kernel.draft.uses, kernel.refine.mean, kernel.refine.uses, kernel.thumb, kernel.pinned,
        bool(kernel.stale),
    ]  # fmt: skip
    facts = json.dumps(columns).encode()
    vectors = row.logic.astype(np.float32).tobytes(), row.shape.astype(np.float32).tobytes()
    return b"".join((*vectors, len(facts).to_bytes(4, "little"), facts, kernel.model_dump_json().encode()))


def _unpacked(value: bytes) -> tuple[bytes, bytes]:
    """The facts and the record, both JSON, of a value behind its vectors."""
    start = _HEAD + 4
    end = start + int.from_bytes(value[_HEAD:start], "little")
    return value[start:end], value[end:]


def _made(kernel: Kernel) -> str:
    return hashlib.sha256((kernel.sketch or kernel.id).encode()).hexdigest()[:16]


def near_of(row: Row, logic: np.ndarray) -> Near:
    """A row in memory as a search tells of it."""
    kernel = row.kernel
    lengths = float(np.linalg.norm(row.logic) * np.linalg.norm(logic))
    return Near(
        kernel.id, kernel.graph, kernel.dsl, kernel.backend, kernel.operator_class, kernel.chip, _made(kernel),
        Tally(kernel.draft.mean, kernel.draft.uses), Tally(kernel.refine.mean, kernel.refine.uses), kernel.thumb,
        kernel.pinned, bool(kernel.stale), row.logic, row.shape, float(row.logic @ logic) / max(lengths, 1e-30),
        kernel, row.layer,
    )  # fmt: skip


def near(table: Any, logic: np.ndarray) -> list[Near]:
    """The rows of an Arrow table with its column ``record``, nearest to ``logic`` first.

    An index knows its vectors to a byte a number; the cosines are taken here, of the exact ones that rows bring along.
    """
    values = table["record"].to_pylist()
    if not values:
        return []
    vectors = np.stack([np.frombuffer(value, np.float32, LOGIC + SHAPE) for value in values])
    logics, shapes = vectors[:, :LOGIC], vectors[:, LOGIC:]
    lengths = np.linalg.norm(logics, axis=1) * np.linalg.norm(logic)
    cosines = (logics @ logic.astype(np.float32)) / np.maximum(lengths, 1e-30)
    parts = [_unpacked(value) for value in values]
    records = json.loads(b"[" + b",".join(facts for facts, _ in parts) + b"]")
    rows = []
    for at in np.argsort(-cosines, kind="stable"):
        record = parts[at][1]
        *names, draft, drafts, refine, refines, thumb, pinned, stale = records[at]
        id, graph, dsl, backend, operator_class, chip, created = names
        rows.append(
            Near(
                id, graph, dsl, backend, operator_class, chip, created, Tally(draft, drafts), Tally(refine, refines),
                thumb, pinned, stale, logics[at], shapes[at], float(cosines[at]), record,
            )
        )  # fmt: skip
    return rows


def row_of(value: bytes) -> Row:
    """A row of a packed record."""
    vectors = np.frombuffer(value, np.float32, LOGIC + SHAPE)
    return Row(Kernel.model_validate_json(_unpacked(value)[1]), vectors[:LOGIC], vectors[LOGIC:])


__all__ = [
    "FAILURES", "FILTERS", "JOINED", "KERNELS", "META", "SKILLS", "Near", "Row", "Tally", "failure_row",
    "joined", "kernel_row", "near", "near_of", "row_of", "schema", "skill_row", "text_of",
]  # fmt: skip
