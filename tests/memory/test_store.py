"""The store in LanceDB: what is put comes back, what is forgotten is gone, and faults are one sentence."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from kernellab.errors import MemoryStoreError
from kernellab.memory import store as module
from kernellab.memory.features import LOGIC, SHAPE, Features
from kernellab.memory.records import Failure, Kernel, Measured, Provenance, Purpose, Skill, Value
from kernellab.memory.retrieval import Query, retrieve, worth
from kernellab.memory.store import Row, Store
from kernellab.records import Source, Trust

ORIGIN = Provenance(origin="session", place="s-1", created=1.0)


def kernel(name: str, number: int = 0, **changes: object) -> Kernel:
    made = Kernel(
        name=name, task=f"task {name}", graph=f"graph of {name}", operator_class="norm", dsl="cpp", backend="cpu",
        chip="a chip", dtype="float32", source=Source(dsl="cpp", files={"kernel.py": f"# {name} {number}"}),
        sketch=f"sketch {name}{number}", measured=Measured(trust=Trust.T2, speedup=2.0), provenance=ORIGIN,
    )  # fmt: skip
    return made.model_copy(update=changes)


def vector(*places: int, length: int = LOGIC) -> np.ndarray:
    made = np.zeros(length, dtype=np.float32)
    made[list(places)] = 1.0
    return made / np.linalg.norm(made) if places else made


def row(name: str, *places: int, number: int = 0, extent: float = 0.0, **changes: object) -> Row:
    shape = np.full(SHAPE, extent, dtype=np.float32)
    return Row(kernel(name, number, **changes), vector(*places), shape)


def query(*places: int, **changes: object) -> Query:
    found = Features("graph of rms", {}, {}, vector(*places), np.zeros(SHAPE, dtype=np.float32), "float32")
    given = {"features": found, "dsl": "cpp", "backend": "cpu", "operator_class": "norm", "chip": "a chip"}
    return Query(**{**given, **changes})  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "memory"))


def test_what_was_put_comes_back_whole_and_the_same_entry_is_kept_once(store: Store) -> None:
    one = row("rms", 0, 1)
    store.put([one])
    store.put([one, row("rms", 0, 1, number=1)])
    assert store.count() == {"kernels": 2, "failures": 0, "skills": 0}
    back = store.get(one.kernel.id)
    assert back is not None
    assert back.kernel == one.kernel
    assert np.array_equal(back.logic, one.logic)


def test_another_process_sees_it_and_what_it_writes_is_seen(store: Store) -> None:
    store.put([row("rms", 0)])
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(_put, [(store.uri, start) for start in (1, 6)])
    assert store.count()["kernels"] == 11


def _put(uri: str, start: int) -> None:
    for number in range(start, start + 5):
        Store(uri).put([row("rms", 0, number=number)])


def test_a_forgotten_entry_is_in_no_table_and_in_no_file(store: Store, tmp_path: Path) -> None:
    secret = kernel("rms", rationale="a-word-that-nobody-else-writes")
    store.put([Row(secret, vector(0), np.zeros(SHAPE, dtype=np.float32)), row("other", 1)])
    assert store.remove([secret.id]) == 1
    assert store.get(secret.id) is None
    assert [r.kernel.name for r in store.kernels()] == ["other"]
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert files
    assert not [p for p in files if b"a-word-that-nobody-else-writes" in p.read_bytes()]


def test_failures_and_skills_are_found_by_what_they_are_about(store: Store) -> None:
    failure = Failure(graph="g", operator_class="norm", dsl="cpp", backend="cpu", stage="correct",
                      signature="edge-tile", reason="wrong", change="- a", speedup=1.5, provenance=ORIGIN)  # fmt: skip
    skill = Skill(advice="use it's tiles", change="BLOCK 64", ratio=1.3, low=1.2, high=1.4, dsl="cpp",
                  before="a", after="b", provenance=ORIGIN)  # fmt: skip
    store.put_failures([failure, failure])
    store.put_skills([skill])
    assert store.failures("signature = 'edge-tile'") == [failure]
    assert store.failures("signature = 'race'") == []
    assert store.skills() == [skill]


def test_words_find_a_kernel(store: Store) -> None:
    store.put([row("rms_norm", 0, rationale="two passes over each row"), row("gelu", 1, rationale="pointwise")])
    assert [r.kernel.name for r in store.words("passes", 3)] == ["rms_norm"]


def test_a_newer_store_a_broken_one_and_other_vectors_are_one_sentence(tmp_path: Path) -> None:
    import pyarrow as pa

    newer = Store(str(tmp_path / "newer"))
    later = pa.Table.from_pylist([{"id": "version", "record": "99"}])
    newer._table("meta").merge_insert("id").when_matched_update_all().execute(later)
    with pytest.raises(MemoryStoreError, match="newer kernellab"):
        Store(newer.uri)

    broken = Store(str(tmp_path / "broken"))
    broken.put([row("rms", 0)])
    for file in (tmp_path / "broken").rglob("*.manifest"):
        file.write_bytes(b"nothing")
    with pytest.raises(MemoryStoreError, match="cannot be") as raised:
        Store(broken.uri).count()
    assert "rebuild" in raised.value.remedy

    other = Store(str(tmp_path / "other"))
    other._db.create_table("kernels", schema=pa.schema(
        [("id", pa.string()), ("logic", pa.list_(pa.float32(), 8)), ("shape", pa.list_(pa.float32(), SHAPE))]
    ))  # fmt: skip
    with pytest.raises(MemoryStoreError, match=f"length 8, not {LOGIC}"):
        other.count()


def test_the_nearest_computation_comes_first_then_the_nearest_shape(store: Store) -> None:
    store.put([row("rms", 0, 1, extent=0.5), row("rms", 0, 1, number=1), row("layer", 0, 2), row("far", 9)])
    hits = retrieve(store, query(0, 1), k=3)
    assert [(h.kernel.name, h.shape == 1.0) for h in hits] == [("rms", True), ("rms", False), ("layer", True)]
    assert "the same sizes" in hits[0].why
    assert "far" not in {h.kernel.name for h in hits}


def test_filters_are_dropped_one_by_one_and_each_hit_says_which(store: Store) -> None:
    store.put([row("rms", 0, dsl="triton", backend="cuda", chip="a GPU"), row("rms", 0, number=1, chip="another")])
    first, second = retrieve(store, query(0), k=2)
    assert first.relaxed == ("chip",)
    assert set(second.relaxed) == {"chip", "backend", "dsl"}
    assert "of another chip" in first.why
    assert first.score > second.score


def test_a_held_out_computation_is_never_found(store: Store) -> None:
    store.put([row("rms", 0), row("rms", 0, number=1), row("layer", 0, 2)])
    hits = retrieve(store, query(0, without=("graph of rms",)), k=5)
    assert [h.kernel.name for h in hits] == ["layer"]


def test_use_and_a_persons_word_change_the_order_and_a_stale_entry_falls_back(store: Store) -> None:
    good, bad = Value(mean=0.9, uses=9), Value(mean=0.1, uses=9)
    store.put([row("a", 0, draft=bad, refine=good), row("b", 0, number=1, draft=good, refine=bad)])
    assert [h.kernel.name for h in retrieve(store, query(0), k=2)] == ["b", "a"]
    assert [h.kernel.name for h in retrieve(store, query(0, purpose=Purpose.REFINE), k=2)] == ["a", "b"]
    store.put([row("b", 0, number=1, draft=good, stale="another compiler")])
    assert retrieve(store, query(0), k=2)[0].kernel.name == "a"
    store.put([row("a", 0, draft=bad, thumb=-1)])
    assert [h.kernel.name for h in retrieve(store, query(0), k=2)] == ["b"]


def test_a_value_moves_towards_its_rewards_and_the_untried_get_a_chance() -> None:
    value = Value()
    for reward in (1.0, 1.0, 0.0):
        value = value.after(reward)
    assert (value.mean, value.uses) == (pytest.approx(2 / 3), 3)
    untried, tried = kernel("a"), kernel("b", draft=Value(mean=0.5, uses=50))
    assert worth(untried, Purpose.DRAFT) > worth(tried, Purpose.DRAFT)
    assert worth(kernel("c", pinned=True), Purpose.DRAFT) > worth(untried, Purpose.DRAFT)


def test_however_many_are_left_out_the_others_are_found(store: Store) -> None:
    store.put([row(f"own{n}", 0, graph="own") for n in range(14)])
    store.put([row(f"op{n}", n + 1) for n in range(4)])
    assert {n.facts.graph for n in store.near(vector(0), {"dsl": "cpp"}, 4)} == {"own"}
    found = store.near(vector(0), {"dsl": "cpp"}, 4, without=("own",))
    assert {n.row.kernel.name for n in found} == {f"op{n}" for n in range(4)}


def test_many_small_files_are_merged_and_nothing_is_lost(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", 3)
    for number in range(6):
        store.put([row(f"op{number}", number)])
    before = store._table("kernels").stats()["fragment_stats"]["num_fragments"]
    assert store.tend()
    assert store._table("kernels").stats()["fragment_stats"]["num_fragments"] < before
    assert not store.tend()
    assert {r.kernel.name for r in store.kernels()} == {f"op{n}" for n in range(6)}
    (near,) = store.near(vector(4), {"dsl": "cpp"}, 1)
    assert near.row.kernel.name == "op4"


def test_an_index_is_made_for_a_large_store_and_finds_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_INDEXED_FROM", 300)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(400, LOGIC)).astype(np.float32)
    rows = [Row(kernel(f"op{i}"), v / np.linalg.norm(v), np.zeros(SHAPE, np.float32)) for i, v in enumerate(vectors)]
    store.put(rows)
    exact = [n.facts.graph for n in store.near(rows[7].logic, {"dsl": "cpp"}, 5)]
    store.index()
    assert store.near(rows[7].logic, {"dsl": "cpp"}, 5)[0].facts.graph == exact[0] == "graph of op7"
