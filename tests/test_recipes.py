"""Two of CONTRIBUTING's recipes, followed to the letter: what they say is enough, is enough."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernellab
from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.content import content
from kernellab.dsls.machine import detect_target
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.program.bind import bind
from kernellab.target import chips
from kernellab.task import load_task

#: an operation without a rule, and the entry that the recipe asks for, and nothing else
TASK = """
import torch

def reference(x):
    return torch.special.chebyshev_polynomial_t(x.sigmoid(), x.sigmoid().round() + 1) + 1.0

def inputs():
    return (torch.randn(9, 37),)
"""
ENTRY = """
    _pointwise("chebyshev", 2, "torch.special.chebyshev_polynomial_t(a, b)", "std::cos({1} * std::acos({0}))",
               "tl.cos({1} * kl_acos({0}))", 40, cuda_c="kl::cos({1} * kl::acos({0}))", result="float",
               aten="special_chebyshev_polynomial_t"),
"""
PROGRAM = """
import sys
from kernellab.session import design

session = design(open("task.py").read(), dsl=sys.argv[1], name="scaled", options={"level": "T1"}, workspace=".")
session.wait(120)
print(session.verdict.reason)
print("verdict", session.verdict.passed, "chebyshev(" in (session.turns[0].sketch or ""))
"""

#: without a GPU: NVRTC compiles what is lowered, and the device code runs on the CPU
CUDA_C = """
import sys
import types
from pathlib import Path

import pytest
import torch
from cuda.core import Program

sys.path.append(sys.argv[1])
from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target
from kernellab.dsls.machine import named_chip
from kernellab.task import load_task
from tests.lowering.emulated import kernel_of

class Compiled(Program):
    def compile(self, kind):
        assert len(bytes(Program.compile(self, kind).code)) > 100
        return types.SimpleNamespace(get_kernel=lambda name: name)

task, target = load_task("task.py"), Target("cuda_c", Backend.CUDA, named_chip("h200"))
sketch = RulesDesigner().design(DesignBrief(task, target)).sketch
program = load_program(sketch)
source = lower(program, bind(program, task, None, target), target)
folder = Path("lowered")
folder.mkdir()
x = torch.randn(9, 37)
with pytest.MonkeyPatch.context() as patch:
    kernel = kernel_of(source, folder, patch)
    torch.testing.assert_close(kernel(x), task.module().reference([x])[0].to(x.dtype), rtol=1e-4, atol=1e-4)
    space = {"__file__": str(folder / "kernel.py"), "__name__": "compiled"}
    exec(source.files["kernel.py"], space)
    space |= {"Program": Compiled, "launch": lambda *_: None, "_stream": lambda _: None}
    space["kernel"](torch.empty(9, 37, device="meta"))
print("right", "chebyshev(" in sketch)
"""
LINT = """
from pathlib import Path
from kernellab.knowledge.lint import lint

print([f.message for f in lint(Path("knowledge")) if f.severity == "error"])
"""

SKETCH = """sketch lengths {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32; Z[M, N]: f32 out;
    constexpr: BLOCK = 16;

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        for n in range(0, N, BLOCK):
            load(X[m, n:n+BLOCK] -> x)
            load(Y[m, n:n+BLOCK] -> y)
            store(x * y -> Z[m, n:n+BLOCK])
}
"""


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which a newcomer added the entry to the table."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(content("knowledge"), root / "knowledge")
    shutil.copytree(Path(kernellab.__file__).parent, root / "kernellab", ignore=shutil.ignore_patterns("__pycache__"))
    table = root / "kernellab/operations/sketch.py"
    head, marker, rest = table.read_text().partition("    # reductions along axes\n")
    assert marker
    table.write_text(head + ENTRY + marker + rest)
    (root / "task.py").write_text(TASK)
    return root


def of_newcomer(checkout: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, timeout=400)


def test_an_operation_without_a_rule_is_a_call_of_the_library() -> None:
    task = load_task(TASK, "scaled")
    sketch = RulesDesigner().design(DesignBrief(task, detect_target("cpp", None))).sketch
    assert "library.aten" in sketch and "special_chebyshev_polynomial_t" in sketch


@pytest.mark.parametrize("dsl", ["cpp", "triton"])
def test_one_entry_of_the_table_is_a_new_operation_from_task_to_kernel(dsl: str, newcomer: Path) -> None:
    run = of_newcomer(newcomer, PROGRAM, dsl)
    assert run.stdout.splitlines()[-1:] == ["verdict True True"], run.stdout + run.stderr


def test_the_same_entry_is_an_operation_of_cuda_c(newcomer: Path) -> None:
    pytest.importorskip("cuda.core")
    run = of_newcomer(newcomer, CUDA_C, str(Path(__file__).parents[1]))
    assert run.stdout.splitlines()[-1:] == ["right True"], run.stdout + run.stderr


def test_the_linter_asks_for_the_operations_name_in_its_document_and_for_no_more(newcomer: Path) -> None:
    asked = of_newcomer(newcomer, LINT)
    assert asked.stdout.strip() == """["It does not name the operation 'chebyshev'."]""", asked.stdout + asked.stderr
    page = newcomer / "knowledge/language/operations.md"
    page.write_text(page.read_text().replace("lgamma, gcd\n", "lgamma, gcd, chebyshev\n"))
    assert of_newcomer(newcomer, LINT).stdout.strip() == "[]"


@pytest.fixture
def new_chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A copy of the knowledge with one more file in it."""
    shutil.copytree(content("knowledge"), tmp_path / "knowledge")
    text = (tmp_path / "knowledge/hardware/x86-avx512.md").read_text()
    text = text.replace("name: x86-64 server with AVX-512", "name: Tiny").replace("cores: 2", "cores: 1")
    (tmp_path / "knowledge/hardware/tiny.md").write_text(text)
    monkeypatch.setattr(chips, "content", lambda name: tmp_path / name)
    chips.known_chips.cache_clear()
    yield "tiny"
    monkeypatch.undo()
    chips.known_chips.cache_clear()


def test_one_file_is_a_new_chip_to_design_for(new_chip: str) -> None:
    target = detect_target("cpp", new_chip)
    assert (target.chip.name, target.chip.cores) == ("Tiny", 1)
    program = load_program(SKETCH)
    assert bind(program, None, None, target)
    assert cost(program, {"M": 9, "N": 37}, {"BLOCK": 16}, target.chip).time_ms is not None
