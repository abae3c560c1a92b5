"""A time that cannot be is refused: what a task needs at least, by rates that only the judge has measured."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernellab.conditions import labels
from kernellab.target import Backend
from kernellab.task import load_task
from kernellab.verifier.audit import bound
from kernellab.verifier.audit.bound import Bound
from kernellab.verifier.audit.folder import CACHE
from kernellab.verifier.protocol.rules import TIMING
from kernellab.verifier.stages import fast
from kernellab.verifier.stages.context import Findings
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.timing import floor as floors
from kernellab.verifier.timing.floor import Rates, floor

RATES = Rates(cached=1e12, flops=1e11)
PRODUCT = (
    "import torch\ndef reference(a, b):\n    return a @ b\n"
    "def inputs():\n    return torch.randn({m}, {k}), torch.randn({k}, {n})\n"
)


def test_a_product_needs_its_flops_at_twice_the_fastest_rate_ever_measured() -> None:
    task = load_task(PRODUCT.format(m=256, n=256, k=512))
    found = floor(task, RATES)
    assert found is not None and "FLOPs" in found.why
    assert found.seconds == pytest.approx(2 * 256 * 256 * 512 / (TIMING.flops_factor * 1e11))
    # a rewrite that was proved needs only its bytes
    proved = floor(task, RATES, rewritten=True)
    assert proved is not None and "bytes" in proved.why and proved.seconds < found.seconds / 50


def test_rates_that_other_work_held_up_refuse_nothing_that_eager_comes_near() -> None:
    task = load_task(PRODUCT.format(m=256, n=256, k=512))
    slow = Rates(cached=1e7, flops=1e7)
    found = floor(task, slow, reached=1e-3)
    assert found is not None and found.seconds == pytest.approx(1e-3 / TIMING.flops_factor)
    assert floor(task, RATES, reached=1e-3) == floor(task, RATES), "a slow eager lifts nothing"


def test_what_a_legal_rewrite_may_save_is_no_floor() -> None:
    text = PRODUCT.format(m=256, n=256, k=512).replace("a @ b", "(a @ b).sum(1)")
    found = floor(load_task(text), RATES)
    assert found is not None and "bytes" in found.why


def test_where_elements_may_be_left_out_bytes_are_no_floor() -> None:
    text = (
        "import torch\ndef reference(x):\n    return x[:, :4] + 1\ndef inputs():\n    return (torch.randn(64, 512),)\n"
    )
    assert floor(load_task(text), RATES) is None


def test_rates_are_the_best_ever_and_outlive_the_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    monkeypatch.setattr(floors, "_in_memory", {})
    coming = [Rates(5e10, 2e11, 1e11), Rates(9e10, 1e11, 9e10)]
    monkeypatch.setattr(floors, "_measured", lambda threads: coming.pop(0))
    assert floors.cpu_rates(1) == Rates(5e10, 2e11, 1e11) == floors.cpu_rates(1)
    assert floors.cpu_rates(1, again=True) == Rates(9e10, 2e11, 1e11)
    monkeypatch.setattr(floors, "_in_memory", {})
    assert floors.cpu_rates(1) == Rates(9e10, 2e11, 1e11) and not coming


def test_data_that_large_caches_may_hold_have_no_byte_floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # four cores, two caches of 384 MiB which two cores share each, and one of 1 MiB for each core
    for core in range(4):
        for index, (level, size, shared) in enumerate(
            [(2, "1024K", f"{core}"), (3, "384M", f"{core // 2 * 2}-{core | 1}")]
        ):
            folder = tmp_path / f"cpu{core}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", str(level)), ("size", size), ("shared_cpu_list", shared)):
                (folder / name).write_text(f"{text}\n")
    assert bound.caches(tmp_path) == 768 << 20
    assert bound.caches(tmp_path / "nowhere") == 0
    task = load_task(
        "import torch\ndef reference(x):\n    return x * 2\n"
        "def inputs():\n    return (torch.empty(48 << 20),)\n", "doubled",
    )  # fmt: skip
    monkeypatch.setattr(bound, "roofs", lambda threads: bound.Roofs(1e10, 1e10, 1e11, 5e10))
    monkeypatch.setattr(bound, "reads_everything", lambda task: True)
    for size, has_floor in ((0, True), (64 << 20, True), (768 << 20, False)):
        monkeypatch.setattr(bound, "caches", lambda size=size: size)
        found = bound.speed_of_light(task, 1)
        assert found is not None and (found.byte_floor_ms is not None) == has_floor


def test_measured_rates_are_those_of_a_machine() -> None:
    found = floors._measured(1)
    assert 1e8 < found.cached < 1e13 and 1e8 < found.flops < 1e15


def test_a_product_of_float64_needs_the_time_of_float64_s_products() -> None:
    """A kernel that returned zeros was believed at 467 GFLOP/s of float64, where the machine's products reach 127."""
    text = PRODUCT.format(m=256, n=256, k=512).replace("torch.randn(256, 512)", "torch.randn(256, 512).double()")
    task = load_task(text.replace("torch.randn(512, 256)", "torch.randn(512, 256).double()"))
    found = floor(task, Rates(cached=1e12, flops=2.5e11, double=1.25e11))
    assert found is not None and found.seconds == pytest.approx(2 * 256 * 256 * 512 / 1.25e11 / TIMING.flops_factor)


def test_rates_without_float64_s_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    monkeypatch.setattr(floors, "_in_memory", {})
    path = floors._file(1)
    assert path is not None
    path.write_text('{"cached": 5e10, "flops": 2e11}')
    monkeypatch.setattr(floors, "_measured", lambda threads: Rates(4e10, 1e11, 6e10))
    assert floors.cpu_rates(1) == Rates(4e10, 1e11, 6e10)


BOUND = Bound(bytes=1 << 20, flops=10**8, ms=2.0, byte_floor_ms=None, bandwidth=1e10, rate=5e10, by_bytes=True)


def _stages(monkeypatch: pytest.MonkeyPatch, bounds: list[Bound]) -> Any:
    """What the stage fast needs for its bound, on a machine whose roofs are ``bounds`` at one look after the other."""
    monkeypatch.setattr(fast, "_refuse_below", lambda *_: None)
    monkeypatch.setattr(fast.turns, "alone", lambda: nullcontext(0.0))
    monkeypatch.setattr(bound, "speed_of_light", lambda *_: bounds[0])
    monkeypatch.setattr(bound, "roofs_again", lambda *_: bounds.pop(0))
    request = SimpleNamespace(backend=Backend.CPU)
    context = SimpleNamespace(request=request, findings=Findings(), end=0.0, wait=lambda seconds: None)
    return SimpleNamespace(task=None, threads=1, context=context)


def test_a_time_under_the_bound_is_never_just_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rates are measured again; what is under a bound of bytes that lie in memory is refused, else it is told why
    the bound does not bind."""
    slow, past = replace(BOUND, ms=3.0), replace(BOUND, ms=3.0, byte_floor_ms=3.0)
    stages = _stages(monkeypatch, [slow, BOUND])
    fast._bound(stages, 2.5, 1.0)
    assert not stages.context.findings.conditions and stages.context.findings.sol_ms == 2.0, (
        "the first roofs were held up"
    )
    stages = _stages(monkeypatch, [slow, BOUND])
    fast._bound(stages, 1.5, 1.0)
    assert labels(stages.context.findings.conditions) == ["under the memory's bound, in the caches"]
    stages = _stages(monkeypatch, [slow, replace(BOUND, by_bytes=False)])
    fast._bound(stages, 1.5, 1.0)
    assert labels(stages.context.findings.conditions) == ["under the bound of the reference's arithmetic"]
    with pytest.raises(Refused, match="byte floor"):
        fast._bound(_stages(monkeypatch, [slow, past]), 1.5, 1.0)


def test_roofs_measured_again_are_the_best_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    coming = [bound.Roofs(1e10, 8e9, 2e11, 1e11, "2026-01-02"), bound.Roofs(2e10, 7e9, 3e11, 9e10, "2026-01-03")]
    monkeypatch.setattr(bound, "_measured", lambda threads: coming.pop(0))
    bound.roofs.cache_clear()
    try:
        assert bound.roofs(97).copy == 1e10
        assert bound.roofs_again(97) == bound.Roofs(2e10, 8e9, 3e11, 1e11, "2026-01-03") == bound.roofs(97)
    finally:
        bound.roofs.cache_clear()
