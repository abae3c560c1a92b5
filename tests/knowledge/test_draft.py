"""A new DSL begins as an annotated draft; an imported module fills it as far as it tells, and passes the lint."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kernellab.agents.briefs import CodeBrief
from kernellab.agents.model import Options
from kernellab.agents.model.prompts.code import code_prompt
from kernellab.agents.model.prompts.quotes import Library
from kernellab.cli import main
from kernellab.content import content
from kernellab.dsls.documented import DocumentedAdapter
from kernellab.dsls.spec import read_spec
from kernellab.knowledge import Knowledge
from kernellab.knowledge.draft import Like, spec_text
from kernellab.knowledge.importer import import_raw
from kernellab.knowledge.lint import lint
from kernellab.knowledge.modules import (
    _CALLED,
    _WRITTEN_WITH,
    Module,
    Offer,
    _marks,
    operations_of,
    short_signature,
    written_with,
)
from kernellab.knowledge.toolchain import Name
from kernellab.operations.sketch import OPS
from kernellab.records import Source
from kernellab.target import Backend, Target
from tests.agents.model_parts import AFFINE, CHIP, SKETCH

TILES = '''"""A toolchain of this test."""

import tiles_apart_of_tests as _apart


def load(ref, index: "tiles_of_tests.hidden.Index" = None):
    """Reads a block; see tiles_of_tests.hidden.Index."""


def maximum(a, b):
    """The larger of each."""


def stash(tile, ref):
    """Writes a block."""


def launch(kernel, grid):
    """Runs the kernel."""
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kernellab.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An importable module, here and in the process that looks at it."""
    name = "tiles_of_tests"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / f"{name}.py").write_text(TILES.replace("import tiles_apart_of_tests as _apart\n", ""))
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'lib'}:{Path(__file__).parents[2]}")
    return name


def faults(root: Path, severity: str = "error") -> list[str]:
    return [f"{fault.where}: {fault.message}" for fault in lint(root) if fault.severity == severity]


def test_a_draft_is_a_spec_that_reads_and_a_lint_that_names_what_is_missing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["docs", "new", "toy", "--like", "numba"]) == 0
    folder = place / "knowledge" / "dsl" / "toy"
    spec, numba = read_spec(folder / "spec.toml"), read_spec(content("knowledge") / "dsl/numba/spec.toml")
    assert (spec.name, spec.backends, spec.static.decorators) == ("toy", numba.backends, numba.static.decorators)
    assert sum(line.startswith("#") for line in (folder / "spec.toml").read_text().splitlines()) >= 10
    found = faults(place / "knowledge")
    assert found and all("FILL IN" in fault for fault in found)
    filled = {p: p.read_text().replace("FILL IN", "Filled").replace("FILL_IN", "math") for p in folder.rglob("*.*")}
    for path, text in filled.items():
        path.write_text(text)
    assert faults(place / "knowledge") == []
    assert main(["docs", "new", "toy"]) == 2 and "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "said"), [(("Toy",), "cannot name"), (("toy", "--like", "cobol"), "no DSL")])
def test_a_wrong_name_is_told(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert main(["docs", "new", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_an_import_fills_the_spec_maps_operations_and_passes_its_own_lint(place: Path, tiles: str) -> None:
    found = import_raw(f"python:{tiles}", "tiles")
    folder = place / "knowledge" / "dsl" / "tiles"
    folder.mkdir(parents=True)
    for name, text in found.files.items():
        (folder / name).write_text(text)
    spec = read_spec(folder / "spec.toml")
    assert [need.package for need in spec.ready.needs] == [tiles]
    assert spec.worker.preload == ("torch", tiles) and spec.documents.toolchain == {tiles: tiles}
    # launch() takes a kernel and a grid: what is handed to it is a kernel
    assert (spec.static.decorators, spec.static.files) == ((), (".py",))
    handed = Source(dsl="tiles", files={"kernel.py": "def double(x): ...\n\n\ndef kernel(x):\n    launch(double, 4)\n"})
    assert DocumentedAdapter(spec).static(handed) == []
    assert faults(place / "knowledge") == []
    api = (folder / "api.md").read_text()
    assert "Sketch operations: load" in api and "Sketch operations: max" in api
    assert "hidden.Index" not in api and "Index" in api


def test_an_import_fills_a_draft_and_leaves_what_somebody_wrote(place: Path, tiles: str) -> None:
    folder = place / "knowledge" / "dsl" / "tiles"
    assert main(["docs", "new", "tiles", "--like", "numba"]) == 0
    (folder / "basic.md").write_text("# Tiles\n\nA kernel is a function.\n")
    assert main(["docs", "import", f"python:{tiles} as t, math as m", "--dsl", "tiles"]) == 0
    spec = read_spec(folder / "spec.toml")
    assert dict(spec.documents.toolchain) == {"t": tiles, "m": "math"} and spec.static.pattern
    assert (folder / "basic.md").read_text().endswith("A kernel is a function.\n")
    api = (folder / "api.md").read_text()
    # of a second module what carries out an operation of a sketch, and no more
    assert "## t.launch(kernel, grid)\n\nSketch operations: launch, parallel" in api
    assert "## m.exp(" in api and "m.perm" not in api
    # what is left of the draft is named: the example, and what is fast
    assert {fault.partition(":")[0].rpartition("/")[2] for fault in faults(place / "knowledge")} == {
        "softmax.py", "suggestions.md",
    }  # fmt: skip
    for path in (folder / "suggestions.md", *folder.glob("examples/*/*.py")):
        path.unlink()
    assert main(["docs", "import", f"python:{tiles}", "--dsl", "tiles"]) == 2


def test_a_model_maps_what_names_do_not_tell(tiles: str) -> None:
    asked: list[str] = []

    def model(question: str) -> str:
        asked.append(question)
        return f"- `{tiles}.stash`: store, levitate\n{tiles}.load: gather\nnothing: load\nA word more."

    plain, mapped = (import_raw(f"python:{tiles}", "tiles", place=place).files["api.md"] for place in (None, model))
    assert "Sketch operations: store\n" in mapped and "Sketch operations: store" not in plain
    # what a name tells is not asked, and stays
    assert asked[0].partition("Functions:")[2].strip() == f"{tiles}.stash(tile, ref)"
    assert "Sketch operations: load\n" in mapped and "gather" not in mapped


def test_a_page_that_says_nothing_is_named(place: Path, tiles: str) -> None:
    folder = place / "knowledge" / "dsl" / "tiles"
    folder.mkdir(parents=True)
    for name, text in import_raw(f"python:{tiles}", "tiles").files.items():
        (folder / name).write_text(text)
    assert not [fault for fault in faults(place / "knowledge", "warning") if "says nothing" in fault]
    (folder / "basic.md").write_text("# tiles: basic\n")
    assert [fault for fault in faults(place / "knowledge", "warning") if "says nothing" in fault]


def test_signatures_are_short_and_the_same_at_every_import() -> None:
    assert short_signature("(a: 'int', b=<object object at 0x7f22>) -> None") == "(a, b=...)"
    assert short_signature("(x: 'Array') -> 'Array'") == "(x: 'Array') -> 'Array'"
    assert short_signature(f"(kernel: '{'A' * 200}', *, grid: 'B' = ())") == "(kernel, *, grid=())"


def test_the_imported_api_is_in_the_coders_first_prompt(place: Path, tiles: str) -> None:
    folder = place / "knowledge" / "dsl" / "tiles"
    folder.mkdir(parents=True)
    for name, text in import_raw(f"python:{tiles}", "tiles").files.items():
        (folder / name).write_text(text)
    target = Target("tiles", Backend.CPU, CHIP)
    library = Library(Knowledge.load(target, place))
    told = code_prompt(CodeBrief(task=AFFINE, target=target, sketch=SKETCH), library, Options())
    sections: dict[str, Any] = {section.name: section.tokens for section in told.sections}
    assert sections["API"] > 20
    assert f"{tiles}.load(ref, index" in told.messages[-1].content


def test_operations_are_known_by_the_names_that_dsls_give_them() -> None:
    assert operations_of("`pl.load(ref, idx)`") == ("load",)
    assert operations_of("`jnp.maximum(x, y)`") == ("max",)
    assert operations_of("`tl.exp(x)`") == ("exp",)
    assert operations_of("`pl.BlockSpec(shape, index_map)`") == operations_of("Introduction") == ()


def test_nothing_found_means_the_beginning_of_the_api() -> None:
    from kernellab.knowledge.cut import cut
    from kernellab.knowledge.pages import parse_page

    sections = parse_page("# API\n\nFirst.\n\n## `t.spin(x)`\n\nIt spins.\n").sections
    assert cut(sections, ["conv"], "") == list(sections)
    assert [section.title for section in cut(sections, ["spin"], "")] == ["t.spin(x)"]


def test_a_kernel_that_is_handed_to_a_launcher_counts_as_launched(place: Path) -> None:
    folder = place / "knowledge" / "dsl" / "handed"
    folder.mkdir(parents=True)
    (folder / "spec.toml").write_text(
        'name = "handed"\ntitle = "h"\nsummary = "s"\nbackends = ["cpu"]\n\n[static]\n'
        "pattern = 'launch\\(\\s*(?:functools\\.partial\\()?(?P<name>\\w+)'\nfiles = [\".py\"]\n"
    )
    adapter = DocumentedAdapter(read_spec(folder / "spec.toml"))
    for call in ("launch(double, grid=4)(x)", "launch(functools.partial(double, n=2), grid=4)(x)"):
        text = f"import functools\n\n\ndef double(x, y):\n    y[:] = x\n\n\ndef kernel(x):\n    return {call}\n"
        assert not [f for f in adapter.static(Source(dsl="handed", files={"kernel.py": text})) if f.fatal], call
    unused = "def double(x, y):\n    y[:] = x\n\n\ndef kernel(x):\n    return x  # no kernel of its own\n"
    assert [f.rule for f in adapter.static(Source(dsl="handed", files={"kernel.py": unused})) if f.fatal]


def test_a_folder_with_an_adapter_alone_has_no_fault(place: Path) -> None:
    folder = place / "knowledge" / "dsl" / "alone"
    folder.mkdir(parents=True)
    (folder / "adapter.py").write_text("")
    assert faults(place / "knowledge") == []
    shutil.rmtree(folder)
    folder.mkdir()
    assert faults(place / "knowledge") == ["dsl/alone: It has no spec.toml."]


def test_what_operations_are_written_with_are_operations() -> None:
    known = {*OPS, "load", "store", "alloc", "parallel", "atomic_add"}
    assert {part for parts in _CALLED.values() for part in parts} <= known
    assert set(_WRITTEN_WITH) <= set(OPS)
    assert {part for op in OPS for part in written_with(op)} <= set(OPS)


def test_an_operation_that_a_dsl_has_no_function_for_is_asked_for_by_its_parts(place: Path) -> None:
    folder = place / "knowledge/dsl/parts"
    folder.mkdir(parents=True)
    (folder / "spec.toml").write_text('name = "parts"\ntitle = "Parts"\nsummary = "x"\nbackends = ["cpu"]\n')
    names = {"atomics": "atomic_add", "exponential": "exp", "larger": "max", "matrices": "gemm"}
    api = "".join(f"## The {title}\n\nSketch operations: {op}\n\nText of it.\n\n" for title, op in names.items())
    (folder / "api.md").write_text(f"# Parts: API\n\n{api}")

    def excerpt(*operations: str) -> set[str]:
        text = Knowledge.load(workspace=place).api_for("parts", operations).text
        return {title for title in names if title in text}

    assert excerpt("silu", "load") == {"exponential"}
    assert excerpt("reduce_max") == {"larger"}
    assert excerpt("gemm") == {"matrices"}


def test_a_decorator_is_known_by_what_its_documentation_says() -> None:
    def marks(doc: str) -> bool:
        return _marks(Name("ti.kernel", "(fn)", doc))

    assert marks("Marks a function as a Taichi kernel.") and marks("Decorator of kernels.")
    assert not marks("Runs a kernel.") and not marks("Marks a function as callable from others.")


def test_a_module_that_marks_no_kernels_does_not_keep_another_dsls_decorators() -> None:
    like = Like(decorators=("njit",))
    text = spec_text("new", like, [Module("math", "m")], Offer("", ""))
    assert "njit" not in text and "njit" in spec_text("new", like)
