"""Sphinx: `make docs` builds docs/ into out/docs, with warnings as errors. Generated pages lie in docs/_generated."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402

from kernellab import __version__  # noqa: E402

project = "kernellab"
author = "the kernellab authors"
copyright = "the kernellab authors, Apache-2.0"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
html_theme = "pydata_sphinx_theme"
html_title = "kernellab"
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False, "header_links_before_dropdown": 6}
#: notebooks are shown with their saved outputs, which a test of the notebooks keeps current
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
suppress_warnings = [
    "mystnb.mime_priority",  # a saved widget has no view here; its text is shown
    "misc.highlighting_failure",  # a cell's magic is no Python
    "mystnb.unknown_mime_type",  # figures are shown as their saved text
    "myst.header",
    "myst.xref_missing",  # links of the repository's files, which the pages quote
]


def _copied(source: Path, target: Path, *patterns: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for pattern in patterns:
        for file in source.glob(pattern):
            if file.is_dir():
                shutil.copytree(file, target / file.name, dirs_exist_ok=True)
            else:
                shutil.copy(file, target)


GENERATED = HERE / "_generated"
shutil.rmtree(GENERATED, ignore_errors=True)
_copied(ROOT / "notebooks", GENERATED / "tutorials", "[0-9]*.ipynb", "images")
_copied(ROOT / "notebooks/lessons", GENERATED / "course", "*.ipynb")
_copied(ROOT / "knowledge/language", GENERATED / "language", "*.md")
_copied(ROOT / "knowledge", GENERATED, "memory.md")
for name in ("SECURITY.md", "BENCHMARKS.md", "CHANGELOG.md", "CONTRIBUTING.md"):
    shutil.copy(ROOT / name, GENERATED / name.lower())
shutil.copy(ROOT / "notebooks/exercises/GUIDE.md", GENERATED / "teachers_guide.md")
generate.write(GENERATED)
