"""How well the retrieval finds relatives: recall@5 and MRR over labelled queries of the built-in suite.

``python -m tests.memory.evaluate.recall --folder FOLDER``. The entries are the suite's tasks, one each. Each task is a
query, with its own computation held out. Its relatives are labelled apart from any feature of the memory: by the table
``KIN`` below, which says by name which tasks a person would look at first for each (written by hand from the tasks'
texts, before any run). Four ways to rank:

- text: BM25 over the tasks' texts, as a person's search without the graph,
- logic: cosine of the logic vectors alone,
- hierarchical: the retrieval as it is (computation, filters, shape, diversity), with values untouched,
- value: the same after a simulated past, in which entries were used for other queries (leave-one-out) and rewarded
  where they were relatives.
"""

from __future__ import annotations

import argparse
import math
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kernellab.memory.records import Purpose, Value
from kernellab.memory.retrieval import Query, retrieve
from kernellab.memory.store import Row, Store
from tests.memory.evaluate.entries import Entry, builtin, row
from tests.memory.evaluate.kin import kin

K = 5
#: simulated uses of an entry before the ranking by value
_PAST = 40


def tokens(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def by_text(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Each task's others by BM25 (k1 = 1.5, b = 0.75) over their texts."""
    bags = {e.key: Counter(tokens(e.text)) for e in entries}
    holding = Counter(word for bag in bags.values() for word in bag)
    mean = sum(sum(b.values()) for b in bags.values()) / len(bags)

    def score(query: Counter[str], bag: Counter[str]) -> float:
        length = sum(bag.values())
        total = 0.0
        for word in query:
            if bag[word]:
                idf = math.log(1 + (len(bags) - holding[word] + 0.5) / (holding[word] + 0.5))
                total += idf * bag[word] * 2.5 / (bag[word] + 1.5 * (0.25 + 0.75 * length / mean))
        return total

    return {e.key: sorted((o for o in bags if o != e.key), key=lambda o: -score(bags[e.key], bags[o])) for e in entries}


def by_logic(entries: Sequence[Entry]) -> dict[str, list[str]]:
    vectors = np.stack([e.features.logic for e in entries])
    near = vectors @ vectors.T
    names = [e.key for e in entries]
    return {n: [names[j] for j in np.argsort(-near[i]) if names[j] != n] for i, n in enumerate(names)}


def by_memory(entries: Sequence[Entry], rows: Mapping[str, Row], folder: Path) -> dict[str, list[str]]:
    store = Store(str(folder))
    store.put(list(rows.values()))
    found = {}
    for entry in entries:
        query = Query(entry.features, "cpp", "cpu", entry.family, "a CPU", without=(entry.features.hash,))
        found[entry.key] = [hit.kernel.name for hit in retrieve(store, query, 10)]
    return found


def with_past(entries: Sequence[Entry], rows: Mapping[str, Row], relatives: Mapping[str, set[str]]) -> dict[str, Row]:
    """Rows whose values come from uses for half of the queries; the other half is what is asked afterwards."""
    rng = np.random.default_rng(0)
    ranked = by_logic(entries)
    past = [e for n, e in enumerate(entries) if n % 2]
    made = dict(rows)
    for _ in range(_PAST):
        for entry in past:
            used = ranked[entry.key][int(rng.integers(K))]
            kernel = made[used].kernel
            value: Value = kernel.draft.after(1.0 if used in relatives.get(entry.key, set()) else 0.2)
            made[used] = Row(kernel.model_copy(update={Purpose.DRAFT.value: value}), made[used].logic, made[used].shape)
    return made


def figures(found: Mapping[str, Sequence[str]], relatives: Mapping[str, set[str]], asked: Sequence[str]) -> str:
    recalls, ranks = [], []
    for name in asked:
        wanted = relatives[name]
        recalls.append(len(wanted & set(found[name][:K])) / min(K, len(wanted)))
        ranks.append(next((1 / (n + 1) for n, other in enumerate(found[name][:10]) if other in wanted), 0.0))
    rng = np.random.default_rng(0)
    spread = [np.mean(rng.choice(recalls, len(recalls))) for _ in range(2000)]
    low, high = np.percentile(spread, [2.5, 97.5])
    return f"recall@{K} {np.mean(recalls):.3f} [{low:.3f}, {high:.3f}], MRR {np.mean(ranks):.3f}, {len(asked)} queries"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    folder = parser.parse_args().folder
    entries = builtin(folder / "builtin.pickle")
    hashes = {e.key: e.features.hash for e in entries}
    # what computes the same is held out of a query, so it is no relative that could be found
    relatives = {n: {o for o in found if hashes[o] != hashes[n]} for n, found in kin([e.key for e in entries]).items()}
    relatives = {n: found for n, found in relatives.items() if found}
    asked = sorted(relatives)
    rows = {e.key: row(e) for e in entries}
    later = [e.key for n, e in enumerate(entries) if not n % 2 and e.key in relatives]
    with tempfile.TemporaryDirectory() as place:
        plain = by_memory(entries, rows, Path(place) / "plain")
        learnt = by_memory(entries, with_past(entries, rows, relatives), Path(place) / "learnt")
    print("text        ", figures(by_text(entries), relatives, asked))
    print("logic       ", figures(by_logic(entries), relatives, asked))
    print("hierarchical", figures(plain, relatives, asked))
    print("of the queries that the past did not see:")
    print("hierarchical", figures(plain, relatives, later))
    print("with value  ", figures(learnt, relatives, later))


if __name__ == "__main__":
    main()
