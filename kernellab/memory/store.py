"""The memory's tables in LanceDB: one each for kernels, failures and skills, and one for their version.

Embedded in the workspace by default; any URI that LanceDB accepts (``s3://``, ``db://``) works alike. Rows contain the
complete record as JSON next to the searched columns, so a store can be read back without loss.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from kernellab.errors import MemoryStoreError
from kernellab.memory.features import LOGIC, SHAPE
from kernellab.memory.records import Failure, Skill
from kernellab.memory.tables import (
    FAILURES,
    FILTERS,
    JOINED,
    KERNELS,
    META,
    SKILLS,
    Near,
    Row,
    failure_row,
    joined,
    kernel_row,
    row_of,
    schema,
    skill_row,
)
from kernellab.memory.tables import near as nearest

T = TypeVar("T")


@dataclass(frozen=True)
class Search:
    """A search by cosine for ``limit`` rows. ``where`` is SQL; with ``probes`` 0 it is exact, without an index."""

    vector: np.ndarray
    column: str
    where: str
    columns: Sequence[str]
    limit: int
    probes: int


class Reader:
    """A table at ``uri``, readable from any thread; each read sees other processes' writes."""

    def __init__(self, uri: str, name: str) -> None:
        self._uri, self._name = uri, name
        self._table: Any = None

    def search(self, what: Search) -> Any:
        """Return the rows as an Arrow table, nearest first. Raises LanceDB's errors."""
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
    """Return the process's loop, in its own thread: a notebook's thread already runs a loop."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="kernellab-memory", daemon=True).start()
    return loop


def _run(work: Callable[[], Awaitable[T]]) -> T:
    async def body() -> T:
        return await work()

    return asyncio.run_coroutine_threadsafe(body(), _loop()).result()


#: Layout version of the tables; a store of another version is refused, and an older one can be rebuilt.
VERSION = 4
#: Number of rows above which a search with an index is faster.
_INDEXED_FROM = 20_000
#: Number of small files of a table above which they are merged.
_MOST_FILES = 48
#: Attempts to write if another process writes at the same time.
_TRIES = 8
#: Seconds during which a table may be missing while another process creates it.
_CREATING = 1.0
#: Additional rows that a search reads if some are excluded; if too few remain, the search excludes them itself.
_LEFT_OUT = 8
#: Cells of the vector index that a search reads: at a million rows and a thousand cells, 24 find 0.91 of the nearest
#: ten, 32 find 0.98, 40 all.
_PROBES = 40


class Store:
    """The tables at ``uri``. Safe to use from several processes; each call sees other processes' writes.

    Raises:
        MemoryStoreError: the store cannot be opened, is of a newer kernellab, or its vectors have another length.
    """

    def __init__(self, uri: str, read_only: bool = False) -> None:
        self.uri, self._read_only = uri, read_only
        # LanceDB warns about tables that a rebuild replaces and about small indexes, which a person cannot change
        os.environ.setdefault("LANCEDB_LOG", "error")
        try:
            import lancedb
        except ImportError as error:
            raise MemoryStoreError(
                f"The memory needs LanceDB, which cannot be imported ({error}).", "pip install lancedb"
            ) from None
        if read_only and "://" not in uri and not Path(uri).is_dir():
            raise self._missing()  # LanceDB would create the folder
        self._db = self._guard("opened", lambda: lancedb.connect(uri, read_consistency_interval=timedelta(0)))
        self._tables: dict[str, Any] = {}
        self._reader = Reader(uri, KERNELS)
        self._check_version()

    # -- writing

    def put(self, rows: Sequence[Row]) -> None:
        """Add kernels; one with the same id is replaced."""
        if rows:
            self._merge(KERNELS, [kernel_row(row) for row in rows])

    def put_failures(self, failures: Sequence[Failure]) -> None:
        """Add failures; the change of a known one is replaced."""
        if failures:
            self._merge(FAILURES, [failure_row(f) for f in failures])

    def put_skills(self, skills: Sequence[Skill]) -> None:
        """Add skills; one with the same id is replaced."""
        if skills:
            self._merge(SKILLS, [skill_row(s) for s in skills])

    def remove(self, ids: Sequence[str]) -> int:
        """Remove entries by id from all tables and their files. Return their number."""
        if not ids:
            return 0
        listed = ", ".join(_quoted(i) for i in ids)
        removed = 0
        for name in (KERNELS, FAILURES, SKILLS):
            table = self._table(name)
            count_before = self._guard("read", table.count_rows)
            self._write(partial(table.delete, f"id IN ({listed})"))
            removed += count_before - self._guard("read", table.count_rows)
        if removed:
            self.compact(now=True)
        return removed

    def clear(self) -> None:
        """Replace the tables with empty ones, whatever the state of their files."""
        for name in (KERNELS, FAILURES, SKILLS):
            self._tables.pop(name, None)
            self._guard("written", partial(self._db.create_table, name, schema=schema(name), mode="overwrite"))
        self._reader = Reader(self.uri, KERNELS)

    def compact(self, now: bool = False) -> None:
        """Merge small files and drop unneeded versions; with ``now`` also recent ones."""
        # a recent reader may still use an older version; forgotten entries must be removed from every file
        older = timedelta(0) if now else timedelta(days=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for name in (KERNELS, FAILURES, SKILLS):
                self._write(partial(self._table(name).optimize, cleanup_older_than=older, delete_unverified=now))

    def tend(self) -> bool:
        """After writes, merge the files of tables with many small ones, which also updates their indexes. Return
        whether there were any."""
        changed = False
        for name in (KERNELS, FAILURES, SKILLS):
            table = self._table(name)
            if self._guard("read", table.stats)["fragment_stats"]["num_small_fragments"] > _MOST_FILES:
                self._write(partial(table.optimize, cleanup_older_than=timedelta(days=1)))
                changed = True
        return changed

    def index(self) -> None:
        """Make the indexes for a large store; a small one is searched completely, which is exact."""
        from lancedb.index import Bitmap, BTree, IvfSq

        table = self._table(KERNELS)
        rows = self._guard("read", table.count_rows)
        indexed = {index.columns[0] for index in table.list_indices()}
        for column in (*FILTERS, *JOINED.values()):
            if column not in indexed:
                self._write(partial(table.create_index, column, config=Bitmap()))
        for column in ("id", "graph"):
            if column not in indexed:
                self._write(partial(table.create_index, column, config=BTree()))
        if rows >= _INDEXED_FROM:
            parts = max(16, int(rows**0.5))
            # one byte per number: precise enough that only returned vectors are read again for an exact comparison,
            # which is the main cost of a query; and trained in a tenth of the time of product quantisation
            config = IvfSq(distance_type="cosine", num_partitions=parts, max_iterations=15, sample_rate=64)
            self._write(partial(table.create_index, "logic", config=config, replace=True))

    # -- reading

    def near(
        self, logic: np.ndarray, where: Mapping[str, str], limit: int, without: Sequence[str] = (), exact: bool = False
    ) -> list[Near]:
        """The kernels nearest in logic among those that match ``where``, nearest first; excludes the graph hashes
        ``without``.

        ``where`` maps a column of dsl, backend, operator_class, chip to its value. ``exact`` searches without an index.
        """
        self._table(KERNELS)
        joined_filter = joined(where)
        clauses = [
            f"{column} = {_quoted(value)}" for column, value in ([joined_filter] if joined_filter else where.items())
        ]
        probes = 0 if exact else _PROBES
        # an index finds equal values fast and excludes values slowly: excluded rows are read and dropped here
        count = limit + (_LEFT_OUT if without else 0)
        query = Search(logic.astype(np.float32), "logic", " AND ".join(clauses), ["record"], count, probes)
        rows = nearest(self._guard("searched", lambda: self._reader.search(query)), logic)
        allowed = [near for near in rows if near.facts.graph not in without]
        if len(allowed) < limit and len(rows) == count and without:
            clauses.append(f"graph NOT IN ({', '.join(_quoted(g) for g in without)})")
            narrowed = replace(query, where=" AND ".join(clauses), limit=limit)
            allowed = nearest(self._guard("searched", lambda: self._reader.search(narrowed)), logic)
        return allowed[:limit]

    def kernels(self, where: str = "") -> Iterator[Row]:
        """Yield every kernel, in batches; ``where`` is SQL over the columns."""
        batches = iter(self._guard("read", lambda: self._scan(KERNELS, ["record"], where).to_batches()))
        # files are read during the loop
        while (batch := self._guard("read", lambda: next(batches, None))) is not None:
            yield from (row_of(value) for value in batch["record"].to_pylist())

    def get(self, id: str) -> Row | None:
        """Return a kernel by its id."""
        return next(self.kernels(f"id = {_quoted(id)}"), None)

    def failures(self, where: str = "") -> list[Failure]:
        """Return failures; ``where`` is SQL over graph, dsl, signature, operator_class."""
        return [Failure.model_validate_json(r) for r in self._records(FAILURES, where)]

    def skills(self, where: str = "") -> list[Skill]:
        """Return skills; ``where`` is SQL over operator_class, dsl, chip."""
        return [Skill.model_validate_json(r) for r in self._records(SKILLS, where)]

    def words(self, text: str, limit: int) -> list[Row]:
        """Return kernels whose name, words or rationale contain ``text``, best first (full-text search, BM25)."""
        table = self._table(KERNELS)

        def ask() -> list[dict[str, Any]]:
            if not any("text" in index.columns for index in table.list_indices()):
                from lancedb.index import FTS

                table.create_index("text", config=FTS())
            query = table.search(text, query_type="fts").select(["record", "_score"])
            rows: list[dict[str, Any]] = query.limit(limit).to_list()
            return rows

        return [row_of(row["record"]) for row in self._guard("searched", ask)]

    def count(self) -> dict[str, int]:
        """The number of rows per table."""
        return {name: self._guard("read", self._table(name).count_rows) for name in (KERNELS, FAILURES, SKILLS)}

    # -- internal

    def _records(self, name: str, where: str) -> list[str]:
        rows = self._guard("read", lambda: self._scan(name, ["record"], where).to_list())
        return [row["record"] for row in rows]

    def _scan(self, name: str, columns: list[str], where: str) -> Any:
        query = self._table(name).search().select(columns)
        return query.where(where) if where else query

    def _merge(self, name: str, rows: list[dict[str, Any]]) -> None:
        import pyarrow as pa

        data = pa.Table.from_pylist(list({row["id"]: row for row in rows}.values()), schema=schema(name))
        table = self._table(name)
        self._write(
            lambda: table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(data)
        )

    def _table(self, name: str) -> Any:
        if name not in self._tables:
            self._tables[name] = self._guard("opened", lambda: self._opened(name))
        return self._tables[name]

    def _opened(self, name: str) -> Any:
        """Open a table. While another process creates it, it is listed but cannot be opened (LanceDB: ValueError)."""
        end = time.monotonic() + _CREATING
        while True:
            try:
                return self._open(name)
            except ValueError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)

    def _open(self, name: str) -> Any:
        tables = self._db.list_tables().tables
        if name not in tables and self._read_only:
            raise self._missing()
        if name not in tables:
            return self._db.create_table(name, schema=schema(name), exist_ok=True)
        table = self._db.open_table(name)
        if name == KERNELS:
            for column, length in (("logic", LOGIC), ("shape", SHAPE)):
                size = table.schema.field(column).type.list_size
                if size != length:
                    raise MemoryStoreError(
                        f"The memory at {self.uri} holds {column} vectors of length {size}, not {length}.",
                        "Run `kernellab memory rebuild`.",
                    )
        return table

    def _check_version(self) -> None:
        meta = self._table(META)
        rows = self._guard("read", lambda: meta.search().to_list())
        if not rows and self._read_only:
            raise self._missing()
        if not rows:
            import pyarrow as pa

            version_row = pa.Table.from_pylist([{"id": "version", "record": str(VERSION)}], schema=schema(META))
            self._write(lambda: meta.merge_insert("id").when_not_matched_insert_all().execute(version_row))
            return
        version = int(next(row["record"] for row in rows if row["id"] == "version"))
        if version < VERSION:
            raise MemoryStoreError(
                f"The memory at {self.uri} was written by an older kernellab (layout {version}, here {VERSION}).",
                "Move the folder away and run `kernellab memory rebuild`.",
            )
        if version > VERSION:
            raise MemoryStoreError(
                f"The memory at {self.uri} was written by a newer kernellab (layout {version}, here {VERSION}).",
                "Upgrade kernellab, or name another store.",
            )

    def _guard(self, done: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except MemoryStoreError:
            raise
        except Exception as error:  # LanceDB raises RuntimeError, ValueError, OSError for faults of files
            raise self._fault(done, error) from error

    def _missing(self) -> MemoryStoreError:
        return MemoryStoreError(f"There is no memory at {self.uri}.", f"`kernellab memory push {self.uri}` makes one.")

    def _fault(self, done: str, error: Exception) -> MemoryStoreError:
        return MemoryStoreError(
            f"The memory at {self.uri} cannot be {done}: {_first_line(error)}",
            "Check the disk, or move the folder away and run `kernellab memory rebuild`.",
        )

    def _write(self, work: Callable[[], object]) -> None:
        """Write; repeat if another process has written at the same time."""
        for attempt in range(_TRIES):
            try:
                work()
                return
            except Exception as error:
                if "conflict" not in str(error).lower() or attempt == _TRIES - 1:
                    raise self._fault("written", error) from error
                for table in self._tables.values():
                    table.checkout_latest()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


__all__ = ["VERSION", "Near", "Row", "Store"]
