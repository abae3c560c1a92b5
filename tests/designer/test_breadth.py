"""Families of operators beside the common ones: designed by rule, right in the gate, in C++ and in Triton."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.syntax.parse import parse
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from tests.designer.breadth_cases import BREADTH
from tests.lowering.emulated import kernel_of
from tests.lowering.test_cpp import load
from tests.lowering.test_triton import call

CPU = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 20))
GPU = Target("triton", Backend.CUDA, Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536))
TRITON = Target("triton", Backend.INTERPRETER, GPU.chip)
CUDA = Target("cuda_c", Backend.CUDA, GPU.chip)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path_factory.mktemp("build")))
        yield


@pytest.mark.parametrize("name", BREADTH)
def test_the_first_schedule_is_right_in_the_gate_and_in_every_language(name: str, tmp_path: Path) -> None:
    task = load_task(BREADTH[name], name)
    args = task.module().sample(seed=3)
    want = task.module().reference(args)
    for target in (CPU, TRITON):
        text = RulesDesigner().design(DesignBrief(task, target)).sketch
        result = gate(text, task, seconds=0.2)
        assert result.state is GateState.RIGHT, f"{target.dsl}: {result.reason}\n{text}"
        program = load_program(text)
        source = lower(program, bind(program, task, {}, target), target)
        if target is CPU:
            got = load(source, tmp_path).kernel(*args)
            got = got if isinstance(got, tuple) else (got,)
        else:
            got = call(source, tmp_path, *(a for a in args if isinstance(a, torch.Tensor)))
        for n, (one, other) in enumerate(zip(got, want, strict=True)):
            where = f"{target.dsl}, output {n}"
            torch.testing.assert_close(
                one, other, rtol=2e-5, atol=1e-5, equal_nan=True, msg=lambda m, where=where: f"{where}: {m}"
            )


@pytest.mark.parametrize("name", ["trigonometry", "special", "shifts"])
def test_cuda_computes_the_functions_that_few_kernels_need(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = load_task(BREADTH[name], name)
    args = task.module().sample(seed=3)
    program = load_program(RulesDesigner().design(DesignBrief(task, CUDA)).sketch)
    got = kernel_of(lower(program, bind(program, task, {}, CUDA), CUDA), tmp_path, monkeypatch)(*args)
    for one, other in zip(got, task.module().reference(args), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=1e-5, equal_nan=True)


def test_known_exponents_are_products_and_another_value_is_refused(tmp_path: Path) -> None:
    task = load_task(BREADTH["default_exponents"], "default_exponents")
    text = RulesDesigner().design(DesignBrief(task, CPU)).sketch
    assert "pow(" not in text
    program = load_program(text)
    kernel = load(lower(program, bind(program, task, {}, CPU), CPU), tmp_path).kernel
    x, t = torch.randn(33, 65), torch.rand(33, 65)
    torch.testing.assert_close(kernel(x, t), task.module().reference((x, t, 2.0, 0.25))[0])
    with pytest.raises(ValueError, match=r"gamma is 3\.0; this kernel was made for 2\.0"):
        kernel(x, t, 3.0)


def test_a_deep_network_is_designed_a_launch_at_a_time() -> None:
    """Its layers are of no pattern, so that no loop walks them as it walks the steps of a recurrence."""
    layers = "torch.tanh(x[:, t] + h * w) if t * t % 31 < 16 else torch.sigmoid(x[:, t] - h * w)"
    text = BREADTH["recurrence"].replace("torch.tanh(x[:, t] + h * w)", layers)
    text = text.replace("torch.randn(4, 48, 9)", "torch.randn(4, 300, 9)")
    sketches = parse(RulesDesigner().design(DesignBrief(load_task(text, "deep"), CPU)).sketch).sketches
    assert 10 <= len(sketches) <= 60
