"""Reads a sketch from a reply, or the statement that the work is done."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kernellab.agents.model.reply.answers import Edit, NoAnswer
from kernellab.agents.model.reply.blocks import MARK, Fence, cut_edits, fences, json_object, outside_fences
from kernellab.agents.model.reply.edits import apply_edits
from kernellab.records import Route, RouteKind


@dataclass(frozen=True)
class SketchAnswer:
    """The sketch of a reply, with its rationale, values of tunables, and claims."""

    sketch: str
    rationale: str = ""
    constexpr: dict[str, int | float] | None = None
    claims: tuple[str, ...] = ()


#: The line numbers that a prompt adds to a sketch.
_NUMBER = re.compile(r"^[ \t]*\d+ \|(?: |$)", re.MULTILINE)
#: The first line of a sketch.
SKETCH_HEAD = re.compile(r"^[ \t]*sketch[ \t]+\w+[ \t]*\{", re.MULTILINE)


def unnumbered(text: str) -> str:
    """Return ``text`` without the line numbers that a prompt adds to a sketch, if most lines have them."""
    lines = [line for line in text.splitlines() if line.strip()]
    numbered = sum(_NUMBER.match(line) is not None for line in lines)
    return _NUMBER.sub("", text) if lines and 2 * numbered > len(lines) else text


def parse_sketch(text: str, shown: str | None = None) -> SketchAnswer:
    """Return the sketch of a reply: a fenced block, the whole reply, JSON with the key ``sketch``, or edits of
    ``shown``.

    Line numbers that a prompt adds to a sketch are removed.

    Raises:
        NoAnswer: the reply has no sketch.
        AnswerError: the edits cannot be applied.
    """
    if shown is not None:
        edits, remainder = cut_edits(text, "sketch")
        if edits and not SKETCH_HEAD.search(remainder):
            return _edited(shown, edits, remainder)
    data = json_object(text)
    if data is not None and isinstance(data.get("sketch"), str):
        return _answer(data["sketch"], str(data.get("rationale", "")), data)
    blocks = [replace(block, text=unnumbered(block.text)) for block in fences(text)]
    sketches = [block for block in blocks if SKETCH_HEAD.search(block.text)]
    if sketches:
        # a reply that reasons in the text ends with its result
        marked = [block for block in sketches if block.language == "sketch"]
        sketch, prose = (marked or sketches)[-1].text, outside_fences(text)
    elif SKETCH_HEAD.search(bare := _NUMBER.sub("", text)):
        sketch, prose = _unfenced(bare)
    else:
        raise NoAnswer("The reply has no sketch.", "Write it in one block that starts with ```sketch.")
    stated = _stated_values(blocks, prose)
    return _answer(sketch, stated.prose, stated.values)


def _edited(shown: str, edits: Sequence[Edit], remainder: str) -> SketchAnswer:
    """The answer of a reply that edits the sketch ``shown``. Raises AnswerError."""
    plain = [replace(e, file="sketch", search=unnumbered(e.search), replace=unnumbered(e.replace)) for e in edits]
    stated = _stated_values(fences(remainder), outside_fences(remainder))
    rationale = "\n".join(row for row in stated.prose.splitlines() if not MARK.match(row))
    sketch = apply_edits({"sketch": shown}, plain)["sketch"]
    return replace(_answer(sketch, rationale, stated.values), sketch=sketch)


def _answer(sketch: str, rationale: str, values: Mapping[str, Any]) -> SketchAnswer:
    """An answer with the sketch ending in one newline; ``values`` may have constexpr and claims."""
    return SketchAnswer(
        sketch=sketch.strip("\n") + "\n", rationale=rationale.strip(), constexpr=_numbers(values.get("constexpr")),
        claims=_sentences(values.get("claims")),
    )  # fmt: skip


class _Unfenced(NamedTuple):
    """A sketch without a fence, and the prose around it."""

    sketch: str
    prose: str


def _unfenced(text: str) -> _Unfenced:
    """Split a text at a sketch: from its first line to the last closing brace."""
    start = SKETCH_HEAD.search(text)
    assert start is not None
    end = text.rfind("\n}")
    end = len(text) if end < start.start() else end + 2
    return _Unfenced(text[start.start() : end].strip("\n"), (text[: start.start()] + text[end:]).strip())


class _Stated(NamedTuple):
    """The JSON that a reply states next to its sketch (values, claims), and the prose without it."""

    values: dict[str, Any]
    prose: str


def _stated_values(blocks: Iterable[Fence], prose: str) -> _Stated:
    """Find the JSON in a block, or after the prose."""
    for fence in blocks:
        if fence.language == "json" and (data := json_object(fence.text)) is not None:
            return _Stated(data, prose)
    begin = re.search(r"^\{[\s\S]*\}\s*\Z", prose, re.MULTILINE)
    data = json_object(begin[0]) if begin else None
    if begin is None or data is None or not {"constexpr", "claims"} & data.keys():
        return _Stated({}, prose)
    return _Stated(data, prose[: begin.start()].rstrip())


def _numbers(value: Any) -> dict[str, int | float]:
    if not isinstance(value, dict):
        return {}
    return {str(k): v for k, v in value.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}


def _sentences(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    return tuple(str(v).strip() for v in value if str(v).strip()) if isinstance(value, list) else ()


def parse_done(text: str) -> Route | None:
    """Return the route to FINISH that a reply ``{"done": "why"}`` states; None if it states none."""
    data = json_object(text)
    reason = data.get("done") if data is not None and "sketch" not in data else None
    if not isinstance(reason, str) or not reason.strip() or SKETCH_HEAD.search(text) or cut_edits(text, "").edits:
        return None
    return finish(reason.strip())


def finish(why: str) -> Route:
    """Return the route of a role that leaves the best kernel unchanged."""
    return Route(to=RouteKind.FINISH, error_class="none", reason=why)
