"""A lowered source carries its sketch: lifting proves it, tells an edit, and prompts leave it out."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import CodeBrief, DesignBrief
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.code import code_prompt
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.errors import LoweringError
from kernellab.lowering import lower
from kernellab.lowering.embedded_sketch import bare, carried, same_code
from kernellab.lowering.lift import lift
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.library import is_library
from kernellab.target import Target
from kernellab.task import Task, load_task

from .lifting import CPU, TARGETS, designed, source_of, task_of

NAMES = ["softmax/softmax", "matmul/linear_relu", "scan/cumsum"]
LINEAR_GELU = """import torch
import torch.nn.functional as F
def reference(x, w, b):
    return F.gelu(F.linear(x, w, b))
def inputs():
    return torch.randn(8, 16), torch.randn(32, 16), torch.randn(32)
"""


def edited(source: Source, file: str, old: str, new: str) -> Source:
    assert old in source.files[file]
    return source.model_copy(update={"files": {**source.files, file: source.files[file].replace(old, new)}})


def composed(task: Task, target: Target) -> str:
    replies = RulesDesigner().designs(DesignBrief(task, target, allow_library=True))
    return next(r.sketch for r in replies if any(map(is_library, load_program(r.sketch).kernels)))


@pytest.mark.parametrize("dsl", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_a_source_carries_the_sketch_that_it_was_lowered_from(name: str, dsl: str) -> None:
    text = designed(name, dsl)
    source = source_of(text, task_of(name), TARGETS[dsl])
    own = carried(source)
    assert own is not None and own.text == text and not own.is_edited
    assert lift(source, task_of(name)) == text
    compile(source.files[source.entry_file], source.entry_file, "exec")


def test_it_carries_the_values_that_were_lowered() -> None:
    name = "softmax/softmax"
    program = load_program(designed(name, "triton"))
    constant = next(c for c in program.tunables if c.name == "num_warps")
    other = next(c for c in constant.choices if c != constant.value)
    target = TARGETS["triton"]
    source = lower(program, bind(program, task_of(name), {"num_warps": other}, target), target)
    own = carried(source)
    assert own is not None and f"num_warps = {other} in" in own.text
    assert lift(source, task_of(name)) == own.text


def test_a_library_call_is_lifted_from_what_the_source_carries() -> None:
    task = load_task(LINEAR_GELU, "linear_gelu")
    text = composed(task, CPU)
    source = source_of(text, task, CPU)
    assert "library.mm(" in text and lift(source, task) == text
    with pytest.raises(LoweringError, match="does not carry the sketch"):
        lift(bare(source), task)


def test_edited_code_is_told_and_lifted_as_it_is_now() -> None:
    name = "matmul/linear_relu"
    source = source_of(designed(name, "cpp"), task_of(name), CPU)
    changed = edited(source, "kernel.cpp", "kl::relu(", "kl::abs(")
    own = carried(changed)
    assert own is not None and own.is_edited and own.text == designed(name, "cpp")
    found = lift(changed, task_of(name))
    assert "abs(" in found and "relu(" not in found


def test_a_carried_sketch_that_lies_does_not_pass_for_the_code() -> None:
    name = "matmul/linear_relu"
    source = source_of(designed(name, "cpp"), task_of(name), CPU)
    lying = edited(source, "kernel.py", "relu(", "abs(")
    own = carried(lying)
    assert own is not None and "abs(" in own.text
    assert lift(lying, task_of(name)) == designed(name, "cpp")


def test_a_source_without_its_sketch_is_the_same_code() -> None:
    name = "softmax/softmax"
    source = source_of(designed(name, "triton"), task_of(name), TARGETS["triton"])
    plain = bare(source)
    assert carried(plain) is None and bare(plain) is plain
    assert same_code(source, plain) and source.hash != plain.hash
    assert not same_code(source, edited(plain, "kernel.py", "def kernel(", "def other("))


@pytest.mark.parametrize("dsl", ["triton", "cpp"])
def test_a_coder_s_prompt_does_not_tell_the_sketch_twice(dsl: str) -> None:
    name = "softmax/softmax"
    text = designed(name, dsl)
    source = source_of(text, task_of(name), TARGETS[dsl])
    brief = CodeBrief(task_of(name), TARGETS[dsl], text, previous=source)
    told = "\n".join(m.content for m in code_prompt(brief, Library(None), Options()).messages)
    assert "def kernel(" in told or dsl == "cpp"
    assert "#|" not in told and "Lowered from this sketch" not in told


def test_the_command_says_that_code_was_edited(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    from kernellab.bench.suites import BUILTIN
    from kernellab.cli import main

    name = "matmul/linear_relu"
    source = source_of(designed(name, "cpp"), task_of(name), CPU)
    for given, said in ((source, False), (edited(source, "kernel.cpp", "kl::relu(", "kl::abs("), True)):
        for file, text in given.files.items():
            (tmp_path / file).write_text(text)
        main(["sketch", "lift", str(tmp_path), "--task", str(BUILTIN / f"{name}.py")])
        out = capsys.readouterr()
        assert ("The code was changed after it was lowered" in out.out + out.err) is said
