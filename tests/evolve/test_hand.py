"""The set of kernels by hand is what a search is compared with: it is complete, and its kernels are right."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from kernellab.task import load_task
from tests.evolve.figures import Figures, hand_table
from tests.evolve.hand.sets import SETS


@pytest.mark.parametrize("dsl", ["cpp", "triton"])
def test_the_set_has_twelve_tasks_and_kernels_of_each_dsl(dsl: str) -> None:
    assert len(SETS[dsl]) == 12
    for name, hand in SETS[dsl].items():
        assert load_task(hand.task, name).args
        compile(hand.source(dsl).files["kernel.py"], name, "exec")


@pytest.mark.parametrize("name", ["running_sums", "one_query", "norm_to_bytes"])
def test_a_kernel_by_hand_computes_its_task(name: str, tmp_path: Path) -> None:
    hand = SETS["cpp"][name]
    file = tmp_path / "kernel.py"
    file.write_text(hand.kernel)
    spec = importlib.util.spec_from_file_location(f"by_hand_{name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task: dict = {}
    exec(hand.task, task)
    torch.manual_seed(0)
    inputs = task["inputs"]()
    wanted, computed = task["reference"](*inputs), module.kernel(*inputs)
    pairs = zip(wanted, computed, strict=True) if isinstance(wanted, tuple) else [(wanted, computed)]
    for right, own in pairs:
        # a byte that a rounding decides may differ by one
        torch.testing.assert_close(own, right, rtol=1e-4, atol=1.0 if right.dtype is torch.int8 else 1e-4)


def test_the_table_says_what_share_of_the_hands_speed_is_reached() -> None:
    row = Figures(place="a", dsl="cpp", knobs={}, machine="", load=0.0, sweeps=3, gain=1.5, hand=2.0)
    slow = row.model_copy(update={"place": "b", "gain": 1.0, "hand": 1.0})
    missing = row.model_copy(update={"place": "c", "hand": None, "hand_reason": "wrong"})
    assert row.of_hand == 0.75
    text = hand_table([row, slow, missing])
    assert "2 operators: the search reaches 0.87x" in text and "1 at 0.95x or above" in text and "wrong" in text
