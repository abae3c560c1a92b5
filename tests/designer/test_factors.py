"""Factors that a product's tiles cannot read as slices of one tensor are stored as matrices first."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.records import GateState
from kernellab.sketch.gate import gate
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task

H200 = Target("triton", Backend.CUDA, find_chip("NVIDIA H200"))
TASK = """import torch
def inputs():
    return {inputs}
def reference(x, w, v):
    {body}
    return y
"""
LARGE = "torch.rand(8, 28, 28, 96), torch.rand(96, 128), torch.rand(96)"


def designed(inputs: str, body: str) -> list[str]:
    """The launches of the first design, which is right."""
    task = load_task(TASK.format(inputs=inputs, body=body))
    sketch = RulesDesigner().designs(DesignBrief(task, H200))[0].sketch
    found = gate(sketch, task, chip=H200.chip)
    assert found.state is GateState.RIGHT, found.reason
    return [f"sketch {text}" for text in sketch.split("sketch ")[1:]]


ROLLED = "torch.roll(x, (3, 3), (1, 2)).view(8, 4, 7, 4, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(-1, 96)"
PIECES = "x.view(8, 4, 7, 4, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(-1, 96)"
STRIDED = "torch.cat([x[:, 0::2, 1::2], x[:, 1::2, 0::2]], 0).reshape(-1, 96)"


FEW = "torch.roll(x, 3, 2)[:2, 0, 3:8].reshape(-1, 96)"


@pytest.mark.parametrize("factor", [FEW, ROLLED, PIECES, STRIDED])
def test_what_a_tile_would_pick_one_by_one_is_stored_as_a_matrix(factor: str) -> None:
    launches = designed(LARGE, f"y = {factor} @ w + v.sum()")
    product = next(text for text in launches if "gemm(" in text)
    assert "gather(" not in product and "ieee" not in product
    assert product.count("for ") == 3, "rows, columns and what is summed"


def test_a_sum_that_others_read_too_is_stored_before_its_product() -> None:
    inputs = "torch.rand(512, 96), torch.rand(96, 128), torch.rand(512, 96)"
    launches = designed(inputs, "s = torch.tanh(x) + v; y = torch.relu(s @ w) @ w.t() + s")
    assert sum("tanh(" in text for text in launches) == 1
    launches = designed(inputs, "y = torch.relu((torch.tanh(x) + v) @ w) @ w.t()")
    assert "tanh(" in launches[0] and ("gemm(" in launches[0] or "split" in launches[0])


@pytest.mark.parametrize(("columns", "launches"), [(512, 1), (1024, 2)])
def test_an_activation_is_made_once_for_many_columns(columns: int, launches: int) -> None:
    narrow = "torch.rand({}).to(torch.bfloat16)".format
    inputs = f"{narrow('128, 512')}, {narrow(f'512, {columns}')}, {narrow('128, 512')}"
    found = designed(inputs, "y = torch.nn.functional.gelu(x) @ w")
    assert len(found) == launches and sum("gelu(" in text and "gemm(" in text for text in found) == (launches == 1)
    wide = designed(inputs.replace("bfloat16", "float32"), "y = torch.nn.functional.gelu(x) @ w")
    assert not any("gelu_all" in text for text in wide), "parts of a float32 are stored as it is"


@pytest.mark.parametrize(("shape", "summed"), [("64, 32, 5, 5", 800), ("64, 16, 6, 6", 576), ("64, 8, 10, 10", 800)])
def test_what_is_summed_is_one_axis_where_it_lies_side_by_side(shape: str, summed: int) -> None:
    """A layer behind a flattened image is a product of matrices, however short the image's rows are."""
    inputs = f"torch.rand({shape}), torch.rand(96, {summed})"
    body = "y = torch.flatten(torch.max_pool2d(x, 3, 1, 1), 1) @ w.t() + v"
    launches = designed(f"{inputs}, torch.rand(96)", body)
    product = next(text for text in launches if "gemm(" in text)
    assert product.count("for ") == 3
