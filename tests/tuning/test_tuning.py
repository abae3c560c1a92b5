"""The tuner: it climbs, drops losers early, remembers, and measures only through the Verifier's workers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kernellab.dsls.machine import detect_target
from kernellab.records import Timing
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.tuning import Measured, Tuned, WorkerMeasure, cache, tune
from kernellab.tuning.space import Point, Space

TASK = """
import torch

def reference(x):
    return torch.relu(x) * 2

def inputs():
    return torch.randn(96, 1000)
"""
SKETCH = """
sketch doubled {
    tensors: x[96000]: f32; y[96000]: f32 out;
    constexpr: BLOCK = 512 in {64, 128, 256, 512, 1024, 2048}; UNUSED = 1 in {1, 2};

    @llm_hint("parallel", "coreidx")
    for i in range(0, 96000, BLOCK):
        load(x[i:i+BLOCK] -> a)
        store(relu(a) * 2.0 -> y[i:i+BLOCK])
}
"""
CPU = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 20))


def _space() -> Space:
    return Space(load_task(TASK, "doubled"), CPU)


def _timing(ms: float) -> Timing:
    return Timing(median_ms=ms, q1_ms=0.99 * ms, q3_ms=1.01 * ms, samples=20)


class Hill:
    """Times with one valley at BLOCK = ``best``; keeps what was asked."""

    def __init__(self, best: int) -> None:
        self.best, self.asked = best, list[tuple[Point, float]]()

    def __call__(self, point: Point, budget: float) -> Measured:
        self.asked.append((point, budget))
        block = dict(point.values)["BLOCK"]
        return Measured(point, _timing(1.0 + abs(math.log2(block / self.best))))


@pytest.mark.parametrize("best", [64, 256, 2048])
def test_the_climb_ends_at_the_fastest_values(best: int) -> None:
    found = tune([SKETCH], _space(), Hill(best), trials=30)
    assert found.best is not None and dict(found.best.values)["BLOCK"] == best
    assert f"BLOCK = {best}" in found.words()


def test_the_sentence_names_what_was_chosen_where_designs_have_no_tunables() -> None:
    one, other = Point.of("sketch a {}", {}), Point.of("sketch b {}", {})
    measured = [Measured(one, _timing(2.0)), Measured(other, _timing(1.0))]
    assert Tuned(one, measured).words() == "Tuned: 2 points measured, and the first design stays as it is."
    assert Tuned(other, measured, cached=True).words() == (
        "Tuned: 2 points measured earlier; the fastest is another design, 2.00x as fast as the first design's defaults."
    )
    unset, tiled = Point.of("sketch a {}", {"B": 8}), Point.of("sketch a {}", {"B": 16})
    assert Tuned(tiled, [Measured(unset, _timing(3.0)), Measured(tiled, _timing(2.0))]).words() == (
        "Tuned: 2 points measured; the fastest is the first design with B = 16, 1.50x as fast as the first design's "
        "defaults."
    )


def test_no_more_points_are_measured_than_allowed_and_none_longer_than_it_takes() -> None:
    hill = Hill(64)
    found = tune([SKETCH], _space(), hill, trials=4)
    assert len(found.measured) <= 4 == len({p for p, _ in hill.asked} | {m.point for m in found.measured})
    times: dict[Point, int] = {}
    for point, _ in hill.asked:
        times[point] = times.get(point, 0) + 1
    assert min(times.values()) == 1 < 3, "losers are measured once"


def test_points_that_do_not_run_are_passed_over() -> None:
    def broken(point: Point, budget: float) -> Measured:
        block = dict(point.values)["BLOCK"]
        return Measured(point, reason="it crashed") if block < 512 else Measured(point, _timing(block))

    found = tune([SKETCH], _space(), broken, trials=20)
    assert found.best is not None and dict(found.best.values)["BLOCK"] == 512
    assert {m.reason for m in found.measured} == {"", "it crashed"}
    assert tune([SKETCH], _space(), lambda p, b: Measured(p, reason="no"), trials=5).best is None


def test_tiles_that_the_chip_cannot_hold_are_not_measured() -> None:
    space = Space(load_task(TASK, "doubled"), Target("cpp", Backend.CPU, Chip("tiny", "cpu", 2, l2_bytes=2048)))
    assert space.cost(Point.of(SKETCH, {"BLOCK": 2048, "UNUSED": 1})) is None
    assert space.cost(Point.of(SKETCH, {"BLOCK": 64, "UNUSED": 1})) is not None


def test_a_search_is_remembered_by_what_decides_its_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name = cache.key([SKETCH], CPU, {"x": (96, 1000)}, {})
    assert cache.read(name, 8) is None
    found = tune([SKETCH], _space(), Hill(256), trials=8)
    cache.write(name, 8, found)
    again = cache.read(name, 8)
    assert again is not None and again.cached and again.best == found.best and again.measured == found.measured
    others = [
        cache.key([SKETCH + " "], CPU, {"x": (96, 1000)}, {}),
        cache.key([SKETCH], CPU, {"x": (96, 1001)}, {}),
        cache.key([SKETCH], CPU, {"x": (96, 1000)}, {"BLOCK": 64}),
        cache.key([SKETCH], Target("cpp", Backend.CPU, Chip("another", "cpu", 2)), {"x": (96, 1000)}, {}),
    ]
    assert len({name, *others}) == 5
    (cache.folder() / f"{name}-8.json").write_text("{cut off")
    assert cache.read(name, 8) is None


def test_a_point_is_measured_in_the_verifiers_worker_and_no_verdict_comes_of_it() -> None:
    from kernellab.verifier import Verifier

    task, target = load_task(TASK, "doubled"), detect_target("cpp")
    with Verifier() as verifier:
        measure = WorkerMeasure(verifier, task, target, {})
        found = measure(Point.of(SKETCH, {"BLOCK": 1024}), 0.05)
        assert found.time is not None and found.time.samples > 0, found.reason
        wrong = SKETCH.replace("* 2.0", "* 3.0")
        assert measure(Point.of(wrong, {"BLOCK": 1024}), 0.05).time is None, "a wrong kernel has no time"


def test_what_is_left_of_the_trials_finds_a_valley_that_no_climb_meets() -> None:
    def two(point: Point, budget: float) -> Measured:
        """A valley at 512, where the climb begins, and a deeper one at the smallest block."""
        values = dict(point.values)
        return Measured(point, _timing(0.5 if values["BLOCK"] == 64 else 1 + abs(math.log2(values["BLOCK"] / 512))))

    found = tune([SKETCH], _space(), two, trials=30)
    assert found.best is not None and dict(found.best.values)["BLOCK"] == 64
    # twelve points are all that there are, each measured at most once more in a later heat
    assert len(found.measured) == len({m.point for m in found.measured}) <= 12


def test_a_fixed_value_is_drawn_by_no_search() -> None:
    space = Space(load_task(TASK, "doubled"), CPU, {"BLOCK": 128})
    found = tune([SKETCH], space, lambda p, b: Measured(p, _timing(1.0)), trials=30)
    assert {m.point.values for m in found.measured} == {(("UNUSED", 1),), (("UNUSED", 2),)}
