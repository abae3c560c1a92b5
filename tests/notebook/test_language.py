"""The sketch editor's services: what is said while a person types, also in a text that cannot be read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from notebook_parts import Page

from kernellab.notebook.language.check import amount, checked
from kernellab.notebook.language.complete import complete
from kernellab.notebook.language.hover import hover
from kernellab.notebook.language.pins import pinned_lines
from kernellab.notebook.language.place import names_in_sight
from kernellab.notebook.views.facts import Facts, gather
from kernellab.operations.sketch import OPS
from kernellab.sketch.check import check
from kernellab.sketch.program.program import DType
from kernellab.sketch.resolve.hints import AXES, LOOP_HINTS, MEMORY_HINTS
from kernellab.sketch.syntax import docs

SKETCH = """sketch rms_norm {
    symbols: M, N;
    tensors: x[M, N]: f32; w[N]: f32;
             y[M, N]: f32 out;
    constexpr: eps = 1e-06; BLOCK = 256 in {128, 256, 512};
    require: BLOCK >= 128;

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        acc = alloc([BLOCK], f32, llm_hint=["fastest", "init_zero"])
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> v)  # a comment
            acc = acc + v * v
        scale = rsqrt(reduce_sum(acc, axis=0) / N + eps)
        for k in range(0, N, BLOCK):
            load(x[m, k:k+BLOCK] -> u)  #: pin
            load(w[k:k+BLOCK] -> weight)
            store(u * scale * weight -> y[m, k:k+BLOCK])
}
"""
SAMPLES = sorted((Path(__file__).parents[1] / "sketch" / "samples").glob("*.sketch"))


def labels(text: str, marked: str = "|") -> list[str]:
    """Completions where the mark stands in ``text``."""
    before = text[: text.index(marked)]
    line = before.count("\n") + 1
    col = len(before) - (before.rfind("\n") + 1) + 1
    return [c["label"] for c in complete(text.replace(marked, "", 1), line, col)]


def at(line: int, word: str) -> tuple[int, int]:
    return line, SKETCH.split("\n")[line - 1].index(word) + 1


# -- completion --------------------------------------------------------------------------------------------------------


def test_names_that_are_in_sight_come_first_and_those_of_other_blocks_do_not() -> None:
    found = labels(SKETCH.replace("store(u * scale", "store(u * |"))
    assert found[:4] == ["weight", "u", "k", "scale"]
    assert {"acc", "m", "M", "N", "x", "w", "y", "eps", "BLOCK"} <= set(found)
    assert not {"v", "n"} & set(found)


def test_a_new_line_may_begin_a_statement_or_a_declaration() -> None:
    found = labels(SKETCH.replace("        scale = rs", "        |\n        scale = rs"))
    assert {"for", "if", "load", "store", "acc"} <= set(found) and "n" not in found
    assert "symbols" in labels("sketch a {\n    |\n}\n")


def test_a_half_written_word_filters_and_its_operations_say_how_they_are_written() -> None:
    text = SKETCH.replace("rsqrt(reduce_sum(acc, axis=0)", "red|")
    assert {"reduce_sum", "reduce_max"} <= set(labels(text)[:8])
    before = text[: text.index("|")].split("\n")
    found = complete(text.replace("|", ""), len(before), len(before[-1]) + 1)
    assert all(c["insert"] == c["label"] and (c["kind"] != "operation" or c["detail"]) for c in found)
    assert next(c for c in found if c["label"] == "reduce_sum")["detail"].startswith("reduce_sum(x, axis=")


@pytest.mark.parametrize(
    ("line", "wanted", "unwanted"),
    [
        ('    @llm_hint("par|', "parallel", "fastest"),
        ('    @llm_hint("parallel", "grid|', "grididx.x", "for"),
        ('        a = alloc([B], llm_hint=["fast|', "fastest", "parallel"),
        ("    tensors: x[M]: |", "bf16", "for"),
        ("    tensors: x[M]: f32 |", "inout", "exp"),
        ("        a = alloc([B], |", "f32", "symbols"),
        ("        c = cast(x, b|", "bf16", "for"),
        ('        gemm(a, b, c, precision="|', "tf32", "parallel"),
        ("    @|", "llm_hint", "exp"),
        ("        load(x -> y)  #: |", "pin", "exp"),
    ],
)
def test_what_is_offered_fits_the_place(line: str, wanted: str, unwanted: str) -> None:
    found = labels(f"sketch a {{\n    symbols: M;\n{line}\n")
    assert wanted in found and unwanted not in found


def test_nothing_is_offered_in_a_comment_or_in_another_string() -> None:
    assert labels("sketch a {\n    # load the |\n") == []
    assert labels('sketch a {\n    y = f("lo|\n') == []


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_everything_a_statement_uses_was_in_sight(path: Path) -> None:
    """Declared and assigned names of the samples: every name that the checker lets a line use is offered there."""
    text = path.read_text()
    assert check(text).program is not None
    for number, line in enumerate(text.split("\n"), 1):
        code = line.split("#")[0]
        if "=" in code and ":" not in code.split("=")[0] and "alloc" not in code and "(" not in code.split("=")[0]:
            value = code.split("=", 1)[1]
            seen = {name.text for name in names_in_sight(text, number)}
            words = set(re.findall(r"(?<![\w.\"])[A-Za-z_]\w*(?!\s*\(|\w|\s*=)", value))
            known = {*docs.operations(), *docs.DTYPES, "range", "true", "false", "ceil", "None", "inf", "and", "or"}
            assert words - known - seen == set(), (number, line)


# -- hover -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "word", "title", "text"),
    [
        (14, "rsqrt", "rsqrt(a)", "Elementwise rsqrt(a)"),
        (14, "reduce_sum", "reduce_sum(x, axis=?, keepdims=false)", "identity 0"),
        (14, "acc", "acc[BLOCK]: f32", "made at line 10"),
        (14, "N", "symbol N", "a size"),
        (14, "eps", "constexpr eps", "= 1e-06"),
        (12, "BLOCK", "constexpr BLOCK", "tunable"),
        (12, "x", "x[M, N]: f32 in", "global memory"),
        (12, "n", "index n", "range(0, N, BLOCK)"),
        (8, "coreidx", '"coreidx"', "cores"),
        (10, "init_zero", '"init_zero"', "starts at zero"),
        (3, "f32", "f32", "32-bit float"),
        (6, "require", "require", "constraint"),
    ],
)
def test_a_word_says_what_it_means(line: int, word: str, title: str, text: str) -> None:
    found = hover(SKETCH, *at(line, word), Facts())
    assert found is not None and found["title"] == title and text in found["text"]
    assert SKETCH.split("\n")[line - 1][found["from"][1] - 1 : found["to"][1] - 1] == word


def test_a_fault_is_explained_at_its_place_with_its_remedy() -> None:
    found = hover(SKETCH.replace("scale * weight", "scales * weight"), 18, 23, Facts())
    assert found is not None and found["title"] == "error SK101"
    assert "Unknown name 'scales'." in found["text"] and "Did you mean 'scale'?" in found["text"]


def test_there_is_nothing_to_say_between_words_and_in_comments() -> None:
    assert hover(SKETCH, 7, 1, Facts()) is None
    assert hover(SKETCH, *at(12, "comment"), Facts()) is None
    assert hover(SKETCH, 400, 400, Facts()) is None


# -- check -------------------------------------------------------------------------------------------------------------


def test_cost_and_footprint_are_of_the_tasks_own_sizes(quiet: tuple[Any, Page]) -> None:
    text = """sketch add_one {
    symbols: M, N;
    tensors: x[M, N]: f32; y[M, N]: f32 out;
    @llm_hint("parallel")
    for m in range(M):
        load(x[m, 0:N] -> row)
        store(row + 1 -> y[m, 0:N])
}
"""
    page = quiet[1]
    found = page.ask("check", text=text)
    shown = [figure["text"] for figure in found["cost"]]
    # 64 x 64 elements of 4 bytes, read once and written once; a row of 64 is alive at a time
    assert "32.8 kB moved" in shown and "256 B on chip" in shown and "4.1 kFLOP" in shown
    assert "256 bytes" in page.ask("hover", text=text, line=7, col=16)["text"]
    assert page.ask("check", text=text.replace("row +", "rows +"))["cost"] == []
    known = gather(quiet[0])
    assert known.target is not None
    for judged in (True, False):
        target = replace(known.target, chip=replace(known.target.chip, judged=judged))
        (time,) = (one for one in checked(text, replace(known, target=target))["cost"] if "roofline" in one["text"])
        assert time["text"].startswith("roughly ") is not judged, "rates that no judge has measured are rough"
        assert ("has not measured" in time["title"]) is not judged


@pytest.mark.parametrize("text", ["", "sketch", "}{", "sketch a {", "\x00", "sketch a {\n" + "(" * 5000, "é\t\n" * 50])
def test_no_text_breaks_a_service(text: str) -> None:
    answer = checked(text, Facts())
    assert all(d["line"] >= 1 for d in answer["diagnostics"])
    for line, col in ((1, 1), (1, 2), (2, 3), (0, 0), (-1, -5)):
        complete(text, line, col)
        hover(text, line, col, Facts())


def test_pins_are_found_also_where_the_text_is_broken() -> None:
    assert pinned_lines(SKETCH) == [16]
    assert pinned_lines(SKETCH.replace("symbols: M, N;", "symbols: M, N")) == [16]
    assert pinned_lines("load(x[ -> v)\nload(y[0] -> w)  #: pin\n") == [2]


def test_amounts_are_short() -> None:
    assert [amount(n) + "B" for n in (0, 12, 1536, 67_108_864, 3e12)] == ["0 B", "12 B", "1.54 kB", "67.1 MB", "3 TB"]


# -- one source of words -----------------------------------------------------------------------------------------------


def test_every_word_of_the_language_has_its_sentence() -> None:
    for name in docs.operations():
        assert docs.signature(name) and docs.sentence(name).endswith((".", "?"))
    assert set(OPS) - docs.HIDDEN <= set(docs.operations())
    assert {*LOOP_HINTS, *AXES, *MEMORY_HINTS} == set(docs.HINTS)
    assert {dtype.value for dtype in DType} == set(docs.DTYPES)
