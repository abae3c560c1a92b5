"""Read-only layers below a workspace's own memory: the shipped library, and stores that a team shares.

A layer's entry is an example or a start: it does not count as verified until this machine has verified it. An own entry
hides the same one of a layer, and entries forgotten here are hidden in all layers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol, TypeVar

import numpy as np

from kernellab.errors import MemoryStoreError
from kernellab.memory.library import shipped
from kernellab.memory.store import Store
from kernellab.memory.tables import Near, Row, near_of, text_of

log = logging.getLogger("kernellab.memory")

T = TypeVar("T")
#: The name of the package's own library in hits.
LIBRARY = "the shipped library"


class Layer(Protocol):
    """The part of a store that a search reads."""

    def near(
        self, logic: np.ndarray, where: Mapping[str, str], limit: int, without: Sequence[str] = ()
    ) -> list[Near]: ...

    def words(self, text: str, limit: int) -> list[Row]: ...

    def get(self, id: str) -> Row | None: ...


class Shelf:
    """Rows in memory, each compared with the query: sufficient for a library of some dozens."""

    def __init__(self, name: str, rows: Iterable[Row]) -> None:
        self._rows = {row.kernel.id: replace(row, layer=name) for row in rows}

    def near(self, logic: np.ndarray, where: Mapping[str, str], limit: int, without: Sequence[str] = ()) -> list[Near]:
        fitting = (
            row
            for row in self._rows.values()
            if row.kernel.graph not in without and all(getattr(row.kernel, name) == v for name, v in where.items())
        )
        return sorted((near_of(row, logic) for row in fitting), key=lambda n: -n.cosine)[:limit]

    def words(self, text: str, limit: int) -> list[Row]:
        return matching(self._rows.values(), text, limit)

    def get(self, id: str) -> Row | None:
        return self._rows.get(id)


class Shared:
    """A store at a URI that others write; opened on first use, and never written."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @property
    def _store(self) -> Store:
        return _opened(self.uri)

    def near(self, logic: np.ndarray, where: Mapping[str, str], limit: int, without: Sequence[str] = ()) -> list[Near]:
        return [replace(near, layer=self.uri) for near in self._store.near(logic, where, limit, without)]

    def words(self, text: str, limit: int) -> list[Row]:
        # only the owner may make the index of words
        return [replace(row, layer=self.uri) for row in matching(self._store.kernels(), text, limit)]

    def get(self, id: str) -> Row | None:
        row = self._store.get(id)
        return replace(row, layer=self.uri) if row is not None else None


class Layered:
    """Several layers as one, in order of precedence. A layer of ``layers`` with a fault is omitted, and the fault is
    kept in ``faults``; a fault of ``own`` is raised."""

    def __init__(self, own: Layer | None, layers: Sequence[Layer], hidden: Collection[str], faults: list[str]) -> None:
        self._own, self._layers, self._hidden, self._faults = own, layers, hidden, faults

    def near(self, logic: np.ndarray, where: Mapping[str, str], limit: int, without: Sequence[str] = ()) -> list[Near]:
        nears: dict[str, Near] = {}
        for part in self._each(lambda layer: layer.near(logic, where, limit, without)):
            for near in part:
                nears.setdefault(near.facts.id, near)
        visible = [near for id, near in nears.items() if id not in self._hidden]
        return sorted(visible, key=lambda near: -near.cosine)[:limit]

    def words(self, text: str, limit: int) -> list[Row]:
        rows: dict[str, Row] = {}
        for part in self._each(lambda layer: layer.words(text, limit)):
            for row in part:
                rows.setdefault(row.kernel.id, row)
        return [row for id, row in rows.items() if id not in self._hidden][:limit]

    def get(self, id: str) -> Row | None:
        return next((row for row in self._each(lambda layer: layer.get(id)) if row is not None), None)

    def _each(self, ask: Callable[[Layer], T]) -> Iterator[T]:
        if self._own is not None:
            yield ask(self._own)
        for layer in self._layers:
            try:
                yield ask(layer)
            except MemoryStoreError as error:
                if str(error) not in self._faults:
                    log.warning("A layer of the memory is left out: %s", error)
                    self._faults.append(str(error))


@lru_cache(maxsize=1)
def library_layer() -> Shelf:
    """The package's own library."""
    return Shelf(LIBRARY, shipped())


@lru_cache(maxsize=16)
def _opened(uri: str) -> Store:
    return Store(uri, read_only=True)


def matching(rows: Iterable[Row], text: str, limit: int) -> list[Row]:
    """The rows whose name, operations or rationale contain most of the words of ``text``, names first."""
    query_words = {word for word in text.lower().replace("_", " ").split() if word}

    def score(row: Row) -> tuple[int, int]:
        name, all_words = row.kernel.name.lower(), text_of(row.kernel).lower()
        return sum(word in all_words for word in query_words), sum(word in name for word in query_words)

    scored = [(score(row), row) for row in rows]
    ranked = sorted((pair for pair in scored if pair[0][0]), key=lambda pair: pair[0], reverse=True)
    return [row for _, row in ranked[:limit]]


__all__ = ["LIBRARY", "Layer", "Layered", "Shared", "library_layer"]
