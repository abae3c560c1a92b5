"""An estimate of a text's length in tokens, without a tokenizer.

Models count differently, and their tokenizers are not available offline, so one rule serves all: a word is one token up
to eight letters and one more for each further five, digits count in threes, a run of blanks or a line break with its
indentation is one, signs count in twos. It is slightly high for English and code: cutting a prompt slightly too early
does no harm, exceeding the context does. The actual number of a request is in its Exchange's usage.
"""

from __future__ import annotations

import re

_PIECES = re.compile(
    r"(?P<word>[A-Za-z]+)|(?P<digits>\d+)|(?P<line>\n[ \t]*)|(?P<blank>[ \t]{2,})|(?P<space> )|(?P<rest>[^\sA-Za-z\d]+)"
)
_FIRST, _FURTHER = 8, 5


def estimate(text: str) -> int:
    """Tokens of ``text``; 0 for an empty one. A blank before a word belongs to the word."""
    total = 0
    for piece in _PIECES.finditer(text):
        length = len(piece.group())
        match piece.lastgroup:
            case "word":
                total += 1 + max(0, -(-(length - _FIRST) // _FURTHER))
            case "digits":
                total += -(-length // 3)
            case "line" | "blank":
                total += 1
            case "rest":
                # a sign beyond ASCII is one token or more
                total += -(-sum(2 if ord(sign) < 128 else 4 for sign in piece.group()) // 4)
    return total
