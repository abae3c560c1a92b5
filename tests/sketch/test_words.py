"""The language's words stand in one place: the grammar, the documents and the editor have the same."""

from __future__ import annotations

import re
from pathlib import Path

from kernellab.sketch.syntax import docs, words

SYNTAX = Path(words.__file__).parent


def _grammar() -> set[str]:
    """The words that the grammar quotes, and those of its terminals."""
    text = re.sub(r"^\s*//.*", "", (SYNTAX / "grammar.lark").read_text(encoding="utf-8"), flags=re.MULTILINE)
    quoted = set(re.findall(r'"([A-Za-z]+)"', text))
    terminals = re.findall(r"^[A-Z_]+(?:\.\d)?: /\(?([A-Za-z|]+)\)?\(\?", text, flags=re.MULTILINE)
    return quoted | {word for group in terminals for word in group.split("|")} | {"inf"} & set(re.findall(r"\w+", text))


def test_the_grammars_words_are_those_of_the_table() -> None:
    table = {*words.DECLARATIONS, *words.BLOCKS, *words.OPERATORS, *words.ATOMS, "in", "range", "sketch"}
    assert _grammar() == table


def test_every_word_is_explained_and_reserved() -> None:
    explained = {*words.DECLARATIONS, *words.BLOCKS, *words.ROLES}
    assert explained <= set(docs.KEYWORDS)
    assert set(words.DTYPES) == set(docs.DTYPES)
    assert explained | set(words.DTYPES) | {"sketch", "range"} <= words.RESERVED


def test_a_comment_begins_outside_of_strings() -> None:
    assert words.comment_start('x = f("a # b")  # why') == 16
    assert words.code_of('x = f("a # b")  # why') == 'x = f("a # b")  '
    assert words.comment_start("x = y") is None
    assert words.comment_start('x = "open # string') is None


def test_no_other_module_lists_the_declarations() -> None:
    """A second list goes out of date."""
    package = SYNTAX.parents[1]
    lists = re.compile(r"symbols\W+tensors\W+constexpr\W+require")
    found = [
        p for p in package.rglob("*.py") if "builtin" not in p.parts and lists.search(p.read_text(encoding="utf-8"))
    ]
    assert [p.name for p in found if p.name != "tree.py"] == ["words.py"]
