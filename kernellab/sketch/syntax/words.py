"""The words of the language, and patterns of a line's parts: its strings, its comment, its declaration.

The parser's own words are in ``grammar.lark``; a test holds both together. ``tools/typescript.py`` writes the editor's
lists from these.
"""

from __future__ import annotations

import re

#: the word before the colon of a declaration
DECLARATIONS = ("symbols", "tensors", "constexpr", "require", "opaque")
#: words that open a block
BLOCKS = ("for", "if", "elif", "else")
OPERATORS = ("and", "or", "not")
ATOMS = ("true", "True", "false", "False", "None", "inf")
ROLES = ("in", "out", "inout", "temp")
DTYPES = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u8", "bool")
#: words of the language that no tensor or tile of a designed sketch may have as its name
RESERVED = frozenset((
    *DECLARATIONS, *BLOCKS, *OPERATORS, *ATOMS, *ROLES, *DTYPES, "sketch", "range", "min", "max", "ceil", "nan", "load",
    "store", "alloc", "e",
))  # fmt: skip

#: a string, closed or not
STRING = re.compile(r"\"[^\"\n]*\"?|'[^'\n]*'?")
#: the kind of a declaration, and its items
DECLARATION = re.compile(rf"\s*({'|'.join(DECLARATIONS)})\s*:(.*)", re.DOTALL)


def comment_start(row: str) -> int | None:
    """Return the index of the ``#`` that begins the comment of a line; None without a comment."""
    if "#" not in row:
        return None
    strings = [match.span() for match in STRING.finditer(row)]
    return next((m.start() for m in re.finditer("#", row) if not any(a < m.start() < b for a, b in strings)), None)


def code_of(row: str) -> str:
    """Return a line without its comment."""
    return row[: comment_start(row)]
