"""A source that a person has edited is lifted to what it does now, or refused with the line: never to another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from kernellab.errors import LoweringError
from kernellab.lowering.lift import lift
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run

from .lifting import INTERPRETER, TARGETS, code_of, edits, lowered, source_of, task_of

EDITED = [
    "softmax/softmax", "loss/mse", "matmul/matmul_bias_gelu", "indexing/gather_along_rows", "pooling/avg_pool2d",
    "scan/cumsum", "pointwise/gelu_by_hand", "order/topk",
]  # fmt: skip


@pytest.mark.parametrize("dsl", TARGETS)
@pytest.mark.parametrize("name", EDITED)
def test_an_edit_is_followed_or_refused_with_a_line(name: str, dsl: str) -> None:
    if (name, dsl) == ("order/topk", "cuda_c"):
        pytest.skip("CUDA-C has no sort")
    for edit in edits(lowered(name, dsl), seed=3, most=8):
        try:
            text = lift(edit.source, task_of(name))
        except LoweringError as error:
            assert re.search(r"^Line \d+ of |^The file ", error.message), error.message
        else:
            again = source_of(text, task_of(name), TARGETS[dsl])
            assert code_of(again) == code_of(edit.source), f"{edit.file}:{edit.line} {edit.old} -> {edit.new}"


def _replaced(source: Source, file: str, old: str, new: str) -> Source:
    assert old in source.files[file], f"{old!r} is not in {file}"
    return source.model_copy(update={"files": {**source.files, file: source.files[file].replace(old, new, 1)}})


FOLLOWED = [
    ("loss/mse", "triton", "kernel.py", "a_tile - b_tile  ", "a_tile + b_tile  ", "a_tile + b_tile"),
    ("normalisation/layer_norm", "cpp", "kernel.cpp", "x_tile - mean;", "x_tile + mean;", "x_tile + mean"),
    ("pointwise/gelu_by_hand", "cpp", "kernel.cpp", "0.044715f", "0.05f", "0.05"),
    ("pointwise/gelu_by_hand", "cuda_c", "gelu_by_hand.cu", "0.044715f", "0.05f", "0.05"),
    ("softmax/softmax", "cuda_c", "softmax.cu", "kl::exp(x_tile", "kl::tanh(x_tile", "tanh(x_tile"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dsl", "file", "old", "new", "said"), FOLLOWED, ids=lambda v: None)
def test_a_changed_number_operator_or_name_changes_the_sketch(
    name: str, dsl: str, file: str, old: str, new: str, said: str
) -> None:
    source = _replaced(lowered(name, dsl), file, old, new)
    text = lift(source, task_of(name))
    assert said in text
    assert code_of(source_of(text, task_of(name), TARGETS[dsl])) == code_of(source)
    # the gate judges what the code does, and says that it is no longer the task's
    assert gate(text, task_of(name), seconds=0.2).state.value == "wrong"


def test_a_tunable_is_lifted_with_the_value_that_a_person_gave_it() -> None:
    source = _replaced(lowered("loss/mse", "triton"), "kernel.py", "    BLOCK = ", "    BLOCK = 512  # ")
    text = lift(source, task_of("loss/mse"))
    assert re.search(r"BLOCK = 512\b", text)
    assert gate(text, task_of("loss/mse"), seconds=0.2).state.value == "right"


def test_a_comment_that_lies_is_not_believed() -> None:
    """The comment says another operation than the code: the code counts."""
    name = "pointwise/gelu_by_hand"
    source = lowered(name, "cpp")
    honest = lift(source, task_of(name))
    text = source.files["kernel.cpp"]
    lie = re.sub(r"(// \d+: .*)tanh", r"\1sin", text)
    assert lie != text
    assert lift(source.model_copy(update={"files": {**source.files, "kernel.cpp": lie}}), task_of(name)) == honest
    more = re.sub(r"(// \d+: )load\(.*", r"\1x_tile = full([BLOCK], 1.0, f32)", text, count=1)
    assert lift(source.model_copy(update={"files": {**source.files, "kernel.cpp": more}}), task_of(name)) == honest


def test_code_behind_a_comment_s_end_is_seen() -> None:
    """A backslash at the end of a comment takes the next line into it; so does a block comment."""
    name = "softmax/softmax"
    source = lowered(name, "cpp")
    lines = source.files["kernel.cpp"].split("\n")
    at = next(n for n, line in enumerate(lines) if "reduce_sum" in line)
    swallowed = "\n".join([*lines[: at - 1], lines[at - 1] + "  // \\", *lines[at:]])
    with pytest.raises(LoweringError, match=r"^Line \d+ of kernel.cpp"):
        lift(source.model_copy(update={"files": {**source.files, "kernel.cpp": swallowed}}), task_of(name))


def test_layout_and_comments_of_one_s_own_do_no_harm() -> None:
    name = "softmax/softmax"
    source = lowered(name, "triton")
    spaced = source.files["kernel.py"].replace("\ndef kernel(", "\n# mine\n\ndef kernel(").replace(" - ", "  -  ")
    assert lift(source.model_copy(update={"files": {"kernel.py": spaced}}), task_of(name)) == lift(
        source, task_of(name)
    )


def test_a_changed_header_a_missing_and_a_strange_file_are_refused() -> None:
    name = "softmax/softmax"
    source = lowered(name, "cpp")
    header = _replaced(source, "kl_math.h", "return", "return -")
    with pytest.raises(LoweringError, match=r"^Line \d+ of kl_math.h"):
        lift(header, task_of(name))
    less = {n: t for n, t in source.files.items() if n != "kl_math.h"}
    with pytest.raises(LoweringError, match=r"kl_math\.h is missing"):
        lift(source.model_copy(update={"files": less}), task_of(name))
    with pytest.raises(LoweringError, match=r"torch\.py is not one"):
        lift(source.model_copy(update={"files": {**source.files, "torch.py": "x = 1\n"}}), task_of(name))


RUN = [("+", "-"), (" - row_max", " + row_max"), ("tl.exp(", "tl.sin("), ("other=0.0", "other=1.0")]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("old", "new"), RUN)
def test_what_is_lifted_from_an_edited_source_computes_what_the_source_computes(
    old: str, new: str, tmp_path: Path
) -> None:
    """Run in Triton's interpreter: the edited kernel itself against the interpreter of sketches."""
    name = "softmax/softmax"
    task = task_of(name)
    plain = source_of(lift(lowered(name, "triton"), task), task, INTERPRETER)
    body = plain.files["kernel.py"].index("def softmax_kernel")
    if old not in plain.files["kernel.py"][body:]:
        pytest.skip(f"no {old!r} in this kernel")
    text = plain.files["kernel.py"][:body] + plain.files["kernel.py"][body:].replace(old, new, 1)
    edited = plain.model_copy(update={"files": {"kernel.py": text}})
    try:
        found = lift(edited, task)
    except LoweringError as error:
        assert re.search(r"^Line \d+ of kernel.py", error.message)
        return
    x = torch.randn(5, 37, generator=torch.Generator().manual_seed(0))
    path = tmp_path / "edited_kernel.py"
    path.write_text(text)
    scope: dict[str, Any] = _loaded(path)
    program = load_program(found)
    want = run(program, {"x": x}, constexpr=bind(program, task, {}, INTERPRETER).constexpr)["y"]
    torch.testing.assert_close(scope["kernel"](x), want, rtol=1e-5, atol=1e-5, equal_nan=True)


def _loaded(path: Path) -> dict[str, Any]:
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)
