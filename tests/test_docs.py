"""The documentation builds without a warning, and its links and those of README lead somewhere."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kernellab
from kernellab.verifier import Verifier

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def test_every_link_of_a_page_leads_to_a_file() -> None:
    broken = []
    for page in PAGES:
        if "_generated" in page.parts:
            continue
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            if "://" in target or target.startswith("mailto:") or "_generated/" in target:
                continue
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="Sphinx is not installed (kernellab[docs])")
def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[-3000:]
    # links into generated pages, which exist only now
    for page in PAGES:
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            if "_generated/" in target and "_generated" not in page.parts:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
    commands = (tmp_path / "_generated/commands.html").read_text(encoding="utf-8")
    assert "kernellab verify" in commands and "--level" in commands
    assert "kernel_design" in (tmp_path / "_generated/magics.html").read_text(encoding="utf-8")
    assert "rms_norm" in (tmp_path / "_generated/tutorials/01_quickstart.html").read_text(encoding="utf-8")
    page = (tmp_path / "reference/python.html").read_text(encoding="utf-8")
    assert "kernellab.design" in page and "load_task" in page


def public() -> dict[str, object]:
    """The public interface by name, as docs/reference/python.md states it, with the public methods of its classes."""
    found: dict[str, object] = {name: getattr(kernellab, name) for name in kernellab.__all__ if name[0] != "_"}
    found["Verifier"] = Verifier
    for name, value in list(found.items()):
        if inspect.isclass(value):
            members = {n: m for n, m in vars(value).items() if n[0] != "_"}
            methods = {n: m for n, m in members.items() if isinstance(m, property) or inspect.isroutine(m)}
            found |= {f"{name}.{n}": method for n, method in methods.items()}
    return found


def test_each_public_name_has_a_docstring() -> None:
    assert len(public()) > 60
    assert [name for name, value in public().items() if not inspect.getdoc(value)] == []


def test_examples_in_public_docstrings_give_what_they_show() -> None:
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    tests = [t for name, value in public().items() for t in finder.find(value, name) if t.examples]
    assert {t.name for t in tests} >= {"Dim", "load_task", "KernellabError"}
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
