"""Lifting our own sources: the sketch that comes back is right and is lowered to the same code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.bench.suites import BUILTIN
from kernellab.cli.language.lift import lifted
from kernellab.errors import LoweringError
from kernellab.lowering.lift import lift
from kernellab.records import GateState, Source
from kernellab.sketch.syntax.printer import format
from kernellab.task import load_task
from tests.designer.attention_cases import ATTENTION

from .lifting import CPU, TARGETS, code_of, designed, lowered, source_of, task_of

LIFTED = [
    "convolution/conv_relu_pool", "convolution/conv_transpose2d", "convolution/depthwise_conv2d", "indexing/index_add",
    "indexing/gather_along_rows", "indexing/scatter_add", "loss/cross_entropy", "loss/mse", "matmul/batched",
    "matmul/linear_relu", "movement/roll_pad", "movement/rotary", "movement/stack_interleaved",
    "normalisation/group_norm", "normalisation/layer_norm", "order/topk", "pointwise/adam_step",
    "pointwise/gelu_bf16", "pooling/avg_pool2d", "pooling/max_pool1d_dilated", "reduction/argmax",
    "reduction/column_sum", "scan/cumsum", "scan/reverse_cumsum", "softmax/logsumexp", "softmax/softmax",
]  # fmt: skip
#: what has no lowering to CUDA-C
WITHOUT = {"cuda_c": {"order/topk", "convolution/conv_relu_pool", "convolution/conv_transpose2d"}}


@pytest.mark.parametrize("dsl", TARGETS)
@pytest.mark.parametrize("name", LIFTED)
def test_a_lifted_sketch_is_lowered_to_the_code_that_it_came_from(name: str, dsl: str) -> None:
    if name in WITHOUT.get(dsl, ()):
        pytest.skip(f"{name} has no lowering to {dsl}")
    source = lowered(name, dsl)
    text = lift(source, task_of(name))
    assert format(text) == text
    again = source_of(text, task_of(name), TARGETS[dsl])
    assert code_of(again) == code_of(source)
    assert lift(again, task_of(name)) == text


@pytest.mark.parametrize("dsl", TARGETS)
@pytest.mark.parametrize("name", ["softmax/softmax", "scan/cumsum", "indexing/gather_along_rows", "reduction/argmax"])
def test_a_lifted_sketch_is_right_by_the_gate(name: str, dsl: str) -> None:
    _, found = lifted(lowered(name, dsl), task_of(name), {})
    assert found.state is GateState.RIGHT, found.reason


@pytest.mark.parametrize("dsl", ["triton", "cpp"])
@pytest.mark.parametrize("name", ["sdpa_causal_fewer_keys", "by_hand_window"])
def test_every_design_of_attention_is_lifted(name: str, dsl: str) -> None:
    task = load_task(ATTENTION[name], "attention")
    for design in RulesDesigner().designs(DesignBrief(task, TARGETS[dsl])):
        source = source_of(design.sketch, task, TARGETS[dsl])
        assert code_of(source_of(lift(source, task), task, TARGETS[dsl])) == code_of(source)


UNROLLED = """sketch softmax {
    symbols: M, N;
    tensors: x[M, N]: f32; y[M, N]: f32 out;
    constexpr: BLOCK = 64 in {64, 128};

    @llm_hint("parallel", "AXIS")
    for m in range(M):
        total = full([BLOCK], 0.0, f32)
        @llm_hint("unroll", 2)
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> x_tile, pad=-inf)
            if n > BLOCK:
                total = total + exp(x_tile)
            else:
                total = total + exp(x_tile)
        row_total = reduce_sum(total, axis=0)
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> x_again)
            store(exp(x_again) / row_total -> y[m, n:n+BLOCK])
}
"""


@pytest.mark.parametrize("dsl", TARGETS)
def test_tests_and_hints_of_a_sketch_by_hand_come_back(dsl: str) -> None:
    text = UNROLLED.replace("AXIS", "coreidx" if dsl == "cpp" else "grididx")
    source = source_of(text, task_of("softmax/softmax"), TARGETS[dsl])
    found = lift(source, task_of("softmax/softmax"))
    assert "else:" in found and '"unroll", 2' in found
    assert code_of(source_of(found, task_of("softmax/softmax"), TARGETS[dsl])) == code_of(source)


def test_a_foreign_source_is_refused_with_the_way_to_lift_it() -> None:
    foreign = Source(dsl="triton", files={"kernel.py": "import torch\n\ndef kernel(x):\n    return x * 2\n"})
    task = task_of("softmax/softmax")
    for source in (foreign, Source(dsl="cuda_c", files={"kernel.py": ""})):
        with pytest.raises(LoweringError, match="does not carry the sketch") as error:
            lift(source, task)
        assert "--lift" in error.value.remedy
    with pytest.raises(LoweringError, match="tilelang"):
        lift(Source(dsl="tilelang", files={"kernel.py": ""}), task)


def test_a_source_of_another_task_is_refused() -> None:
    with pytest.raises(LoweringError, match=r"^Line \d+ of "):
        lift(lowered("softmax/softmax", "cpp"), task_of("matmul/matvec"))


def test_the_command_lifts_gates_and_writes_the_other_dsl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kernellab.cli import main

    name = "softmax/logsumexp"
    folder = tmp_path / "cpp"
    folder.mkdir()
    for file, text in source_of(designed(name, "cpp"), task_of(name), CPU).files.items():
        (folder / file).write_text(text)
    out = tmp_path / "triton"
    call = ["sketch", "lift", str(folder), "--task", str(BUILTIN / f"{name}.py"), "--to", "triton", "--out", str(out)]
    assert main(call) == 0
    assert "grididx" in capsys.readouterr().out
    assert "@triton.jit" in (out / "source" / "kernel.py").read_text() and (out / "logsumexp.sketch").exists()
    edited = (folder / "kernel.cpp").read_text()
    assert "kl::log(" in edited
    edited = edited.replace("kl::log(", "0.5f * kl::log(")
    (folder / "kernel.cpp").write_text(edited)
    assert main(call) != 0
    assert re.search(r"Line \d+ of kernel.cpp", capsys.readouterr().err)
