"""What a person installs: the wheel has the code, the files that the code reads, and the content folders."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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
        "kernellab/sketch/grammar.lark",
        "kernellab/lowering/cpp/kl_math.h",
        "kernellab/notebook/static/session.js",
        "kernellab/notebook/static/session.css",
        "kernellab/_content/notebooks/01_quickstart.ipynb",
    ],
)
def test_files_that_the_code_reads_are_in_the_wheel(wheel: zipfile.ZipFile, name: str) -> None:
    assert wheel.getinfo(name).file_size > 0 or name.endswith("py.typed")


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
