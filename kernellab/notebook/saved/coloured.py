"""Sketches and code in colour, as HTML that needs no style sheet: JupyterLab's own colours, else plain ones.

The colours are CSS variables of the theme (also in nbconvert's pages), with a fallback that is readable on white and
on black. Text is cut by Pygments, which IPython brings; a sketch by the few rules below.
"""

from __future__ import annotations

import re
from html import escape
from typing import ClassVar

from pygments import lex
from pygments.lexer import Lexer, RegexLexer, words
from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword, Name, String, Text, _TokenType
from pygments.util import ClassNotFound

from kernellab.sketch.syntax.docs import KEYWORDS

#: by kind of token: the theme's variable, and the colour where there is none. A span costs 70 bytes of each notebook
#: that is saved, so numbers and names have none.
_COLOURS = {
    Keyword: "var(--jp-mirror-editor-keyword-color,#2a8c3c)",
    String: "var(--jp-mirror-editor-string-color,#c0504d)",
    Comment: "var(--jp-mirror-editor-comment-color,#6f8f94)",
    Name.Decorator: "var(--jp-mirror-editor-meta-color,#9a55d4)",
}


class SketchLexer(RegexLexer):  # type: ignore[misc]
    """The Unified Sketch language, for the eye."""

    name = "Unified Sketch"
    filenames = ("*.sketch",)
    tokens: ClassVar = {
        "root": [
            (r"#[^\n]*", Comment),
            (r'"[^"\n]*"', String),
            (r"@\w+", Name.Decorator),
            (words(sorted(KEYWORDS), prefix=r"\b", suffix=r"\b"), Keyword),
            (r"\w+", Name),
            (r"\s+|[^\w\s]", Text),
        ]
    }


def coloured(text: str, file: str) -> str:
    """HTML of ``text`` by what ``file`` is called; escaped and without colour where that tells nothing."""
    lexer = _lexer(file)
    if lexer is None:
        return escape(text)
    return "".join(_span(kind, part) for kind, part in lex(text, lexer))


def _lexer(file: str) -> Lexer | None:
    if file.endswith(".sketch"):
        return SketchLexer(stripnl=False, ensurenl=False)
    try:
        return get_lexer_for_filename(re.sub(r"\.cuh?$", ".cpp", file), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _span(kind: _TokenType, part: str) -> str:
    colour = next((colour for token_kind, colour in _COLOURS.items() if kind in token_kind), "")
    # a newline in a span would be coloured too, and costs bytes
    return f'<span style="color:{colour}">{escape(part)}</span>' if colour and part.strip() else escape(part)
