"""What the memory's tables look like: their columns, a row of each record, and a record of each row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernellab.memory.features import LOGIC, SHAPE
from kernellab.memory.records import Failure, Kernel, Skill, Value

if TYPE_CHECKING:
    import pyarrow as pa

KERNELS, FAILURES, SKILLS, META = "kernels", "failures", "skills", "meta"
#: columns with few values, by which searches filter
FILTERS = ("dsl", "backend", "operator_class", "chip")


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
    draft: Value
    refine: Value
    thumb: int
    pinned: bool
    stale: bool
    logic: np.ndarray
    shape: np.ndarray
    cosine: float
    record: bytes

    @property
    def row(self) -> Row:
        return Row(Kernel.model_validate_json(self.record), self.logic, self.shape)


@dataclass(frozen=True)
class Row:
    """A kernel with its two vectors, as the store keeps it."""

    kernel: Kernel
    logic: np.ndarray
    shape: np.ndarray


def schema(name: str) -> pa.Schema:
    import pyarrow as pa

    text = pa.string()
    columns: dict[str, list[tuple[str, Any]]] = {
        META: [],
        KERNELS: [
            ("graph", text), ("task", text), *((column, text) for column in FILTERS), ("dtype", text),
            ("speedup", pa.float32()), ("stale", pa.bool_()), ("text", text),
            ("logic", pa.list_(pa.float32(), LOGIC)), ("shape", pa.list_(pa.float32(), SHAPE)),
        ],
        FAILURES: [("graph", text), ("dsl", text), ("operator_class", text), ("signature", text)],
        SKILLS: [("operator_class", text), ("dsl", text), ("chip", text), ("approved", pa.bool_())],
    }  # fmt: skip
    record = ("record", pa.binary() if name == KERNELS else text)
    return pa.schema([("id", text), *columns[name], record])


def kernel_row(row: Row) -> dict[str, Any]:
    kernel = row.kernel
    return {
        "id": kernel.id, "graph": kernel.graph, "task": kernel.task, "dsl": kernel.dsl, "backend": kernel.backend,
        "operator_class": kernel.operator_class, "chip": kernel.chip, "dtype": kernel.dtype,
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
    its number more than by its bytes. The shape vector, the length of the facts, the facts, the record."""
    kernel = row.kernel
    made = hashlib.sha256((kernel.sketch or kernel.id).encode()).hexdigest()[:16]
    told = [
        kernel.id, kernel.graph, kernel.dsl, kernel.backend, kernel.operator_class, kernel.chip, made,
        kernel.draft.mean, kernel.draft.uses, kernel.refine.mean, kernel.refine.uses, kernel.thumb, kernel.pinned,
        bool(kernel.stale),
    ]  # fmt: skip
    facts = json.dumps(told).encode()
    parts = row.shape.astype(np.float32).tobytes(), len(facts).to_bytes(4, "little"), facts
    return b"".join((*parts, kernel.model_dump_json().encode()))


def _unpacked(value: bytes) -> tuple[bytes, bytes]:
    """The facts and the record, both JSON."""
    start = 4 * SHAPE + 4
    end = start + int.from_bytes(value[start - 4 : start], "little")
    return value[start:end], value[end:]


def near(found: Any) -> list[Near]:
    """The rows of an Arrow table; its vectors are read as arrays, not number by number."""
    count = found.num_rows
    if not count:
        return []
    logic = np.concatenate([np.asarray(chunk.flatten()) for chunk in found["logic"].chunks]).reshape(count, LOGIC)
    cosines = 1.0 - found["_distance"].to_numpy()
    rows = []
    for at, value in enumerate(found["record"].to_pylist()):
        facts, record = _unpacked(value)
        *names, draft, drafts, refine, refines, thumb, pinned, stale = json.loads(facts)
        id, graph, dsl, backend, operator_class, chip, made = names
        rows.append(
            Near(
                id, graph, dsl, backend, operator_class, chip, made, Value(mean=draft, uses=drafts),
                Value(mean=refine, uses=refines), thumb, pinned, stale, logic[at],
                np.frombuffer(value, np.float32, SHAPE), float(cosines[at]), record,
            )
        )  # fmt: skip
    return rows


def row_of(found: Mapping[str, Any]) -> Row:
    """A row with its vectors; of the second layout and the first the record is text."""
    record = found["record"] if isinstance(found["record"], str) else _unpacked(found["record"])[1]
    kernel = Kernel.model_validate_json(record)
    return Row(kernel, np.asarray(found["logic"], np.float32), np.asarray(found["shape"], np.float32))


__all__ = [
    "FAILURES", "FILTERS", "KERNELS", "META", "SKILLS", "Near", "Row", "failure_row", "kernel_row", "near", "row_of",
    "schema", "skill_row", "text_of",
]  # fmt: skip
