"""The sweep that writes measured tiles: what it designs, when it refuses, which it takes, and where the row goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.designer.tile.gpu.rows import read_rows
from tools import sweep_tiles

TASK = """
import torch

def reference(a, b):
    return a @ b.T

def inputs():
    return torch.randn(512, 256), torch.randn(384, 256)
"""
VALUES = ["--values", "m=32,64", "n=64", "d=32", "warps=4", "stages=2,3"]


@pytest.fixture
def task(tmp_path: Path) -> str:
    path = tmp_path / "small_product.py"
    path.write_text(TASK)
    return str(path)


def sweep(task: str, *more: str) -> int:
    return sweep_tiles.main(["product", "--task", task, *VALUES, "--sweep", "a test", "--dry", *more])


def test_a_dry_run_designs_every_combination_and_prints_the_row(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(task, "--when", "summed <= 4096") == 0
    out = capsys.readouterr().out
    assert "small_product: 4 of 4 combinations can be designed" in out
    assert 'when = "summed <= 4096"\nm = 32\nn = 64\nd = 32\nwarps = 4\nstages = 2\n' in out


def test_each_combination_is_another_sketch_with_that_tile(task: str) -> None:
    target = sweep_tiles.Target("triton", sweep_tiles.Backend.CUDA, sweep_tiles.named_chip("h200"))
    tiles = sweep_tiles.combinations(["m=32,64", "n=64", "d=32", "warps=4", "stages=2"])
    loaded = sweep_tiles.load_task(TASK, "small_product")
    texts = sweep_tiles.designed(loaded, target, "product", "True", tiles, sweep_tiles.Rows())
    assert [text and f"= {m} in" in text for text, m in zip(texts, (32, 64), strict=True)] == [True, True]
    assert len(set(texts)) == 2


@pytest.mark.parametrize(
    ("when", "what"),
    [("summed > 4096", "does not hold for small_product"), ("width > 3", "--when names 'width'")],
)
def test_a_condition_that_does_not_fit_the_tasks_is_refused(
    task: str, when: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(task, "--when", when) == 1
    assert what in capsys.readouterr().err


def test_the_least_geometric_mean_over_all_tasks_is_taken() -> None:
    assert sweep_tiles.fastest([[1.0, 1.2, None], [4.0, 2.0, 1.0]]) == 1
    with pytest.raises(sweep_tiles.KernellabError, match="No combination ran"):
        sweep_tiles.fastest([[1.0, None], [None, 1.0]])


def test_a_row_goes_before_its_kind_and_is_read_again(tmp_path: Path) -> None:
    row = sweep_tiles.row_text("product", "precision == 'tf32'", {"m": 32, "warps": 4}, "triton", 'a "test"')
    old = '[[row]]\nkind = "row_block"\nwhen = "True"\nblock = 1\n\n[[row]]\nkind = "product"\nwhen = "True"\nm = 64\n'
    source = '[source]\ndsls = ["triton"]\ndate = 2026-01-01\nsweep = "earlier"\n\n'
    path = tmp_path / "chip.tiles.toml"
    path.write_text(sweep_tiles.with_row(source + old, "product", row))
    rows = read_rows(path)
    assert [r.kind for r in rows.rows] == ["row_block", "product", "product"]
    assert rows.first("product", "triton", {"precision": "tf32"}) == {"m": 32, "warps": 4}
    assert rows.first("product", "triton", {"precision": "ieee"}) == {"m": 64}
    assert rows.rows[1].sweep == 'a "test"'
