"""JSON in a model's reply, also where the server knows no schemas: fenced, with prose around, with small slips."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*(\w*)")
#: a string, which stays as it is, or a comma before a closing bracket
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(\s*[}\]])', re.S)
#: places where an object may begin that are tried at most
_STARTS = 2_000
_DECODER = json.JSONDecoder(strict=False)  # a newline inside a string is a slip that every model makes


class NoJson(ValueError):
    """The text holds no JSON object; the message says what was found instead."""


def read_object(text: str) -> dict[str, Any]:
    """The JSON object that ``text`` gives as its answer.

    In order: all of the text, a fenced block (one marked ``json`` first), the longest object that stands anywhere in
    it. Line breaks inside strings and commas before a closing bracket are accepted. An object that does not end is not:
    half an answer is none.

    Raises:
        NoJson: there is none.
    """
    whole = text.strip().removeprefix("\ufeff")
    if (found := _object(whole)) is not None:
        return found
    for _, block in sorted(_blocks(whole), key=lambda block: block[0].lower() != "json"):
        if "{" in block and (found := _object(block.strip())) is not None:
            return found
    inside = max(_objects(whole), key=lambda pair: pair[0], default=None)
    if inside is not None:
        return inside[1]
    if not whole:
        raise NoJson("it is empty")
    if "{" not in whole:
        raise NoJson("it holds no object")
    try:
        _DECODER.raw_decode(whole, whole.index("{"))
    except json.JSONDecodeError as error:
        raise NoJson(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError):  # more digits or brackets than Python reads
        raise NoJson("its object is too large or too deep") from None
    raise NoJson("its object is empty")


def fault_of(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Where ``value`` first departs from the JSON schema, in one sentence; "" when it follows it."""
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
    """Language and text of each fenced block that is closed by a line of the same ticks; each line is read once."""
    lines = text.split("\n")
    closing: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        bare = line.strip(" \t")
        if len(bare) > 2 and bare in ("`" * len(bare), "~" * len(bare)):
            closing.setdefault(bare, []).append(number)
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        ends = closing.get(opening[1], []) if opening else []
        place = bisect_right(ends, at)
        if opening is None or place == len(ends):
            at += 1
            continue
        yield opening[2], "\n".join(lines[at + 1 : ends[place]])
        at = ends[place] + 1


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
    """(length, object) of every object that stands in ``text`` and in no other."""
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
