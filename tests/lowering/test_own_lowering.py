"""A lowering is one file of a workspace, found by its place: nothing else knows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.errors import LoweringError
from kernellab.lowering import lower, lowered_dsls
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target

SKETCH = """sketch twice {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    constexpr: B = 64;
    @llm_hint("parallel", "grididx")
    for n in range(0, N, B):
        load(X[n:n+B] -> x)
        store(x + x -> Y[n:n+B])
}
"""
LOWERING = '''"""Writes a sketch of one store for NumPy."""

from kernellab.errors import LoweringError
from kernellab.records import Source
from kernellab.sketch.program.program import Store
from kernellab.sketch.program.walk import statements


def lower(program, binding, target):
    stores = [s for k in program.kernels for s in statements(k.body) if isinstance(s, Store)]
    if len(stores) != 1:
        raise LoweringError(f"Line {stores[1].span.line}: one store is all that is written here.", "Drop a store.")
    name = ", ".join(binding.parameters)
    return Source(dsl=target.dsl, files={"kernel.py": f"def kernel({name}):\\n    return {name} + {name}\\n"})
'''


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "knowledge/dsl/plain_numpy"
    folder.mkdir(parents=True)
    (tmp_path / "kernellab.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return folder


def lowered(text: str = SKETCH, dsl: str = "plain_numpy") -> str:
    program = load_program(text)
    target = Target(dsl, Backend.CPU, Chip("here", "cpu", cores=2))
    return lower(program, bind(program), target).files["kernel.py"]


def test_a_workspace_brings_its_own_lowering(workspace: Path) -> None:
    assert "plain_numpy" not in lowered_dsls()
    (workspace / "lowering.py").write_text(LOWERING)
    assert lowered_dsls()[-1] == "plain_numpy"
    names: dict[str, object] = {}
    exec(lowered(), names)
    assert names["kernel"](21) == 42  # type: ignore[operator]


def test_it_says_which_line_it_cannot_write(workspace: Path) -> None:
    (workspace / "lowering.py").write_text(LOWERING)
    two = SKETCH.replace("        store(x + x", "        store(x -> Y[n:n+B])\n        store(x + x")
    with pytest.raises(LoweringError, match=r"^Line 9: one store"):
        lowered(two)


@pytest.mark.parametrize(
    ("text", "message"),
    [("def lower(:", "cannot be imported: SyntaxError"), ("x = 1", "defines no function 'lower'")],
)
def test_a_file_that_is_no_lowering_is_named(workspace: Path, text: str, message: str) -> None:
    (workspace / "lowering.py").write_text(text)
    with pytest.raises(LoweringError, match=f"lowering.py {message}"):
        lowered()


def test_a_dsl_without_a_lowering_is_told_those_that_have_one(workspace: Path) -> None:
    with pytest.raises(LoweringError, match="no lowering to 'plain_numpy'") as refused:
        lowered()
    assert refused.value.remedy.startswith("Choose one of cpp, triton, cuda_c,")
