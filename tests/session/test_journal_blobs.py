"""Long strings of stored JSON are kept once, and come back to the letter."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernellab.journal.blobs import pack, unpack

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(lambda text: text * 40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "$pieces", "$json"]), inner),
    max_leaves=8,
)  # fmt: skip


@given(VALUES)
def test_what_is_packed_comes_back(value: Any) -> None:
    text, pieces = pack(json.dumps({"value": value}))
    assert json.loads(unpack(text, pieces.get)) == {"value": value}


def test_a_short_text_stays_as_it_is() -> None:
    line = json.dumps({"kind": "note", "text": "keep it short"})
    assert pack(line) == (line, {})


def test_two_prompts_that_share_a_section_share_its_piece() -> None:
    section = "# The language\n" + "a rule of it\n" * 200
    one, two = (f"# The task\n{'first ' * 100}\n{section}# Last\n{word * 200}" for word in ("a b ", "c d "))
    _, first = pack(json.dumps({"prompt": one}))
    _, second = pack(json.dumps({"prompt": two}))
    assert len(first.keys() & second.keys()) >= 2
    assert len(second.keys() - first.keys()) == 1


def test_a_text_with_one_line_changed_shares_nearly_all_its_pieces_also_where_it_is_quoted() -> None:
    lines = [f"  y[{n}] = x[{n}] * {n * 7919 % 997}.0f;" for n in range(400)]
    first, second = "\n".join(lines), "\n".join([*lines[:200], "  changed", *lines[201:]])
    _, one = pack(json.dumps({"code": first}))
    _, two = pack(json.dumps({"code": second}))
    assert len(two) > 10 and len(two.keys() - one.keys()) <= 3
    _, quoted = pack(json.dumps({"cell": f"source = {first!r}"}))
    assert len(quoted) > 10
    _, requoted = pack(json.dumps({"cell": f"source = {second!r}"}))
    assert len(requoted.keys() - quoted.keys()) <= 3


def test_a_long_list_of_short_parts_is_kept_once_too() -> None:
    sections = [{"name": f"section {n}", "tokens": n} for n in range(40)]
    text, pieces = pack(json.dumps({"sections": sections}))
    assert len(text) < 200 and json.loads(unpack(text, pieces.get)) == {"sections": sections}


def test_an_object_of_the_same_key_that_names_no_pieces_is_left_alone() -> None:
    for value in ({"$pieces": ["nothing"]}, {"$pieces": 3}, {"$pieces": ["x"], "more": "y" * 700}):
        text, pieces = pack(json.dumps({"value": value}))
        assert json.loads(unpack(text, pieces.get)) == {"value": value}
