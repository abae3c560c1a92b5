"""New DSLs in ten minutes, Pallas (interpreted), Warp, TileLang and Taichi on the CPU: a draft, an import, half a page.

``by_documents/NAME/documents`` is what a person wrote, ``answers`` what a model answered that saw the prompts alone
(``python -m tests.agents.trial --dsl NAME --player DIR --workspace DIR --tasks tests/dsls/by_documents/tasks``). The
names of a DSL are those of its installed module, so nothing of that is kept here.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernellab.cli import main
from kernellab.dsls import get_adapter
from kernellab.dsls.documented import DocumentedAdapter
from kernellab.dsls.spec import SpecError, read_spec
from kernellab.knowledge.lint import lint
from kernellab.records import Source
from kernellab.session import design
from kernellab.verifier import Verifier, VerifyOptions
from kernellab.verifier.stages.honest import undeclared
from tests.models.fake_server import FakeServer, answer

OWN = Path(__file__).with_name("by_documents")
SETTINGS = '[models]\nbase_url = "{url}"\nmodel = "player"\nretries = 0\n'


@dataclass(frozen=True)
class New:
    """``told``: headings of the API that a Coder's prompt must have; ``right`` in an answer, made ``wrong``."""

    name: str
    package: str
    modules: str
    toolchain: dict[str, str]
    decorators: tuple[str, ...]
    told: tuple[str, ...]
    right: str
    wrong: str


NEW = {
    dsl.name: dsl
    for dsl in (
        New(
            "pallas", "jax", "python:jax.experimental.pallas as pl, jax.numpy as jnp",
            {"pl": "jax.experimental.pallas", "jnp": "jax.numpy"}, (),
            ("## pl.pallas_call(kernel, out_shape", "## pl.BlockSpec("), "* x_ref[...]", "* x_ref[...] * 1.01",
        ),
        New(
            "warp", "warp", "python:warp as wp", {"wp": "warp"}, ("kernel",),
            ("## wp.launch(kernel, dim, inputs=[]",), "* x[i, j]", "* x[i, j] * 1.01",
        ),
        New(
            "tilelang_cpu", "tilelang", "python:tilelang.cpu.language as T, tilelang",
            {"T": "tilelang.cpu.language", "tilelang": "tilelang"}, ("prim_func",),
            ("## T.Kernel(",), "* X[m, n]", "* X[m, n] * 1.01",
        ),
        New(
            "taichi", "taichi", "python:taichi as ti", {"ti": "taichi"}, ("kernel",),
            ("## ti.kernel(",), "* x[i, j]", "* x[i, j] * 1.01",
        ),
    )
}  # fmt: skip
ANSWERED = sorted((path.parts[-3], path.name.split(".")[0]) for path in OWN.glob("*/answers/*.code.md"))


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: tmp_path_factory.mktemp(name) for name in NEW}


def begun(dsl: New, workspaces: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace after ``docs new``, what a person writes, and ``docs import``."""
    pytest.importorskip(dsl.package, reason=f"{dsl.name} needs {dsl.package}, which is not installed.")
    place = workspaces[dsl.name]
    monkeypatch.chdir(place)
    folder = place / "knowledge" / "dsl" / dsl.name
    if not folder.exists():
        (place / "kernellab.toml").touch()
        assert main(["docs", "new", dsl.name, "--like", "numba"]) == 0
        shutil.rmtree(folder / "examples")
        shutil.copytree(OWN / dsl.name / "documents", folder, dirs_exist_ok=True)
        assert main(["docs", "import", dsl.modules, "--dsl", dsl.name]) == 0
    return place


@pytest.mark.parametrize("name", NEW)
def test_nothing_but_running_the_examples_is_left_to_do(
    name: str, workspaces: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsl = NEW[name]
    place = begun(dsl, workspaces, monkeypatch)
    left = {fault.message for fault in lint(place / "knowledge")}
    assert left <= {"It has not passed since it was changed."}
    spec = read_spec(place / "knowledge/dsl" / name / "spec.toml")
    assert dict(spec.documents.toolchain) == dsl.toolchain
    assert spec.static.decorators == dsl.decorators
    assert bool(spec.static.pattern) is not bool(dsl.decorators)
    assert [need.package for need in spec.ready.needs] == [dsl.package]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), ANSWERED)
def test_a_models_kernels_in_it_are_verified(
    name: str, task: str, workspaces: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsl = NEW[name]
    place = begun(dsl, workspaces, monkeypatch)
    replies = [(OWN / name / "answers" / f"{task}.{role}.md").read_text() for role in ("design", "code")]
    with FakeServer(*map(answer, replies)) as server:
        (place / "kernellab.toml").write_text(SETTINGS.format(url=server.url))
        done = design(
            (OWN / "tasks" / f"{task}.py").read_text(), dsl=name, roles={"designer": "model", "coder": "model"},
            name=task, workspace=place, improve=False, options={"budget": 0.05},
        ).wait(300)  # fmt: skip
    assert done.verdict is not None and done.verdict.passed, done.reason
    assert len(server.requests) == 2
    prompt = server.requests[1].body["messages"][-1]["content"]
    assert all(heading in prompt for heading in dsl.told)


@pytest.mark.slow
@pytest.mark.parametrize("name", NEW)
def test_a_wrong_kernel_in_it_is_refused(
    name: str, workspaces: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernellab.dsls.machine import detect_target
    from kernellab.task import load_task

    dsl = NEW[name]
    begun(dsl, workspaces, monkeypatch)
    text = (OWN / name / "answers/gated_silu.code.md").read_text().split("```python\n")[1].partition("```")[0]
    wrong = text.replace(dsl.right, dsl.wrong)
    assert wrong != text
    with Verifier() as verifier:
        verdict = verifier.verify(
            load_task(OWN / "tasks/gated_silu.py"), Source(dsl=name, files={"kernel.py": wrong}),
            detect_target(name), options=VerifyOptions(),
        )  # fmt: skip
    assert not verdict.passed and verdict.stage.value == "correct", verdict.reason


def test_a_runtimes_own_operators_are_refused_in_whatever_way_they_are_reached(tmp_path: Path) -> None:
    spec = read_spec(shutil.copytree(OWN / "taichi/documents", tmp_path / "taichi") / "spec.toml")
    text = (OWN / "taichi/answers/gated_silu.code.md").read_text().split("```python\n")[1].partition("```")[0]
    ways = (
        "ti.svd(x)", "ti.linalg.SparseMatrixBuilder(3)", "from taichi.linalg import SparseSolver",
        "from taichi import algorithms", "getattr(ti, 'sym_eig')(x)", "__import__('taichi.algorithms')",
        "import taichi._lib.core as c", "from taichi import *", "getattr(ti, 'sv' + 'd')(x)",
        "ti.__dict__['sv' + 'd'](x)", "vars(ti)['sv' + 'd'](x)", "ti.__getattribute__('sv' + 'd')(x)",
        "__import__('taichi.algo' + 'rithms')", "import importlib as i; i.import_module('taichi.algo' + 'rithms')",
        "import sys; sys.modules['taichi.algo' + 'rithms']", "list(map(getattr, [ti], ['sv' + 'd']))",
        "g = getattr; g(ti, 'sv' + 'd')", "from operator import attrgetter as g; g('sv' + 'd')(ti)",
        "eval('ti.sv' + 'd')(x)", "ti.init.__globals__['sv' + 'd'](x)", "import pkgutil; pkgutil.resolve_name(x)",
        "import pickle; pickle.loads(x)", "match ti:\n        case object(svd=s): s(x)",
    )  # fmt: skip

    def found(source: str) -> set[str]:
        findings = DocumentedAdapter(spec).static(Source(dsl="taichi", files={"kernel.py": source}))
        return {finding.rule for finding in findings if finding.fatal}

    assert found(text) == set()
    harmless = "import re\nsolve = modules = 1\nre.compile('[.]')\nf = getattr(ti, 'f32')\n# svd of a row: eval later\n"
    assert found(f"{text}\n{harmless}") == set()
    assert {way for way in ways if found(f"{text}\ndef more(x):\n    {way}\n") != {"library"}} == set()


def test_a_runtime_is_named_together_with_its_operators(tmp_path: Path) -> None:
    text = (OWN / "taichi/documents/spec.toml").read_text()
    folder = tmp_path / "taichi"
    folder.mkdir()
    (folder / "spec.toml").write_text("\n".join(row for row in text.splitlines() if not row.startswith("library")))
    with pytest.raises(SpecError, match=r"static\.library"):
        read_spec(folder / "spec.toml")


def test_a_package_that_compiles_in_memory_and_is_not_named_so_is_told(tmp_path: Path) -> None:
    shutil.copytree(OWN / "taichi" / "documents", tmp_path / "taichi")
    spec = read_spec(tmp_path / "taichi" / "spec.toml")
    named = DocumentedAdapter(spec)
    unnamed = DocumentedAdapter(spec.model_copy(update={"worker": spec.worker.model_copy(update={"runtime": ()})}))
    assert undeclared(unnamed, ["taichi_python"]) == "taichi"
    assert undeclared(unnamed, ["libtorch_cpu"]) == "" and undeclared(named, ["taichi_python"]) == ""
    assert undeclared(get_adapter("cpp"), ["taichi_python"]) == ""
