"""The rules' first designs compile for each chip that is described, within what it has; without a GPU."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.bench.suites import load_suite
from kernellab.dsls.machine import named_chip
from kernellab.errors import LoweringError
from kernellab.target import Backend, Target
from kernellab.task import load_task

from .chips import CHIPS, FAMILIES, PRODUCTS, Facts, compiled, excess, family

_SUITE = {task.name: task.text for task in load_suite("builtin")}


def _within(found: dict[str, Facts] | str, chip: str) -> dict[str, Facts]:
    assert not isinstance(found, str), f"{chip}: {found}"
    assert found, "a design launches a kernel"
    beyond = {kernel: said for kernel, facts in found.items() if (said := excess(facts, named_chip(chip)))}
    assert not beyond, f"{chip}: {beyond}"
    return found


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_s_first_design_fits_the_chip(name: str, chip: str) -> None:
    if (name, chip) == ("product fp8", "a100"):
        with pytest.raises(LoweringError, match="no float8_e4m3fn"):
            compiled([(name, family(name), chip)])
        return
    kernels = _within(compiled([(name, family(name), chip)])[name], chip)
    if name in PRODUCTS:
        matrix = [op for facts in kernels.values() for op in facts if op not in ("registers", "local", "shared")]
        assert matrix, f"no matrix instruction on {chip}: {kernels}"


@pytest.mark.parametrize(("number", "name"), list(enumerate(_SUITE)))
def test_a_task_s_first_design_fits_a_chip(number: int, name: str) -> None:
    """Chips in turn; ``python -m tests.lowering.chips`` takes all of them for each task."""
    chip = CHIPS[number % len(CHIPS)]
    _within(compiled([(name, load_task(_SUITE[name], name), chip)])[name], chip)


@pytest.mark.parametrize(("chip", "precision"), [("h200", "tf32x3"), ("mi300x", "bf16x6")])
def test_a_product_of_float32_is_made_of_what_triton_multiplies_on_the_chip(chip: str, precision: str) -> None:
    """Along the summed axis three products of TF32 are the faster; Triton has them for NVIDIA's chips alone."""
    target = Target("triton", Backend.CUDA, named_chip(chip))
    sketch = RulesDesigner().designs(DesignBrief(load_task(_SUITE["low_rank"], "low_rank"), target))[0].sketch
    assert f'precision="{precision}"' in sketch


def test_what_a_chip_does_not_have_is_named() -> None:
    chip = named_chip("rtx4090")
    assert excess({"registers": 255, "local": 0, "shared": chip.shared_bytes}, chip) == []
    assert excess({"registers": 255, "local": 0, "shared": 110_000}, chip) == ["shared 110,000 of 101,376"]
