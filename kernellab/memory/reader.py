"""Searches by vector with one hop between threads: LanceDB's own calls make six of them, 1 ms each when busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Search:
    """A search by cosine for ``limit`` rows. ``where`` is SQL; ``probes`` 0 asks no index, which is exact."""

    vector: np.ndarray
    column: str
    where: str
    columns: Sequence[str]
    limit: int
    probes: int


class Reader:
    """A table at ``uri``, read from any thread; it sees what others have written."""

    def __init__(self, uri: str, name: str) -> None:
        self._uri, self._name = uri, name
        self._table: Any = None

    def search(self, what: Search) -> Any:
        """The rows found, as an Arrow table, nearest first. Raises what LanceDB raises."""
        return _run(lambda: self._search(what))

    async def _search(self, what: Search) -> Any:
        query = (await self._open()).query().nearest_to(what.vector).column(what.column).distance_type("cosine")
        query = query.nprobes(what.probes) if what.probes else query.bypass_vector_index()
        if what.where:
            query = query.where(what.where)
        return await query.select([*what.columns, "_distance"]).limit(what.limit).to_arrow()

    async def _open(self) -> Any:
        if self._table is None:
            import lancedb

            db = await lancedb.connect_async(self._uri, read_consistency_interval=timedelta(0))
            self._table = await db.open_table(self._name)
        return self._table


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    """One loop a process, in its own thread: a notebook's thread runs a loop already."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="kernellab-memory", daemon=True).start()
    return loop


def _run(work: Callable[[], Awaitable[T]]) -> T:
    async def body() -> T:
        return await work()

    return asyncio.run_coroutine_threadsafe(body(), _loop()).result()


__all__ = ["Reader", "Search"]
