"""JSON in a model's reply, also from servers without schemas: fenced, surrounded by prose, or with small errors."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*(\w*)")
#: A string, which does not change, or a comma before a closing bracket.
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(\s*[}\]])', re.S)
#: Maximum number of places that are tried as an object's beginning.
_STARTS = 2_000
_DECODER = json.JSONDecoder(strict=False)  # a newline inside a string is a frequent error of models


class NoJson(ValueError):
    """The text contains no JSON object; the message states what it contains instead."""


def read_object(text: str) -> dict[str, Any]:
    """Return the JSON object that ``text`` gives as its answer.

    In order: the whole text, a fenced block (one marked ``json`` first), the longest object anywhere in it. Line breaks
    inside strings and commas before a closing bracket are accepted. An unterminated object is not accepted: half an
    answer is not an answer.

    Raises:
        NoJson: the text contains no object.
    """
    stripped = text.strip().removeprefix("\ufeff")
    if (value := _object(stripped)) is not None:
        return value
    for _, block in sorted(_blocks(stripped), key=lambda block: block[0].lower() != "json"):
        if "{" in block and (value := _object(block.strip())) is not None:
            return value
    longest = max(_objects(stripped), key=lambda pair: pair[0], default=None)
    if longest is not None:
        return longest[1]
    if not stripped:
        raise NoJson("it is empty")
    if "{" not in stripped:
        raise NoJson("it holds no object")
    try:
        _DECODER.raw_decode(stripped, stripped.index("{"))
    except json.JSONDecodeError as error:
        raise NoJson(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError):  # more digits or brackets than Python can read
        raise NoJson("its object is too large or too deep") from None
    raise NoJson("its object is empty")


def fault_of(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The first violation of the JSON schema in ``value``, in one sentence; "" if it is valid."""
    from jsonschema.exceptions import best_match  # type: ignore[import-untyped]
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]

    validator = validator_for(schema)(schema)
    worst = best_match(validator.iter_errors(value))
    if worst is None:
        return ""
    place = ".".join(str(step) for step in worst.absolute_path)
    message = worst.message if len(worst.message) <= 300 else worst.message[:300] + " ..."
    return f"at {place!r}: {message}" if place else message


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield language and text of each fenced block that a line of the same ticks closes; each line is read once."""
    lines = text.split("\n")
    closing: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        bare = line.strip(" \t")
        if len(bare) > 2 and bare in ("`" * len(bare), "~" * len(bare)):
            closing.setdefault(bare, []).append(number)
    row = 0
    while row < len(lines):
        opening = _FENCE.match(lines[row])
        ends = closing.get(opening[1], []) if opening else []
        place = bisect_right(ends, row)
        if opening is None or place == len(ends):
            row += 1
            continue
        yield opening[2], "\n".join(lines[row + 1 : ends[place]])
        row = ends[place] + 1


def _object(text: str) -> dict[str, Any] | None:
    for attempt in (text, _TRAILING_COMMA.sub(r"\1\2", text)):
        try:
            value = json.loads(attempt, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _objects(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(length, object) of every object in ``text`` that is not inside another."""
    start = text.find("{")
    for _ in range(_STARTS):
        if start == -1:
            return
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            if isinstance(value, dict) and value:
                yield end - start, value
        start = text.find("{", end)
