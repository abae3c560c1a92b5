"""Syntax trees of Python texts, from any thread."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import Literal, overload

_TRIES = 16


@overload
def parse(text: str | bytes, filename: str = ..., mode: Literal["exec"] = ...) -> ast.Module: ...
@overload
def parse(text: str | bytes, filename: str = ..., *, mode: Literal["eval"]) -> ast.Expression: ...
def parse(text: str | bytes, filename: str = "<unknown>", mode: str = "exec") -> ast.AST:
    """Return the syntax tree of ``text`` as `ast.parse` does, whatever other threads parse meanwhile.

    CPython 3.11 counts the depth of all threads' trees together (python/cpython#106905) and may raise SystemError for
    one of two that are built at once, also where IPython or Triton builds the other: such a tree is built again. A lock
    would stop each process that is forked while another thread holds it.

    Raises:
        SyntaxError: it is not valid Python.
        ValueError: it holds a null byte.
    """
    for _ in range(_TRIES):
        with suppress(SystemError):
            return ast.parse(text, filename, mode)
    return ast.parse(text, filename, mode)
