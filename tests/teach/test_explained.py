"""A word of the hardware is explained where it first stands, and a lesson that speaks of a chip names a source."""

from __future__ import annotations

import re
from collections.abc import Iterator

import nbformat
import pytest
from teach_parts import LESSONS, ROOT

#: a word, wherever it stands
WORDS = {
    "tile": r"\btiles?\b",
    "register": r"\bregisters?\b",
    "launch": r"\blaunch(?:es)?\b",
    "program": r"\bprograms?\b(?! that)",  # "a short program that says"
    "tensor core": r"\btensor.cores?\b",
    "cache line": r"\bcache lines?\b",
    "warp": r"\bwarps?\b",
    "coalescing": r"\bcoalesc\w+",
    "CUDA graph": r"\bCUDA graphs?\b",
    "num_warps": r"\bnum_warps\b",
    "shared memory": r"\bshared memory\b",
    "L2 cache": r"\bL2\b",
    "multiprocessor": r"\bmultiprocessors?\b",
    "occupancy": r"\boccupancy\b",
    "latency": r"\blatency\b",
    "num_stages": r"\bnum_stages\b",
    "asynchronous copy": r"\basynchronous cop\w+|\bcp\.async\b",
    "accumulator": r"\baccumulators?\b",
    "warpgroup": r"\bwarpgroups?\b",
    "bank conflict": r"\bbank conflicts?\b|\bbanks\b",
    "swizzling": r"\bswizzl\w+",
    "copy engine": r"\bcopy.engine\b|\bTMA\b",
    "descriptor": r"\bdescriptors?\b",
    "barrier": r"\bbarriers?\b",
    "persistent": r"\bpersisten\w+",
    "warp specialisation": r"\bwarp specialisation\b",
}
CHIP = re.compile(r"\b(?:[ABHLV]\d{2,3}0?|T4|Volta|Turing|Ampere|Hopper|Blackwell|AVX2|AVX-512)\b(?! a second judge)")


def _cells() -> Iterator[tuple[str, str, str]]:
    """Lesson, kind and text of each cell, in the order in which they are read; without the sources."""
    for path in LESSONS:
        for cell in nbformat.read(path, as_version=4).cells:
            yield path.stem, cell.cell_type, cell.source.partition("**Sources.**")[0]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_explained_where_it_first_stands(word: str) -> None:
    pattern = re.compile(WORDS[word], re.IGNORECASE)
    lesson, kind, text = next((cell for cell in _cells() if pattern.search(cell[2])), ("", "", ""))
    assert kind == "markdown", f"{lesson}: a cell of code has it first"
    marked = [m for m in re.findall(r"(?<!\*)\*(?!\*)[^*\n]+(?<!\*)\*(?!\*)", text) if pattern.search(m)]
    said = re.search(rf"`{word}(?:=\d+)?` (?:says|is)\b", text)
    assert marked or said, f"{lesson}: {text[max(0, pattern.search(text).start() - 80) :][:200]}"  # type: ignore[union-attr]


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_the_sources_of_a_lesson_name_each_chip_that_it_speaks_of(path: object) -> None:
    cells = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown"]
    told = {chip for text in cells for chip in CHIP.findall(text.partition("**Sources.**")[0])}
    sources = " ".join(text.partition("**Sources.**")[2] for text in cells)
    assert {chip for chip in told if chip not in sources} == set()


def test_the_glossary_has_the_words_of_all_four_languages() -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    assert "| sketch | Triton | CUDA C++ | CuTe |" in text
    rows = [row.split("|")[1:-1] for row in text.splitlines() if row.startswith("| ")]
    assert len(rows) >= 20 and all(len(row) == 4 and all(cell.strip() for cell in row) for row in rows)
    plain = text.lower()
    assert [word for word in WORDS if word.lower() not in plain] == []
