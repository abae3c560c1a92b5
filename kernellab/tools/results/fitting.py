"""Results in a bounded number of tokens: long texts are given by pages, other fields are cut, and it is said so."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any, NamedTuple

from pydantic import BaseModel

from kernellab.models.tokens import estimate
from kernellab.tools.records import Page, Result, ToolError
from kernellab.verifier.protocol.sanitize import shown

#: tokens of a page and of a result, as they are estimated: at most a tenth too few, so that a result has under 4,000
PAGE, MOST = 2800, 3600
#: characters of a token, at most
_MOST_CHARACTERS = 8
#: characters of a piece of a longer line, which may be on two pages
_LONGEST_PIECE = 500


class Cut(NamedTuple):
    """What is kept of a longer result: characters of each text, and rows of each list."""

    characters: int
    rows: int


#: the first that fits is taken
CUTS = (Cut(4000, 60), Cut(1000, 30), Cut(300, 12), Cut(100, 4), Cut(20, 2))
_CUT = "It was too long and is cut. "
#: lists in the order of time, of which both ends count; of others what comes first does
_IN_TIME = frozenset(("turns", "line"))


def fitted(result: Result) -> Result:
    """The result in about ``MOST`` tokens: long texts and lists are cut, pages never; ``next`` says so."""
    following = result.next
    for cut in CUTS:
        text = result.model_dump_json()
        if len(text) <= _MOST_CHARACTERS * MOST and estimate(text) <= MOST:
            break
        result = _shortened(result, cut)
        result = result.model_copy(update={"next": _CUT + following[: cut.characters]})
    return result


def escaped(value: Any) -> Any:
    """The result with each character that is not seen, or turns those after it, as an escape: what others wrote shows
    an agent and a person the same."""
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: escaped(getattr(value, name)) for name in type(value).model_fields})
    if isinstance(value, dict):
        return {escaped(key): escaped(one) for key, one in value.items()}
    if isinstance(value, list):
        return [escaped(one) for one in value]
    return shown(value) if isinstance(value, str) else value


def _shortened(value: Any, cut: Cut, both_ends: bool = False) -> Any:
    """``value`` with all texts and lists in it cut; ``both_ends`` of a list are kept."""
    if isinstance(value, BaseModel) and not isinstance(value, Page):
        fields = type(value).model_fields
        return value.model_copy(
            update={name: _shortened(getattr(value, name), cut, name in _IN_TIME) for name in fields}
        )
    if isinstance(value, dict):
        rows = islice(value.items(), cut.rows)
        # a key that is cut could be another's
        return {
            key: _shortened(one, cut) for key, one in rows if not isinstance(key, str) or len(key) <= cut.characters
        }
    if isinstance(value, list):
        last = cut.rows - cut.rows // 2 if both_ends and len(value) > cut.rows else 0
        return [_shortened(one, cut) for one in (*value[: cut.rows - last], *value[len(value) - last :])]
    return value[: cut.characters] if isinstance(value, str) else value


def page_of(text: str, page: int = 1, size: int = PAGE) -> Page:
    """Page ``page`` (from 1) of ``text``, cut at line ends: each has about ``size`` tokens.

    Raises:
        ToolError: there is no such page.
    """
    pages, used = [""], 0
    for line in shown(text).splitlines(keepends=True):
        for piece in (line[at : at + _LONGEST_PIECE] for at in range(0, len(line), _LONGEST_PIECE)):
            # as it is sent: escapes count
            count = estimate(json.dumps(piece, ensure_ascii=False))
            if pages[-1] and used + count > size:
                pages.append("")
                used = 0
            pages[-1] += piece
            used += count
    if not 1 <= page <= len(pages):
        raise ToolError(f"There is no page {page}.", f"The text has {len(pages)}, from 1.")
    return Page(text=pages[page - 1], page=page, pages=len(pages))
