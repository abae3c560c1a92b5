"""A time that cannot be is refused: what a task needs at least, by rates that only the judge has measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.task import load_task
from kernellab.verifier.audit.folder import CACHE
from kernellab.verifier.protocol.rules import TIMING
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
    coming = [Rates(5e10, 2e11), Rates(9e10, 1e11)]
    monkeypatch.setattr(floors, "_measured", lambda threads: coming.pop(0))
    assert floors.cpu_rates(1) == Rates(5e10, 2e11) == floors.cpu_rates(1)
    assert floors.cpu_rates(1, again=True) == Rates(9e10, 2e11)
    monkeypatch.setattr(floors, "_in_memory", {})
    assert floors.cpu_rates(1) == Rates(9e10, 2e11) and not coming


def test_measured_rates_are_those_of_a_machine() -> None:
    found = floors._measured(1)
    assert 1e8 < found.cached < 1e13 and 1e8 < found.flops < 1e15
