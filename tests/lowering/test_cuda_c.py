"""Lowered CUDA-C computes what the sketch means (its device code runs on the CPU), and NVRTC takes it."""

from __future__ import annotations

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.dsls import get_adapter
from kernellab.dsls.machine import named_chip
from kernellab.errors import LoweringError
from kernellab.lowering import lower
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task

from .emulated import kernel_of
from .triton_cases import CASES, MATMUL, RMS_NORM, SOFTMAX, Case, normal

TARGET = Target("cuda_c", Backend.CUDA, Chip("test GPU", "gpu", 132))
BUILTIN = Path(__file__).parents[2] / "kernellab" / "bench" / "builtin"
#: the built-in tasks whose texts `golden --compare` compares: of each family some, all of them designed
SAMPLED = (Path(__file__).parents[1] / "designer" / "golden_builtin.txt").read_text(encoding="utf-8").split()
#: each pointwise operation is the same road; a few stand for all
_CASES = [c for c in CASES if not c.name.startswith(("pointwise", "not a number", "dtype"))]
_CASES += [c for c in CASES if c.name.startswith("dtype")]
_CASES += [c for c in CASES if "pow" in c.name or "gelu" in c.name or "not a number through clamp" in c.name]
#: folded along a middle axis, of which the lowering says so
_REFUSED = "a tile of three dimensions, reduced in the middle"


def source_of(text: str, constexpr: Mapping[str, int | float] | None = None) -> Source:
    program = load_program(text)
    return lower(program, bind(program, None, constexpr, TARGET), TARGET)


def check(text: str, inputs: Mapping[str, torch.Tensor], folder: Path, patch: Any, rtol: float = 1e-5) -> None:
    program = load_program(text)
    binding = bind(program, None, None, TARGET)
    kernel = kernel_of(lower(program, binding, TARGET), folder, patch)
    got = kernel(*(inputs[t.name].clone() for t in program.inputs))
    want = run(program, inputs, constexpr=binding.constexpr)
    for output, value in zip(binding.outputs, got if isinstance(got, tuple) else (got,), strict=True):
        expected = want[output.tensor]
        assert value.shape == expected.shape
        assert value.dtype == expected.dtype
        torch.testing.assert_close(value, expected, rtol=rtol, atol=rtol, equal_nan=True)


@pytest.mark.parametrize("case", [c for c in _CASES if c.name != _REFUSED], ids=lambda c: c.name)
def test_lowered_kernel_computes_what_the_sketch_means(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(case.text, case.inputs(), tmp_path, monkeypatch, case.rtol)


@pytest.mark.parametrize("columns", [1, 7, 64, 1024, 1026])
@pytest.mark.parametrize("text", [RMS_NORM, SOFTMAX], ids=["looped", "whole row"])
def test_sizes_around_the_block_and_widths_of_vectors(
    text: str, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(text, {"X": normal(2, columns), "W": normal(columns, seed=1)}, tmp_path, monkeypatch)


@pytest.mark.parametrize(("weight", "value"), [("V", "THREADS"), ("threadIdx", "at"), ("new", "float")])
def test_tensors_may_have_names_that_the_language_takes(
    weight: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attention's V is one."""
    text = RMS_NORM.replace("W[", f"{weight}[").replace("X[", f"{value}[")
    check(text, {value: normal(2, 300), weight: normal(300, seed=1)}, tmp_path, monkeypatch)


def test_an_input_at_an_odd_address_is_moved_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(source_of(SOFTMAX), tmp_path, monkeypatch)
    x = normal(4 * 64 + 1)[1:].reshape(4, 64)
    assert x.data_ptr() % 16
    torch.testing.assert_close(kernel(x), torch.softmax(x, -1), rtol=1e-5, atol=1e-6)


def test_empty_tensors_give_empty_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_of(source_of(SOFTMAX), tmp_path, monkeypatch)(torch.empty(0, 5)).shape == (0, 5)


def test_text_keeps_names_and_the_sketch_lines() -> None:
    source = source_of(RMS_NORM)
    text = source.files["rms_norm.cu"]
    assert "acc[at + v] = acc[at + v] + (x * x);" in text
    assert "const float rms = kl::rsqrt(" in text
    lines = text.splitlines()
    mapped = source.line_map["rms_norm.cu"]
    (store,) = [n for n, line in enumerate(lines, 1) if "kl::store(&Y[" in line]
    assert RMS_NORM.splitlines()[mapped[store] - 1].strip().startswith("store(x * rms * w")
    assert "BLOCK = 1024  # one of 256, 512, 1024, 2048" in source.files["kernel.py"]


def test_one_text_in_every_process() -> None:
    assert source_of(MATMUL.replace("TYPE", "f32")).hash == source_of(MATMUL.replace("TYPE", "f32")).hash


def test_the_adapter_sees_a_kernel_that_is_defined_and_launched() -> None:
    source = source_of(SOFTMAX)
    adapter = get_adapter("cuda_c")
    assert adapter.recognises(source)
    assert adapter.static(source) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (next(c.text for c in CASES if c.name == _REFUSED), "Line 10: CUDA-C reduces leading or trailing axes"),
        (MATMUL.replace("TYPE", "f32").replace("BM = 16, BN = 32, BK = 8", "BM = 128, BN = 128, BK = 64"), "of shared"),
    ],
    ids=["middle axis", "shared memory"],
)  # fmt: skip
def test_what_it_does_not_have_is_one_sentence_with_a_remedy(text: str, says: str) -> None:
    with pytest.raises(LoweringError, match=says) as raised:
        source_of(text)
    assert "--dsl triton" in raised.value.remedy


class _Compiled:
    """cuda.core.Program, whose kernels are compiled and not launched: there is no GPU."""

    def __init__(self, code: str, kind: str, options: Any) -> None:
        from cuda.core import Program

        self._program = Program(code, kind, options=options)

    def compile(self, kind: str) -> _Compiled:
        assert len(bytes(self._program.compile(kind).code)) > 100
        return self

    def get_kernel(self, name: str) -> str:
        return name


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({place.split("/")[0] for place in SAMPLED}))
def test_nvrtc_takes_what_is_lowered_for_the_built_in_tasks(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.core")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: types.SimpleNamespace(cuda_stream=0))
    target = Target("cuda_c", Backend.CUDA, named_chip("h200"))
    for path in (BUILTIN / f"{place}.py" for place in SAMPLED if place.split("/")[0] == family):
        task = load_task(path)
        source = None
        for reply in RulesDesigner().designs(DesignBrief(task=task, target=target)):
            program = load_program(reply.sketch)
            try:
                source = lower(program, bind(program, task, None, target), target)
                break
            except LoweringError as error:
                assert error.remedy
        if source is None:
            # sorting
            assert family == "order", path
            continue
        folder = tmp_path / path.stem
        folder.mkdir()
        for name, text in source.files.items():
            (folder / name).write_text(text)
        space: dict[str, Any] = {"__file__": str(folder / "kernel.py"), "__name__": path.stem}
        exec(compile(source.files["kernel.py"], "kernel.py", "exec"), space)
        space |= {"Program": _Compiled, "launch": lambda *_: None, "_stream": lambda _: None}
        sizes = task.module().default_sizes()
        space["kernel"](
            *(
                torch.empty(a.extents(sizes), dtype=getattr(torch, a.dtype), device="meta")
                if a in task.tensors
                else (a.value if a.value is not None else a.default)
                for a in task.args
            )
        )
