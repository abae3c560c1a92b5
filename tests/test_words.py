"""Documents are in plain technical English: words that readers stumbled over stay out, or at least do not grow.

The list is short on purpose: each word has a standard one that says the same (again, next to, no one, separate, shows,
fixed, depends on, continues, has no, after).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = re.compile(
    r"\b(anew|beside|nobody|of (?:its|their) own|(?:is|are) told|mended|hangs? on|goes? on|lacks|be had)\b",
    re.IGNORECASE,
)
#: documents without any of these words
CLEAN = (
    "README.md", "CONTRIBUTING.md", "SECURITY.md", "BENCHMARKS.md",
    "knowledge/language/errors.md", "knowledge/language/operations.md",
)  # fmt: skip
#: how often they stand in each of the others: a number may fall, and is then lowered here
AT_MOST = {"kernellab": 16, "knowledge": 0, "notebooks": 10, "tools": 0, "widgets/src": 19}
SUFFIXES = {".py", ".md", ".j2", ".toml", ".ts", ".tsx", ".ipynb"}


@pytest.mark.parametrize("document", CLEAN)
def test_a_clean_document_stays_clean(document: str) -> None:
    lines = (ROOT / document).read_text(encoding="utf-8").splitlines()
    assert [f"{n}: {line}" for n, line in enumerate(lines, 1) if WORDS.search(line)] == []


@pytest.mark.parametrize("folder", AT_MOST)
def test_the_words_do_not_become_more(folder: str) -> None:
    files = [p for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES and "static" not in p.parts]
    count = sum(len(WORDS.findall(p.read_text(encoding="utf-8"))) for p in files)
    assert count <= AT_MOST[folder], f"{count} of {WORDS.pattern}"
