"""A new DSL in ten minutes: Pallas, interpreted, by a draft, an import, and half a page that a person wrote.

``pallas/documents`` is what a person wrote, ``pallas/answers`` what a model answered that saw the prompts alone
(``python -m tests.agents.trial --dsl pallas --player DIR --workspace DIR --tasks tests/dsls/pallas/tasks``). Its names
are those of the installed jax, so nothing of jax is kept here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernellab.cli import main
from kernellab.dsls.spec import read_spec
from kernellab.knowledge.lint import lint
from kernellab.records import Source
from kernellab.session import design
from kernellab.verifier import Verifier, VerifyOptions
from tests.models.fake_server import FakeServer, answer

pytest.importorskip("jax", reason="Pallas needs jax, which is not installed.")
OWN = Path(__file__).with_name("pallas")
MODULES = "python:jax.experimental.pallas as pl, jax.numpy as jnp"
SETTINGS = '[models]\nbase_url = "{url}"\nmodel = "player"\nretries = 0\n'
TASKS = sorted(path.stem for path in (OWN / "tasks").glob("*.py"))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """``docs new``, what a person writes, ``docs import``."""
    place = tmp_path_factory.mktemp("pallas")
    (place / "kernellab.toml").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        folder = place / "knowledge" / "dsl" / "pallas"
        assert main(["docs", "new", "pallas", "--like", "numba"]) == 0
        shutil.rmtree(folder / "examples")
        shutil.copytree(OWN / "documents", folder, dirs_exist_ok=True)
        assert main(["docs", "import", MODULES, "--dsl", "pallas"]) == 0
        yield place


def test_nothing_but_running_the_examples_is_left_to_do(workspace: Path) -> None:
    left = {fault.message for fault in lint(workspace / "knowledge")}
    assert left <= {"It has not passed since it was changed."}
    spec = read_spec(workspace / "knowledge/dsl/pallas/spec.toml")
    assert dict(spec.documents.toolchain) == {"pl": "jax.experimental.pallas", "jnp": "jax.numpy"}
    assert "pallas_call" in spec.static.pattern and spec.static.decorators == ()
    assert [need.package for need in spec.ready.needs] == ["jax"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_models_kernels_in_it_are_verified(name: str, workspace: Path) -> None:
    replies = [(OWN / "answers" / f"{name}.{role}.md").read_text() for role in ("design", "code")]
    with FakeServer(*map(answer, replies)) as server:
        (workspace / "kernellab.toml").write_text(SETTINGS.format(url=server.url))
        done = design(
            (OWN / "tasks" / f"{name}.py").read_text(), dsl="pallas", roles={"designer": "model", "coder": "model"},
            name=name, workspace=workspace, improve=False, options={"budget": 0.05},
        ).wait(300)  # fmt: skip
    assert done.verdict is not None and done.verdict.passed, done.reason
    assert len(server.requests) == 2
    told = server.requests[1].body["messages"][-1]["content"]
    assert "## pl.pallas_call(kernel, out_shape" in told and "## pl.BlockSpec(" in told


@pytest.mark.slow
def test_a_wrong_kernel_in_it_is_refused(workspace: Path) -> None:
    from kernellab.dsls.machine import detect_target
    from kernellab.task import load_task

    text = (OWN / "answers" / "gated_silu.code.md").read_text().split("```python\n")[1].partition("```")[0]
    wrong = text.replace("* x_ref[...]", "* x_ref[...] * 1.01")
    assert wrong != text
    with Verifier() as verifier:
        verdict = verifier.verify(
            load_task(OWN / "tasks" / "gated_silu.py"), Source(dsl="pallas", files={"kernel.py": wrong}),
            detect_target("pallas"), options=VerifyOptions(),
        )  # fmt: skip
    assert not verdict.passed and verdict.stage.value == "correct", verdict.reason
