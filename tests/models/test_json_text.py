"""JSON is found in what models write around it, and never made up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.models import NoJson, read_object
from kernellab.models.json_text import fault_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), VALUES, min_size=1, max_size=5)
#: words around an answer, as long as they hold no bracket of their own
PROSE = st.text(st.characters(exclude_characters="{}`~", exclude_categories=("Cs",)))


@settings(deadline=None)
@given(OBJECTS, PROSE, PROSE, st.sampled_from([None, 2]))
def test_an_object_is_read_with_prose_around_it(value: dict[str, Any], before: str, after: str, indent: int) -> None:
    assert read_object(f"{before}\n{json.dumps(value, indent=indent)}\n{after}") == value


@settings(deadline=None)
@given(OBJECTS, PROSE, st.sampled_from(["json", "JSON", "", "jsonc"]), st.sampled_from([None, 2]))
def test_an_object_is_read_from_a_fence(value: dict[str, Any], before: str, word: str, indent: int) -> None:
    assert read_object(f"{before}\n```{word}\n{json.dumps(value, indent=indent)}\n```\nDone.") == value


@settings(deadline=None)
@given(OBJECTS)
def test_unescaped_characters_in_strings_are_understood(value: dict[str, Any]) -> None:
    loose = json.dumps(value, ensure_ascii=False).replace("\\n", "\n").replace("\\t", "\t")
    if json.dumps(value, ensure_ascii=False).count("\\\\") == 0:
        assert read_object(loose) == value


@settings(deadline=None)
@given(st.text() | st.text('{}[]",:\\`\n 1a'))
def test_any_text_gives_an_object_or_says_why_not(text: str) -> None:
    try:
        assert isinstance(read_object(text), dict)
    except NoJson as error:
        assert str(error)


@settings(deadline=None)
@given(OBJECTS, st.data())
def test_half_an_object_is_no_answer(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps({"answer": "x", **{f"k{name}": "text" for name in value}})
    half = text[: data.draw(st.integers(0, len(text) - 1))]
    with pytest.raises(NoJson):
        read_object(half)


def test_a_trailing_comma_is_dropped_and_one_in_code_is_kept() -> None:
    assert read_object('{"code": "x = [1,]; y = {2, }",\n "tiles": [1, 2,],}') == {
        "code": "x = [1,]; y = {2, }", "tiles": [1, 2],
    }  # fmt: skip


def test_the_answer_wins_over_an_example_before_it() -> None:
    text = 'A route looks like {"to": "x"}. Mine:\n```json\n{"to": "coder", "reason": "the mask"}\n```'
    assert read_object(text) == {"to": "coder", "reason": "the mask"}


def test_code_before_the_answer_is_passed_over() -> None:
    text = '```cpp\nvoid f() { if (x) { y(); } }\n```\n{"to": "coder"}'
    assert read_object(text) == {"to": "coder"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "it is empty"), ("no idea", "no object"), ("[1, 2]", "no object"), ('{"a": ', "column"), ("{}}", "empty")],
)
def test_what_is_missing_is_said(text: str, reason: str) -> None:
    with pytest.raises(NoJson, match=reason):
        read_object(text)


def test_deep_nesting_is_refused_and_does_not_crash() -> None:
    with pytest.raises(NoJson):
        read_object('{"a":' * 100_000)


def test_where_a_value_departs_from_its_schema_is_said() -> None:
    schema = {"type": "object", "properties": {"tiles": {"type": "array", "items": {"type": "integer"}}}}
    assert fault_of({"tiles": [1, 2]}, schema) == ""
    assert fault_of({"tiles": [1, "two"]}, schema) == "at 'tiles.1': 'two' is not of type 'integer'"
    assert "'route' is a required property" in fault_of({}, {**schema, "required": ["route"]})
