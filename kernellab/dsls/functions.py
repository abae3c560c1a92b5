"""The functions that a text of C or C++ defines, by one pass over its tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_TOKEN = re.compile(r"\"(?:\\.|[^\"\\\n])*\"?|'(?:\\[^\n]|[^'\\\n])'|\w+|[{}();=]")
#: words before a brace that is not that of a function's body
_SCOPES = ("namespace", "struct", "class", "union", "enum")
#: words before a parenthesis that are not names of functions
_NO_NAMES = frozenset(("if", "for", "while", "switch", "return", "sizeof", "decltype", "__attribute__", "alignas",
                       "__declspec", "noexcept", "throw", "requires", "catch", "asm", "static_assert"))  # fmt: skip


@dataclass(frozen=True)
class Function:
    """A function with a body: its name, its position, and whether C linkage exports that name."""

    name: str
    position: int
    c_linkage: bool
    internal: bool


class _Scope(NamedTuple):
    """An open brace: does it contain definitions, and have they C linkage?"""

    has_definitions: bool
    c_linkage: bool


def defined(text: str, plain_c: bool = False) -> Iterator[Function]:
    """Yield the host functions defined in ``text``, whose comments are blanked; ``plain_c``: a C compiler compiles it.

    Bodies are skipped, so that calls in them are not taken for definitions."""
    scopes: list[_Scope] = []
    #: since the last statement; open parentheses; the name before the outermost one, and after it that of a function
    words: list[str] = []
    parens = 0
    name, pending, at = "", "", 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        outside = not scopes or scopes[-1].has_definitions
        if token == "(":
            if outside and parens == 0 and words and words[-1].isidentifier() and words[-1] not in _NO_NAMES:
                name, at = words[-1], match.start()
            parens += 1
        elif token == ")":
            parens = max(0, parens - 1)
            if outside and parens == 0 and name:
                pending, name = name, ""
        elif parens:
            continue
        elif token == "{":
            in_c = plain_c or '"C"' in words or bool(scopes and scopes[-1].c_linkage)
            if outside and pending:
                if "__global__" not in words:
                    yield Function(pending, at, in_c, "static" in words)
                scopes.append(_Scope(False, False))
            else:
                is_scope = any(word in _SCOPES for word in words) or '"C"' in words
                scopes.append(_Scope(outside and is_scope, in_c))
            words, pending = [], ""
        elif token == "}":
            if scopes:
                scopes.pop()
            words, pending = [], ""
        elif token in (";", "="):
            words, pending = [], ""
        else:
            words = [*words[-15:], token]
