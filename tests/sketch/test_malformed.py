"""Malformed sketches never crash or hang the checker, and every diagnostic has a line of the text."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from kernellab.sketch.check import check
from kernellab.sketch.syntax.parse import parse
from kernellab.sketch.syntax.printer import format

SAMPLES = [p.read_text(encoding="utf-8") for p in sorted((Path(__file__).parent / "samples").glob("*.sketch"))]
_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")
_STRANGE = ['"', "#", "{", "}", "(", "]", "for", "None", "@", "->", ";", ":", "ceil", "-1", "1e9", "9" * 30, "\n", "\t",
            "\0", "é", "range", "sketch", "alloc", "0"]  # fmt: skip


def _mutated(rng: random.Random) -> str:
    tokens = _TOKENS.findall(rng.choice(SAMPLES))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(tokens))
        kind = rng.choice(["drop", "drop", "swap", "swap", "cut", "repeat", "strange"])
        if kind == "drop" and len(tokens) > 1:
            del tokens[at]
        elif kind == "swap":
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == "cut":
            tokens = tokens[: at + 1]
        elif kind == "repeat":
            tokens.insert(at, rng.choice(tokens))
        else:
            tokens[at] = rng.choice(_STRANGE)
    return "".join(tokens)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_sketches_are_diagnosed(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        text = _mutated(rng)
        result = check(text)
        assert result.ok or result.errors, text
        lines = text.count("\n") + 1
        for found in result.diagnostics:
            assert 1 <= found.line <= lines, (found, text)
            assert found.message and found.rule and re.fullmatch(r"SK\d{3}", found.code)
        if result.ok:
            printed = format(text)
            assert parse(printed) == parse(text)
            assert format(printed) == printed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "sketch",
        "sketch s",
        "sketch s {",
        "sketch s {}",
        "}",
        "{{{{",
        "sketch s { } }",
        "sketch s {\n" + "(" * 500,
        "sketch s {\n x = " + "(" * 300 + "1" + ")" * 300 + "\n}",
        "sketch s {\n" + "".join(" " * i + f"for i{i} in range(2):\n" for i in range(1, 80)),
        "sketch s {\n x = 1" + " + 1" * 2000 + "\n}",
        "sketch s {\n x = 2 ** 9999999\n y = alloc([x])\n}",
        "sketch s { tensors: X[0]: f32; Y[X]: f32; X[1]: f32; }",
        "sketch s { constexpr: T = 1 // 0; symbols: T; }",
        "sketch s { symbols: N; for i in range(0, N, 0): x = 1.0 }",
        "sketch s { symbols: N; tensors: X[N]: f32; for i in range(N % 0): load(X[i // 0] -> x) }",
    ],
)
def test_odd_texts(text: str) -> None:
    result = check(text)
    assert result.ok or all(d.line >= 1 for d in result.diagnostics)
    assert result.ok or result.errors


@pytest.mark.parametrize("declared", ["symbols: N, cap: f32;", "tensors: cap: f32;", "constexpr: cap: f32 = 2.5;"])
def test_a_number_among_the_arguments_is_told_as_a_constexpr(declared: str) -> None:
    (found,) = check(f"sketch s {{\n  {declared}\n}}").errors
    assert "constexpr: eps;" in found.remedy and found.line == 2


#: a name that a plain assignment or a store reads
_READ = re.compile(r"^\s*(?:\w+ = |store\()[^\"#\n]*?\b([a-z]\w*)\b(?!\s*[(=.])", re.MULTILINE)
_PLAIN = [text for text in SAMPLES if _READ.search(text)]


@pytest.mark.parametrize("text", _PLAIN, ids=range(len(_PLAIN)))
def test_one_wrong_name_in_a_statement_is_one_error(text: str) -> None:
    """Nothing that only follows from it is told, neither of the names that the statement writes nor of the outputs."""
    for found in _READ.finditer(text):
        wrong = f"{text[: found.start(1)]}zzq{text[found.end(1) :]}"
        line = text.count("\n", 0, found.start(1)) + 1
        assert [d.line for d in check(wrong).errors] == [line], wrong


WRONG = """sketch rms_norm {
    symbols: M, N;
    tensors: x[M, N]: f32; w[N]: ff32; y[M, N]: f32 out;
    constexpr: eps = 1e-6; BLOCK = 64 in {64, 256};

    @llm_hint("paralel")
    for m in range(MM):
        acc = alloc([BLOCK], f32, llm_hint=["accumulator", "init_zero"])
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> tile)
            acc = acc + tile * tille + titt
        scale = rsqrt(reduce_sumn(acc, axis=0) / N + eps)
        for n in range(0, ceil(N, BLOCK)):
            load(x[m, n:n+BLOCK] -> again)
            load(w[n:n+BLOCK] -> weight)
            store(again * scale -> y[m, 0:BLOCKS])
    for m in range(0, ceil(M, BLOCK)):
        load(x[m:m+BLOCK, 0] -> column)
}
"""


def test_all_independent_errors_are_told_at_once() -> None:
    """Not those that follow: of `w`, whose dtype is unknown, and of `scale`, whose operation is."""
    assert [(d.line, d.rule) for d in check(WRONG).diagnostics] == [
        (3, "unknown-dtype"), (6, "unknown-hint"), (7, "unknown-name"), (11, "unknown-name"), (11, "unknown-name"),
        (12, "unknown-operation"), (16, "unknown-name"), (18, "tile-index-as-offset"),
    ]  # fmt: skip


def test_a_line_that_cannot_be_read_hides_no_wrong_name_elsewhere() -> None:
    text = WRONG.replace("load(x[m, n:n+BLOCK] -> tile)", "load(x[m, n:n+BLOCK] -> tile", 1)
    found = [(d.line, d.rule) for d in check(text).errors]
    assert {(3, "unknown-dtype"), (7, "unknown-name"), (12, "unknown-operation"), (16, "unknown-name")} <= set(found)
    assert all(rule in ("bracket", "syntax") for line, rule in found if line in (10, 11))


#: each declaration, and the same without its colon, or with its first word misspelt
_DECLARED = {
    "symbols: M, N;": ("symbols M, N;", "symbol: M, N;", "Symbols: M, N;"),
    "tensors: X[M, N]: f32; Y[M, N]: f32 out;": (
        "tensors X[M, N]: f32; Y[M, N]: f32 out;", "tensor: X[M, N]: f32; Y[M, N]: f32 out;"
    ),
    "constexpr: T = 8;": ("constexpr T = 8;", "constexprs: T = 8;"),
}  # fmt: skip
_BODY = "    for m in range(M):\n        load(X[m, 0:T] -> x)\n        store(x -> Y[m, 0:T])\n"
_WHOLE = "\n".join(["sketch s {", *(f"    {line}" for line in _DECLARED), f"{_BODY}}}\n"])


@pytest.mark.parametrize(("right", "wrong"), [(r, w) for r, several in _DECLARED.items() for w in several])
def test_a_declaration_that_cannot_be_read_is_one_error_with_its_remedy(right: str, wrong: str) -> None:
    """What it would have declared is missed nowhere else."""
    (found,) = check(_WHOLE.replace(right, wrong)).errors
    word = right.partition(":")[0]
    assert found.line == _WHOLE[: _WHOLE.index(right)].count("\n") + 1
    if wrong.startswith(f"{word} "):
        assert found.message == "The declaration has no colon." and "colon" not in found.remedy.partition("symbols:")[2]
    else:
        assert found.remedy == f"Did you mean '{word}'?"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hello", 1),
        ("\n\nhello\nworld", 3),
        ("x = 1", 1),
        ("}", 1),
        ("symbols: M;", 1),
        ("import torch\n\ndef f():\n  pass\n", 1),
    ],
)
def test_a_text_without_a_sketch_says_that_alone(text: str, line: int) -> None:
    (found,) = check(text).errors
    assert (found.line, found.rule, found.message) == (line, "no-sketch", "The text has no sketch.")


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [("", "hello\n", 9), ("", "x = 1\n", 9), ("", "symbols: K;\n", 9), ("", "}\n", 9),
     ("```sketch\n", "```\n", 1), ("Here it is:\n", "", 1)],
)  # fmt: skip
def test_what_stands_outside_of_a_sketch_is_one_error_that_says_so(before: str, after: str, line: int) -> None:
    (found,) = check(f"{before}{_WHOLE}{after}").errors
    assert (found.line, found.rule) == (line, "layout")
    assert ("closes no sketch" if after == "}\n" else "outside of a sketch") in found.message


def test_no_remedy_is_the_word_that_is_written() -> None:
    for text in (*SAMPLES, _WHOLE):
        for word in ("symbols", "tensors", "constexpr", "sketch", "for"):
            for found in check(re.sub(rf"({word}:? \w+)", r"\1 zz", text, count=1)).errors:
                assert found.remedy != f"Did you mean '{word}'?", (word, found)
