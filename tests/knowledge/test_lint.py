"""Each fault of a document is found, at its place, and a block that is wrong fails when it is run."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import pytest

from kernellab.cli import main
from kernellab.content import content
from kernellab.knowledge.execute import State, execute
from kernellab.knowledge.jobs import jobs
from kernellab.knowledge.lint import lint
from kernellab.knowledge.pages import DocumentError
from kernellab.knowledge.record import read_record, write_record

SPEC = """name = "toy"
title = "Toy"
summary = "A DSL of this test."
backends = ["cpu"]

[static]
decorators = ["toy"]

[documents]
toolchain = { np = "numpy" }
versions = ["numpy"]
"""
EXAMPLE = '"""Title.\n\nfamily: softmax\ntask: softmax/softmax\nsizes: M=2 N=3\n"""\nimport torch\n\n\ndef kernel(x):\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "dsl/toy"
    (folder / "examples/torch").mkdir(parents=True)
    (folder / "spec.toml").write_text(SPEC)
    (folder / "basic.md").write_text("# Toy\n\n```python\nprint(1)\n```\n")
    (folder / "api.md").write_text("# API\n\n## `np.sum`\n\nSketch operations: reduce_sum\n\nIt adds.\n")
    (folder / "examples/torch/soft.py").write_text(EXAMPLE + "    return torch.softmax(x, -1)\n")
    return tmp_path


def _errors(root: Path) -> list[str]:
    return [f"{fault.where}: {fault.message}" for fault in lint(root) if fault.severity == "error"]


def test_documents_that_follow_the_form_have_no_error(root: Path) -> None:
    assert _errors(root) == []


def test_a_folder_may_hold_a_lowering(root: Path) -> None:
    (root / "dsl/toy/lowering.py").write_text("")
    assert _errors(root) == []


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("basic.md", "# T\n\nUse `np.summm(x)`.\n", "has no np.summm"),
        ("basic.md", "# T\n\n```python\nimport numpy as np\n\nnp.nothing(1)\n```\n", "dsl/toy/basic.md:6: numpy"),
        ("basic.md", "# T\n\nSee [there](gone.md).\n", "The link to 'gone.md' is dead."),
        ("basic.md", "# T\n\nSee [there](#nowhere).\n", "There is no heading for '#nowhere'."),
        ("basic.md", "# T\n\nThe checker says SK999.\n", "There is no diagnostic SK999."),
        ("basic.md", "Words without a title.\n", "It has no title."),
        ("api.md", "# T\n\nSketch operations: reduce_summ\n", "The sketch language has no 'reduce_summ'."),
        ("extra.md", "# T\n", "The DocSpec does not provide for it."),
        ("spec.toml", SPEC + 'colour = "red"\n', "colour is unknown."),
        ("spec.toml", SPEC.replace('"toy"\ntitle', '"other"\ntitle'), "names 'other', and its folder is 'toy'."),
        ("spec.toml", SPEC.replace('decorators = ["toy"]', "pattern = '('"), "is not a regular expression"),
        ("examples/torch/soft.py", "def kernel(x):\n    return x\n", "has no docstring"),
        ("examples/torch/soft.py", '"""T.\n\nfamily: softmax\n"""\n', "does not say its task"),
    ],
)
def test_a_fault_is_named_at_its_place(root: Path, file: str, text: str, message: str) -> None:
    (root / "dsl/toy" / file).write_text(text)
    found = _errors(root)
    assert any(message in line for line in found), found


def test_a_folder_without_its_parts_is_a_fault(root: Path) -> None:
    (root / "dsl/toy/api.md").unlink()
    (root / "dsl/empty").mkdir()
    assert _errors(root) == ["dsl/empty: It has no spec.toml.", "dsl/toy: It has no api.md."]


def test_a_chip_without_a_source_is_a_fault(root: Path) -> None:
    (root / "hardware").mkdir()
    (root / "hardware/x.md").write_text(
        "---\nname: X\nkind: cpu\ncores: 2\nbandwidth: 1e9\nsource.cores: here\n---\n# X\n"
    )
    assert _errors(root) == ["hardware/x.md: bandwidth names no source."]


def test_blocks_pass_fail_and_are_told_apart(root: Path) -> None:
    (root / "dsl/toy/basic.md").write_text(
        "# T\n\n```text\nno code\n```\n\n```sh file=note.txt\nhello\n```\n\n"
        "```python\nassert open('note.txt').read() == 'hello\\n'\n```\n\n"
        "```python\nx = 1\nassert x == 2, 'x is one'\n```\n\n"
        "```python\nimport pathlib\n\npathlib.Path('/tmp/out_of_place').write_text('')\n```\n"
    )
    (root / "dsl/toy/examples/torch/wrong.py").write_text(EXAMPLE + "    return torch.softmax(x, 0)\n")
    (root / "patterns").mkdir()
    (root / "patterns/softmax.md").write_text(
        "# S\n\n```sketch\nsketch s { nothing }\n```\n\n```sketch fails=race\nsketch s { nothing }\n```\n"
    )
    outcomes = {o.where: o for o in execute(jobs(root))}
    states = {where: o.state for where, o in outcomes.items()}
    assert states == {
        "dsl/toy/basic.md:11": State.PASSED,
        "dsl/toy/basic.md:15": State.FAILED,
        "dsl/toy/basic.md:20": State.FAILED,
        "dsl/toy/examples/torch/soft.py": State.PASSED,
        "dsl/toy/examples/torch/wrong.py": State.FAILED,
        "patterns/softmax.md:3": State.FAILED,
        "patterns/softmax.md:7": State.FAILED,
    }
    assert "line 2 of the block: AssertionError: x is one" in outcomes["dsl/toy/basic.md:15"].reason
    assert "PermissionError" in outcomes["dsl/toy/basic.md:20"].reason
    assert "not close" in outcomes["dsl/toy/examples/torch/wrong.py"].reason
    assert "syntax" in outcomes["patterns/softmax.md:3"].reason
    assert "does not say 'race'" in outcomes["patterns/softmax.md:7"].reason


def test_a_block_of_nobody_and_an_unknown_task_are_errors(root: Path) -> None:
    (root / "language").mkdir()
    (root / "language/x.md").write_text("# X\n\n```python\nprint(1)\n```\n")
    with pytest.raises(DocumentError, match=r"language/x.md:3: nothing runs a 'python' block"):
        jobs(root)
    (root / "language/x.md").write_text("# X\n\n```sketch task=no/such\n```\n")
    with pytest.raises(DocumentError, match="no built-in task 'no/such'"):
        jobs(root)


def test_a_changed_block_is_told_until_it_passes_again(root: Path) -> None:
    first = jobs(root)
    write_record(root, {job.hash: {"python": "3.11"} for job in first})
    assert lint(root) == []
    assert set(read_record(root)) == {job.hash for job in first}
    (root / "dsl/toy/basic.md").write_text("# Toy\n\n```python\nprint(2)\n```\n")
    assert [f.message for f in lint(root)] == ["It has not passed since it was changed."]


def test_a_record_of_one_folder_leaves_those_of_the_others(root: Path) -> None:
    (root / "language").mkdir()
    (root / "language/x.md").write_text(
        "# X\n\n```sketch fails=unknown-name\nsketch t {\n    tensors: X[8]: f32;\n    load(X[q] -> x)\n}\n```\n"
    )
    before = {job.hash: {"python": "3.8", "torch": "1.0"} for job in jobs(root)}
    write_record(root, before)
    assert main(["docs", "run", "language/", "--root", str(root), "--record"]) == 0
    (run,) = jobs(root, "language/")
    held = read_record(root)
    # a tree that is not installed has no version
    installed = {"kernellab"} if any(distributions(name="kernellab")) else set()
    assert set(held[run.hash]) >= {"python", "torch"} | installed
    assert "numpy" not in held[run.hash], "only a toy's blocks run on numpy"
    assert {digest: on for digest, on in held.items() if digest != run.hash} == {
        digest: on for digest, on in before.items() if digest != run.hash
    }
    assert main(["docs", "run", "dsl/toy/basic.md", "--root", str(root), "--record"]) == 0
    (toy,) = jobs(root, "dsl/toy/basic.md")
    assert read_record(root)[run.hash] == held[run.hash] and "numpy" in read_record(root)[toy.hash]


def test_a_dsl_s_documents_are_run_by_its_name(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "run", "toy", "--root", str(root)]) == 0
    assert "dsl/toy/basic.md" in capsys.readouterr().err
    assert main(["docs", "run", "to", "--root", str(root)]) == 2
    assert "no DSL is called so" in capsys.readouterr().err


def test_the_language_s_document_names_every_operation(root: Path) -> None:
    assert not [error for error in _errors(content("knowledge")) if "does not name" in error]
    (root / "language").mkdir(exist_ok=True)
    text = content("knowledge").joinpath("language/operations.md").read_text(encoding="utf-8")
    (root / "language/operations.md").write_text(text.replace("hypot", "hypo"))
    assert "language/operations.md: It does not name the operation 'hypot'." in _errors(root)
