"""What a source says to its compiler: tokens without comments and layout, so that two sources can be compared."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kernellab.errors import LoweringError

#: files that a compiler or Python reads
CODE = (".py", ".cpp", ".cu", ".h", ".cuh", ".hpp", ".c")

_STRING = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
_SPLICE = r"\\[ \t\r]*\n"
_TOKEN = re.compile(
    rf"(?P<skip>[ \t\r\n\f\v]+|//(?:{_SPLICE}|[^\n])*|/\*.*?\*/)"
    rf"|(?P<token>{_SPLICE}|{_STRING}"
    r"|\.?\d(?:[eEpP][+-]|'?\w|\.)*|[A-Za-z_]\w*"
    r"|<<=|>>=|\.\.\.|->\*|<=>|//=|\*\*=?|::|->|\+\+|--|<<|>>|[-+*/%&|^=!<>]=|&&|\|\||##|.)",
    re.DOTALL,
)


class Token(NamedTuple):
    text: str
    #: its line in the file, from 1
    line: int


def tokens(file: str, text: str) -> list[Token]:
    """Python by its syntax tree, everything else as C++.

    Raises:
        LoweringError: it is not valid Python.
    """
    return list(_python(file, text) if file.endswith(".py") else _cpp(text))


def _cpp(text: str) -> Iterator[Token]:
    """A directive ends with its line, which is a separate token."""
    line, directive, fresh = 1, False, True
    for match in _TOKEN.finditer(text):
        word = match["token"]
        if word is None:
            breaks = match[0].count("\n")
            if breaks and directive and not match[0].startswith(("//", "/*")):
                yield Token("end of line", line)
                directive = False
            fresh = fresh or (breaks > 0 and not match[0].startswith("/*"))
        else:
            directive = directive or (word == "#" and fresh)
            fresh = False
            yield Token(word, line)
        line += match[0].count("\n")


def _python(file: str, text: str) -> Iterator[Token]:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise LoweringError(f"Line {error.lineno} of {file} is not valid Python.", "Fix it first.") from None
    yield from _statements(tree.body, 0)


def _statements(nodes: Sequence[ast.stmt], depth: int) -> Iterator[Token]:
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            continue  # a docstring
        yield Token(f"statement at depth {depth}", node.lineno)
        blocks = {f: getattr(node, f) for f in ("body", "orelse", "finalbody", "handlers") if getattr(node, f, None)}
        head = copy.copy(node)
        for name in blocks:
            setattr(head, name, [ast.Pass()] if name == "body" else [])
        for word in _TOKEN.finditer(ast.unparse(head)):
            if word["token"] is not None or word[0].startswith("/"):
                yield Token(word[0], node.lineno)
        for name, block in blocks.items():
            yield Token(name, node.lineno)
            if name == "handlers":
                for handler in block:
                    yield Token(ast.unparse(handler), handler.lineno)
            else:
                yield from _statements(block, depth + 1)
