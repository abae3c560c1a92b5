"""Measured tiles of a chip as rows: read, checked, and replaced by the model where a chip has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.designer.tile.gpu.rows import Quantity, Row, Rows, read_rows, rows_of
from kernellab.designer.tile.gpu.seeds import Product, product_tile
from kernellab.dsls.machine import named_chip
from kernellab.errors import KernellabError
from kernellab.target import Chip

H200 = named_chip("h200")
WINDOW: dict[str, Quantity] = {
    "out": 64,
    "inside": 64,
    "steps": 9,
    "copied": False,
    "strided": False,
    "item": 4,
    "parts": 0,
}
#: what the rule of each kind names
QUANTITIES: dict[str, dict[str, Quantity]] = {
    "product": {
        "parts": 0, "item": 4, "precision": "tf32", "summed": 4096, "along": True, "tiles": lambda m, n: 4096,
    },
    "attention": {"parts": False, "narrow": True, "width": 64, "causal": True},
    "row_block": {"length": 65535, "block": 4096},
    "row_chunk": {"shared": True},
    "columns": {"length": 4095, "split": True, "elements": 2**30},
    "scan_block": {"reverse": False},
    "window_rows": WINDOW,
    "window_step": WINDOW,
    "window_warps": {**WINDOW, "positions_first": True, "positions": 128},
    "window_stages": {"n": 64, "d": 32, "steps": 3, "item": 2, "parts": 0},
    "window_tile": {
        "n": 64, "d": 32, "inside": 64, "steps": 9, "item": 2, "parts": 2, "tiles": lambda m: 4096, "high": lambda m: 1,
    },
}  # fmt: skip


def test_every_row_asks_for_quantities_of_its_kind() -> None:
    rows = rows_of(H200).rows
    assert {row.kind for row in rows} == set(QUANTITIES)
    for row in rows:
        assert row.holds({**QUANTITIES[row.kind], "cores": 132}) in (True, False), row
        assert row.date and row.sweep and row.dsls


def test_the_first_row_that_holds_is_taken_and_only_in_its_dsl() -> None:
    given = {**QUANTITIES["product"], "cores": 132}
    assert rows_of(H200).first("product", "triton", given) == {"m": 128, "n": 256, "d": 32, "warps": 8, "stages": 3}
    few = {**given, "tiles": lambda m, n: 1}
    assert rows_of(H200).first("product", "triton", few) == {"m": 64, "n": 32, "d": 32, "warps": 4, "stages": 4}
    assert rows_of(H200).first("scan_block", "cuda_c", {"reverse": False}) is None


def test_a_condition_on_an_unknown_quantity_names_the_known_ones() -> None:
    row = Row("product", ("triton",), "lengths > 3", {}, "2026-01-01", "none")
    with pytest.raises(KernellabError, match="asks for 'lengths'") as refused:
        Rows((row,)).first("product", "triton", {"summed": 3})
    assert refused.value.remedy == "Use summed."


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[[row]]\nkind = 'product'\n", "row 1 has no 'when'"),
        ("[source]\ndsls=['x']\ndate=1\nsweep=''\n[[row]]\nkind='a'\nwhen='__import__(1).x'\n", "not allowed"),
        ("row = [", "is not TOML"),
    ],
)
def test_a_file_that_is_no_rows_is_refused(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "chip.tiles.toml"
    path.write_text(text)
    with pytest.raises(KernellabError, match=what):
        read_rows(path)


@pytest.mark.parametrize("name", ["a100", "b200", "rtx4090"])
def test_a_chip_without_rows_has_tiles_that_fit_it_and_fill_it(name: str) -> None:
    chip = named_chip(name)
    assert not rows_of(chip).rows
    rate = chip.peak_flops["tf32"]
    large = product_tile(chip, Product(4096, 4096, 4096, 1, 4, rate, chip.shared_bytes))
    assert large.m * large.n >= 64 * 128
    assert large.stages * (large.m + large.n) * large.d * 4 <= chip.shared_bytes
    small = product_tile(chip, Product(256, 256, 4096, 1, 4, rate, chip.shared_bytes))
    assert small.m * small.n < large.m * large.n


def test_an_unknown_chip_has_no_rows() -> None:
    assert not rows_of(Chip("a GPU", "gpu", 132)).rows
