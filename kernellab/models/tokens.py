"""How long a text is in tokens, estimated without a tokenizer.

Every model counts in its own way and none of the counters is at hand offline, so this is one rule for all of them: a
word is one token up to eight letters and one more for each further five, digits go in threes, a run of blanks or a
line break with its indentation is one, signs go in twos. It is meant to be a little high for English and code: a
prompt that is cut slightly too early does no harm, one that overflows the context does. What a request really took is
in its Exchange's usage.
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
                # beyond ASCII a sign is a token or more
                total += -(-sum(2 if ord(sign) < 128 else 4 for sign in piece.group()) // 4)
    return total
