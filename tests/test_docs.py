"""The documentation builds without a warning, and its links and those of README lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
