"""A store of many entries: insert rate, index, disk, memory, time of a query and recall against an exact search.

``python -m tests.memory.evaluate.scale 1000 100000 1000000 --folder FOLDER``. The entries are synthetic neighbours of
the built-in suite's operators, with the suite's mix of classes; the queries are others. A query is the whole of
:func:`kernellab.memory.retrieval.retrieve` for three hits: "filtered" finds enough with all filters, "relaxed" has a
chip that no entry has, so that a filter is dropped.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from kernellab.memory.retrieval import Query, retrieve
from kernellab.memory.store import Store
from tests.memory.evaluate.entries import Entry, builtin, row

#: how far a synthetic neighbour's vector is from a real one (length 1)
_NOISE = 0.4
_BATCH = 10_000


def fill(store: Store, entries: list[Entry], count: int) -> float:
    """Seconds that ``count`` entries took to insert, without those that making them took."""
    rng, spent = np.random.default_rng(0), 0.0
    for start in range(0, count, _BATCH):
        rows = [row(entries[n % len(entries)], n + 1, rng, _NOISE) for n in range(start, min(start + _BATCH, count))]
        began = time.perf_counter()
        store.put(rows)
        spent += time.perf_counter() - began
    return spent


def queries(entries: list[Entry], count: int, chip: str) -> list[Query]:
    rng = np.random.default_rng(1)
    found = []
    for number in range(count):
        entry = entries[int(rng.integers(len(entries)))]
        near = row(entry, 3 * number + 3, rng, _NOISE)
        features = replace(entry.features, logic=near.logic, shape=near.shape, hash="query")
        found.append(Query(features, "cpp", "cpu", entry.family, chip))
    return found


def timed(store: Store, asked: list[Query]) -> dict[str, float]:
    for query in asked[:10]:
        retrieve(store, query)
    taken = []
    for query in asked:
        began = time.perf_counter()
        retrieve(store, query)
        taken.append(1e3 * (time.perf_counter() - began))
    return {"p50_ms": round(float(np.percentile(taken, 50)), 2), "p95_ms": round(float(np.percentile(taken, 95)), 2)}


def recall(store: Store, asked: list[Query], k: int = 10) -> float:
    """The share of the exact ``k`` nearest (same filters) that the index finds."""
    shares = []
    for query in asked:
        where = {"dsl": query.dsl, "backend": query.backend, "operator_class": query.operator_class}
        quick = {n.id for n in store.near(query.features.logic, where, k)}
        exact = {n.id for n in store.near(query.features.logic, where, k, exact=True)}
        shares.append(len(quick & exact) / max(1, len(exact)))
    return round(float(np.mean(shares)), 4)


def measure(count: int, folder: Path, entries: list[Entry]) -> dict[str, object]:
    place = folder / f"store-{count}"
    shutil.rmtree(place, ignore_errors=True)
    store = Store(str(place))
    spent = fill(store, entries, count)
    began = time.perf_counter()
    store.compact(now=True)
    store.index()
    indexed = time.perf_counter() - began
    store = Store(str(place))
    asked = queries(entries, 200, "a CPU")
    return {
        "entries": count, "insert_per_s": round(count / spent), "index_s": round(indexed, 1),
        "disk_mb": round(sum(p.stat().st_size for p in place.rglob("*") if p.is_file()) / 1e6),
        "filtered": timed(store, asked), "relaxed": timed(store, queries(entries, 200, "no such chip")),
        "recall_at_10": recall(store, asked[:100]),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), "load": os.getloadavg()[0],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", type=int, nargs="+")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--keep", action="store_true", help="leave the stores there")
    given = parser.parse_args()
    entries = builtin(given.folder / "builtin.pickle")
    for count in given.counts:
        print(json.dumps(measure(count, given.folder, entries)), flush=True)
        if not given.keep:
            shutil.rmtree(given.folder / f"store-{count}")


if __name__ == "__main__":
    main()
