"""A store of many entries: insert rate, index, disk, memory, time of a query and recall against an exact search.

``python -m tests.memory.evaluate.scale 1000 100000 1000000 --folder FOLDER`` makes a store of each size, going on where
it stopped (``--seconds`` ends it early), and keeps it; with ``--ask`` it only asks those that are there, which wants a
quiet machine. The entries are synthetic neighbours of the built-in suite's operators, with the suite's mix of classes;
the queries are others. A query is the whole of :func:`kernellab.memory.retrieval.retrieve` for three hits, record
included: "filtered" finds enough with all filters, "relaxed" has a chip that no entry has, so that a filter is dropped,
"held out" leaves out a computation, as a benchmark does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from kernellab.memory.retrieval import Query, retrieve
from kernellab.memory.store import Store
from tests.memory.evaluate.entries import Entry, builtin, row

#: how far a synthetic neighbour's vector is from a real one (length 1)
_NOISE = 0.4
_BATCH = 25_000


def fill(store: Store, entries: list[Entry], count: int, until: float) -> dict[str, float]:
    """Insert up to ``count`` entries in all, batch by batch, each of numbers of its own; how many and in what time."""
    there, spent, put = store.count()["kernels"], 0.0, 0
    for start in range(there, count, _BATCH):
        if time.monotonic() > until:
            break
        rng = np.random.default_rng(start)
        rows = [row(entries[n % len(entries)], n + 1, rng, _NOISE) for n in range(start, min(start + _BATCH, count))]
        began = time.perf_counter()
        store.put(rows)
        spent += time.perf_counter() - began
        put += len(rows)
    return {"inserted": put, "insert_s": round(spent, 1)}


def make(count: int, folder: Path, entries: list[Entry], until: float) -> bool:
    """Make or go on with the store of ``count`` entries; is it whole? What was done is a line of ``made.jsonl``."""
    place = folder / f"store-{count}"
    store = Store(str(place))
    told: dict[str, object] = {"entries": count, **fill(store, entries, count, until)}
    whole = store.count()["kernels"] == count
    if whole and not (place / "indexed").exists() and time.monotonic() < until:
        began = time.perf_counter()
        store.compact(now=True)
        told["compact_s"] = round(time.perf_counter() - began, 1)
        began = time.perf_counter()
        store.index()
        told["index_s"] = round(time.perf_counter() - began, 1)
        (place / "indexed").touch()
    told["rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    with (folder / "made.jsonl").open("a") as out:
        out.write(json.dumps(told) + "\n")
    print(json.dumps(told), flush=True)
    return (place / "indexed").exists()


def queries(entries: list[Entry], count: int, chip: str, held_out: bool = False) -> list[Query]:
    rng = np.random.default_rng(1)
    found = []
    for number in range(count):
        entry = entries[int(rng.integers(len(entries)))]
        near = row(entry, 3 * number + 3, rng, _NOISE)
        features = replace(entry.features, logic=near.logic, shape=near.shape, hash="query")
        without = (near.kernel.graph,) if held_out else ()
        found.append(Query(features, "cpp", "cpu", entry.family, chip, without=without))
    return found


def timed(store: Store, asked: list[Query]) -> dict[str, float]:
    for query in asked[:20]:
        retrieve(store, query)
    taken, spent = [], time.process_time()
    for query in asked:
        began = time.perf_counter()
        retrieve(store, query)
        taken.append(1e3 * (time.perf_counter() - began))
    # what other programs do moves the first two and hardly the third
    p50, p95 = np.percentile(taken, [50, 95])
    cpu = 1e3 * (time.process_time() - spent) / len(asked)
    return {"p50_ms": round(float(p50), 2), "p95_ms": round(float(p95), 2), "cpu_ms": round(cpu, 2)}


def recall(store: Store, asked: list[Query], k: int = 10) -> float:
    """The share of the exact ``k`` nearest (same filters) that is among the candidates of a query for three hits."""
    shares = []
    for query in asked:
        where = {"dsl": query.dsl, "backend": query.backend, "operator_class": query.operator_class}
        quick = {n.facts.id for n in store.near(query.features.logic, where, 3 * k)}
        exact = {n.facts.id for n in store.near(query.features.logic, where, k, exact=True)}
        shares.append(len(quick & exact) / max(1, len(exact)))
    return round(float(np.mean(shares)), 4)


def ask(count: int, folder: Path, entries: list[Entry], exact: int) -> dict[str, object]:
    """The figures of a store that is there: p50 and p95 of 200 queries a kind, recall of ``exact`` queries."""
    place = folder / f"store-{count}"
    store, asked = Store(str(place)), queries(entries, 200, "a CPU")
    return {
        "entries": store.count()["kernels"],
        "disk_mb": round(sum(p.stat().st_size for p in place.rglob("*") if p.is_file()) / 1e6),
        "filtered": timed(store, asked), "relaxed": timed(store, queries(entries, 200, "no such chip")),
        "held_out": timed(store, queries(entries, 200, "a CPU", held_out=True)),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        # by now the index is in memory, cell by cell
        "filtered_again": timed(store, asked),
        "recall_at_10": recall(store, asked[:exact]), "load": round(os.getloadavg()[0], 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", type=int, nargs="+")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--ask", action="store_true", help="make nothing, ask the stores that are there")
    parser.add_argument("--exact", type=int, default=100, help="queries whose recall is taken; each is a full scan")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="insert nothing after so many seconds")
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    given.folder.mkdir(parents=True, exist_ok=True)
    entries = builtin(given.folder / "builtin.pickle")
    for count in given.counts:
        if given.ask or make(count, given.folder, entries, until):
            print(json.dumps(ask(count, given.folder, entries, given.exact)), flush=True)


if __name__ == "__main__":
    main()
