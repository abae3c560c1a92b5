"""Vectors of entries' texts, if a person has configured an embedding model: for searches by words.

They are derived from the entries, so another model, or one with another vector length, makes them again. Designs do not
depend on them.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kernellab.errors import MemoryStoreError, ModelError, ModelFault
from kernellab.records import Role

if TYPE_CHECKING:
    from kernellab.models.settings import ModelSettings

#: Number of texts in one request, and characters of one text.
_BATCH, _MOST_CHARS = 64, 8000


@dataclass(frozen=True)
class Embedder:
    """``vectors`` returns an array of [texts, length], each of norm 1. Raises ModelError."""

    name: str
    vectors: Callable[[Sequence[str]], np.ndarray]


def open_embedder(choice: str, settings: ModelSettings) -> Embedder:
    """Return the model that ``choice`` names. Raises ModelError if it names none, or a dependency is missing."""
    kind, _, name = choice.partition(":")
    if kind == "model" and name:
        return _at_endpoint(name, settings)
    if kind == "local" and name:
        return _here(name)
    raise ModelError(ModelFault.CONFIG, f"{choice!r} names no embedding model.", "Write model:NAME or local:NAME.")


def _at_endpoint(name: str, settings: ModelSettings) -> Embedder:
    endpoint = settings.endpoint(Role.ANALYST, name)

    def ask(texts: Sequence[str]) -> np.ndarray:
        body = json.dumps({"model": name, "input": [text[:_MOST_CHARS] for text in texts]}).encode()
        headers = {"Content-Type": "application/json"}
        if endpoint.key:
            headers["Authorization"] = f"Bearer {endpoint.key}"
        request = urllib.request.Request(f"{endpoint.base_url}/embeddings", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=settings.stall_s) as reply:
                rows = sorted(json.load(reply)["data"], key=lambda row: row["index"])
            return _unit([row["embedding"] for row in rows], len(texts))
        except OSError as error:
            raise _fault(ModelFault.NETWORK, name, error) from None
        except (ValueError, KeyError, TypeError) as error:
            raise _fault(ModelFault.GARBAGE, name, error) from None

    return Embedder(name, _in_parts(ask))


def _fault(kind: ModelFault, name: str, error: Exception) -> ModelError:
    return ModelError(kind, f"The embedding model {name!r} gave no vectors: {error}.", "Check the endpoint.")


def _here(name: str) -> Embedder:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise ModelError(
            ModelFault.CONFIG, "An embedding model on this machine needs sentence-transformers.",
            'pip install "kernellab[embed]"',
        ) from None  # fmt: skip
    try:
        model = SentenceTransformer(name)
    except (OSError, ValueError) as error:
        raise ModelError(
            ModelFault.CONFIG,
            f"The embedding model {name!r} cannot be loaded: {error}.",
            "Name a model or a folder.",
        ) from None
    return Embedder(name, _in_parts(lambda texts: _unit(model.encode(list(texts)), len(texts))))


def _in_parts(ask: Callable[[Sequence[str]], np.ndarray]) -> Callable[[Sequence[str]], np.ndarray]:
    return lambda texts: np.concatenate([ask(texts[at : at + _BATCH]) for at in range(0, len(texts), _BATCH)])


def _unit(rows: object, count: int) -> np.ndarray:
    """Normalize the vectors. Raises ValueError unless there is one finite vector per text."""
    vectors = np.asarray(rows, dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != count or not np.isfinite(vectors).all():
        raise ValueError(f"{count} texts, and an answer of shape {vectors.shape}")
    unit: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


TABLE = "texts"
#: Number of entries whose texts are embedded at a time.
_PART = 256
#: Rank constant in the fusion of two rankings (Cormack, Clarke and Buettcher 2009).
_FUSED = 60


class Texts:
    """The vectors at ``uri`` by a model. Raises MemoryStoreError if they cannot be read or written."""

    def __init__(self, uri: str, embedder: Embedder) -> None:
        import lancedb

        self.uri, self._embedder = uri, embedder
        self._db = self._guard(lambda: lancedb.connect(uri, read_consistency_interval=timedelta(0)))

    def nearest(
        self, words: str, entries: Iterable[tuple[str, str]], limit: int, tell: Callable[[str], None] = lambda _: None
    ) -> list[str]:
        """Return the ids of the ``entries`` (id, text) with the meaning nearest to ``words``, best first.

        Texts without a vector are embedded first. ``tell`` receives a sentence if all are, because the stored ones are
        by another model or have another length.

        Raises:
            MemoryStoreError. ModelError: the model returns no vectors.
        """
        vector = self._embedder.vectors([words])[0]
        self._update(dict(entries), len(vector), tell)
        if TABLE not in self._guard(self._names):
            return []
        table = self._guard(lambda: self._db.open_table(TABLE))
        query = table.search(vector, vector_column_name="vector").distance_type("cosine").select(["id", "_distance"])
        return [row["id"] for row in self._guard(lambda: query.limit(limit).to_list())]

    def _update(self, texts: Mapping[str, str], length: int, tell: Callable[[str], None]) -> None:
        table = self._held(length, tell)
        stored_ids = set(self._guard(lambda: _ids(table))) if table is not None else set()
        new = [id for id in texts if id not in stored_ids]
        for offset in range(0, len(new), _PART):
            part = new[offset : offset + _PART]
            vectors = self._embedder.vectors([texts[id] for id in part])
            self._guard(partial(self._add, part, vectors))
        removed_ids = sorted(stored_ids - set(texts))
        if removed_ids and table is not None:
            listed = ", ".join("'" + id.replace("'", "''") + "'" for id in removed_ids)
            self._guard(lambda: self._db.open_table(TABLE).delete(f"id IN ({listed})"))

    def _held(self, length: int, tell: Callable[[str], None]) -> Any:
        """Return the table if its vectors are by this model and have that length; otherwise drop it and return None."""
        if TABLE not in self._guard(self._names):
            return None
        table = self._guard(lambda: self._db.open_table(TABLE))
        model = json.loads((table.schema.metadata or {}).get(b"model", b'""'))
        stored_length, name = table.schema.field("vector").type.list_size, self._embedder.name
        if (model, stored_length) == (name, length):
            return table
        difference = (
            f"by the model {model}" if model != name else f"of length {stored_length}, and {name} gives {length} now"
        )
        tell(f"The texts' vectors are {difference}: all texts are embedded again.")
        self._guard(lambda: self._db.drop_table(TABLE))
        return None

    def _names(self) -> list[str]:
        names: list[str] = self._db.list_tables().tables
        return names

    def _add(self, ids: Sequence[str], vectors: np.ndarray) -> None:
        import pyarrow as pa

        length = vectors.shape[1]
        schema = pa.schema(
            [("id", pa.string()), ("vector", pa.list_(pa.float32(), length))],
            metadata={b"model": json.dumps(self._embedder.name).encode()},
        )
        listed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float32).ravel()), length)
        data = pa.Table.from_arrays([pa.array(list(ids)), listed], schema=schema)
        table = self._db.create_table(TABLE, schema=schema, exist_ok=True)
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(data)

    def _guard(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:  # LanceDB raises RuntimeError, ValueError, OSError for faults of files
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise MemoryStoreError(
                f"The texts' vectors at {self.uri} cannot be used: {reason}", "Run `kernellab memory compact`."
            ) from error


def _ids(table: Any) -> list[str]:
    return [row["id"] for row in table.search().select(["id"]).to_list()]


def fused(*rankings: Sequence[str]) -> list[str]:
    """Merge several rankings: each place adds 1 / (60 + place)."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for place, id in enumerate(ranking, 1):
            scores[id] = scores.get(id, 0.0) + 1 / (_FUSED + place)
    return sorted(scores, key=lambda id: -scores[id])


__all__ = ["Texts", "fused"]
