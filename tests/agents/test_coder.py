"""The rules Coder: a sketch becomes code that computes it, and says what it chose."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import CodeBrief
from kernellab.agents.rules.coder import RulesCoder
from kernellab.errors import SketchError
from kernellab.records import Source
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task

CPU = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=512, l1_bytes=48 << 10, l2_bytes=1 << 21))
GPU = Target("triton", Backend.CUDA, Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536))

TASK = load_task(
    """
import torch
from kernellab import Dim

N = Dim("N", 1, 4096)


def reference(x, scale: float = 2.0):
    return x * scale + 1.0


def inputs(N=300):
    return (torch.randn(N),)
""",
    "affine",
)
SKETCH = """
sketch affine {
    symbols: N;
    tensors: x[N]: f32; y[N]: f32 out;
    constexpr: scale = 2.0; BLOCK = 64 in {64, 128};

    @llm_hint("parallel", "coreidx")
    for n in range(0, N, BLOCK):
        load(x[n:n+BLOCK] -> x_tile)
        store(x_tile * scale + 1.0 -> y[n:n+BLOCK])
}
"""


def brief(sketch: str = SKETCH, target: Target = CPU, **more: object) -> CodeBrief:
    return CodeBrief(task=TASK, target=target, sketch=sketch, **more)  # type: ignore[arg-type]


def test_the_code_computes_the_sketch_and_takes_the_scalar_at_run_time(tmp_path: Path) -> None:
    source = RulesCoder().code(brief()).source
    for name, text in source.files.items():
        (tmp_path / name).write_text(text)
    spec = importlib.util.spec_from_file_location("coder_affine", tmp_path / source.entry_file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = torch.randn(1031)
    torch.testing.assert_close(module.kernel(x, 3.5), x * 3.5 + 1.0)


@pytest.mark.parametrize(("target", "dsl"), [(CPU, "cpp"), (GPU, "triton")])
def test_the_target_decides_the_language(target: Target, dsl: str) -> None:
    assert RulesCoder().code(brief(target=target)).source.dsl == dsl


def test_the_same_brief_gives_the_same_text() -> None:
    assert RulesCoder().code(brief()).source == RulesCoder().code(brief()).source


def test_a_tunable_given_in_the_brief_is_used_and_reported() -> None:
    reply = RulesCoder().code(brief(constexpr={"BLOCK": 128}))
    assert reply.constexpr["BLOCK"] == 128 and "BLOCK = 128" in reply.rationale
    assert "BLOCK = 128" in reply.source.files["kernel.cpp"]
    assert RulesCoder().code(brief()).constexpr["BLOCK"] == 64


def test_code_that_did_not_change_since_the_fault_says_so() -> None:
    source = RulesCoder().code(brief()).source
    again = RulesCoder().code(brief(previous=source))
    assert again.source == source and "same as before" in again.rationale
    other = Source(dsl="cpp", files={**source.files, "kernel.cpp": "// somebody else's"})
    fresh = RulesCoder().code(brief(previous=other))
    assert fresh.source == source and "same as before" not in fresh.rationale


def test_a_sketch_that_does_not_check_is_refused_with_its_line() -> None:
    with pytest.raises(SketchError, match="x_missing"):
        RulesCoder().code(brief(SKETCH.replace("x_tile * scale", "x_missing * scale")))
