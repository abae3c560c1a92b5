"""Designs that compose with the framework's library: what they say, run, lower to, and how a verdict names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.agents.briefs import DesignBrief, RouteBrief
from kernellab.agents.rules.conductor import RulesConductor
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.dsls.machine import detect_target
from kernellab.errors import LoweringError
from kernellab.lowering import lower
from kernellab.lowering.embedded_sketch import bare
from kernellab.lowering.library_call import library_calls
from kernellab.lowering.lift import lift
from kernellab.records import GateState, Source, Verdict
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.library import is_library
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from kernellab.verifier import Verifier, VerifyOptions
from kernellab.verifier.protocol.remedies import remedy

CPU = Target("cpp", Backend.CPU, Chip("cpu", "cpu", 4, l2_bytes=512 * 1024))
TRITON = Target("triton", Backend.INTERPRETER, Chip("gpu", "gpu", 132, shared_bytes=232448))

FUNCTION = """import torch
import torch.nn.functional as F
from kernellab import Dim
{head}def reference({args}):
    return {body}
def inputs({dims}):
    return {inputs}
"""


def task(name: str, args: str, body: str, inputs: str, head: str = "", dims: str = "") -> Task:
    return load_task(FUNCTION.format(head=head, args=args, body=body, inputs=inputs, dims=dims), name)


TASKS = {
    "linear_gelu": task(
        "linear_gelu", "x, w, b", "F.gelu(F.linear(x, w, b))",
        "torch.randn(4, 6, 16), torch.randn(32, 16), torch.randn(32)",
    ),
    "conv_relu": task(
        "conv_relu", "x, w, b", "F.relu(F.conv2d(x, w, b, stride=2, padding=1, groups=2))",
        "torch.randn(2, 8, 17, 19), torch.randn(16, 4, 3, 3), torch.randn(16)",
    ),
    "turned_sigmoid": task(
        "turned_sigmoid", "x, w", "torch.sigmoid(F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1))",
        "torch.randn(2, 4, 9), torch.randn(4, 6, 3)",
    ),
    "scores": task(
        "scores", "q, k", "torch.softmax(torch.relu(q) @ k.transpose(-1, -2), -1)",
        "torch.randn(2, 3, 16, 8), torch.randn(2, 3, 24, 8)",
    ),
    "half": task(
        "half", "q, k", "torch.softmax(torch.relu(q) @ k.transpose(-1, -2), -1)",
        "torch.randn(2, 16, 8).half(), torch.randn(2, 24, 8).half()",
    ),
    "attention": task(
        "attention", "q, k, v", "F.gelu(F.scaled_dot_product_attention(torch.relu(q), k, v, is_causal=True))",
        "torch.randn(2, 3, 12, 8), torch.randn(2, 3, 12, 8), torch.randn(2, 3, 12, 6)",
    ),
    "gram": task("gram", "x", "torch.softmax(x @ x.T, -1)", "torch.randn(20, 12)"),
    "dynamic": task(
        "dynamic", "x, w", "torch.softmax(F.linear(x, w), -1)", "torch.randn(M, 24), torch.randn(40, 24)",
        head='M = Dim("M", 1, 200)\n', dims="M",
    ),
}  # fmt: skip


def composed(of: Task, target: Target) -> str:
    replies = RulesDesigner().designs(DesignBrief(of, target, allow_library=True))
    (text,) = (r.sketch for r in replies if any(is_library(k) for k in load_program(r.sketch).kernels))
    return text


def lowered(text: str, of: Task, target: Target) -> Source:
    program = load_program(text)
    return lower(program, bind(program, of, target=target), target)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("target", [CPU, TRITON], ids=["cpu", "gpu"])
def test_a_composed_design_is_right_and_costed(name: str, target: Target) -> None:
    text = composed(TASKS[name], target)
    assert gate(text, TASKS[name]).state is GateState.RIGHT
    program = load_program(text)
    calls = [k for k in program.kernels if is_library(k)]
    assert calls and len(calls) < len(program.kernels)
    assert cost(program, dict.fromkeys(program.symbols, 64)).flops


@pytest.mark.parametrize("name", TASKS)
def test_nothing_is_composed_unless_it_is_allowed(name: str) -> None:
    for reply in RulesDesigner().designs(DesignBrief(TASKS[name], CPU)):
        assert "library" not in reply.sketch


def test_a_product_alone_is_nobodys_kernel() -> None:
    given = "torch.randn(8, 16), torch.randn(32, 16), torch.randn(32)"
    alone = task("alone", "x, w, b", "F.linear(x, w, b)", given)
    replies = RulesDesigner().designs(DesignBrief(alone, CPU, allow_library=True))
    assert replies and not any("library" in r.sketch for r in replies)


def test_the_host_calls_torch_between_its_launches() -> None:
    text = lowered(composed(TASKS["scores"], CPU), TASKS["scores"], CPU).files["kernel.py"]
    first, call, second = (text.index(t) for t in ("    _kernel(", "torch.bmm(", "    _kernel2("))
    assert first < call < second
    assert ".transpose(1, 2))" in text
    with pytest.raises(LoweringError, match="does not carry the sketch"):
        lift(bare(lowered(composed(TASKS["scores"], CPU), TASKS["scores"], CPU)), TASKS["scores"])
    triton = lowered(composed(TASKS["conv_relu"], TRITON), TASKS["conv_relu"], TRITON).files["kernel.py"]
    assert "torch.conv2d(x.view(2, 8, 17, 19), w.view(16, 4, 3, 3), stride=2, padding=1, groups=2)" in triton
    assert triton.index("torch.conv2d(") < triton.index("conv_relu_kernel[")


def test_a_file_of_calls_alone_has_no_kernel_to_write() -> None:
    text = composed(TASKS["linear_gelu"], CPU)
    only = text[: text.index("\n}") + 3].replace(": f32 temp", ": f32 out")
    program = load_program(only)
    with pytest.raises(LoweringError, match="there is no kernel to write"):
        library_calls(program)


@pytest.mark.parametrize("name", ["linear_gelu", "conv_relu"])
def test_a_verdict_names_the_library_and_its_share(name: str, verifier: Verifier) -> None:
    target = detect_target("cpp")
    source = lowered(composed(TASKS[name], target), TASKS[name], target)
    options = VerifyOptions(allow_library=True, budget=0.1)
    verdict = verifier.verify(TASKS[name], source, target, options=options)
    refused = verifier.verify(TASKS[name], source, target, options=VerifyOptions(budget=0.1))
    assert verdict.passed, verdict.reason
    assert verdict.own_share is not None and verdict.own_share < 0.9
    assert f"library {1 - verdict.own_share:.0%}" in verdict.labels
    assert "It composes with the library" in verdict.reason
    assert not refused.passed and "--allow-library" in remedy(refused)
    route = RulesConductor().route(_brief(TASKS[name], target, verdict))
    assert "It composes with the library" in route.reason


def test_the_interpreter_says_so_too(verifier: Verifier) -> None:
    target = detect_target("triton")
    if target.backend is not Backend.INTERPRETER:
        pytest.skip("there is a GPU: the verdict is of the device")
    source = lowered(composed(TASKS["linear_gelu"], target), TASKS["linear_gelu"], target)
    verdict = verifier.verify(TASKS["linear_gelu"], source, target, options=VerifyOptions(allow_library=True))
    assert verdict.passed, verdict.reason
    assert "It composes with the library" in verdict.reason and verdict.label.startswith("library")


def test_a_session_measures_which_is_faster(tmp_path: Path) -> None:
    from kernellab.session import design

    session = design(
        TASKS["linear_gelu"], dsl="cpp", workspace=tmp_path, options={"allow_library": True, "budget": 0.1}, wait=True
    )
    assert session.state.best() is not None
    (designed,) = (t for t in session.turns if t.sketch and t.role.value == "designer")
    assert "measured" in designed.rationale


def _brief(of: Task, target: Target, verdict: Verdict) -> RouteBrief:
    return RouteBrief(of, target, sketch="", gate=None, candidate=None, verdict=verdict, allow_library=True)
