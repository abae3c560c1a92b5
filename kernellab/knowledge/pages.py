"""A Markdown document as sections, and the code blocks in them. Read by markdown-it-py, so fences are CommonMark's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.errors import KernellabError

if TYPE_CHECKING:
    from markdown_it.token import Token

_FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)


class DocumentError(KernellabError):
    """A document that cannot be read or does not follow the DocSpec; the message names file and line."""


@dataclass(frozen=True)
class Block:
    """A fenced code block. ``options`` are the words after the language: ``name`` or ``name=value``."""

    language: str
    options: Mapping[str, str]
    text: str
    #: of the opening fence, from 1
    line: int


@dataclass(frozen=True)
class Section:
    """From one heading to the next. ``text`` is Markdown with its heading; ``path`` the headings down to it."""

    path: tuple[str, ...]
    level: int
    text: str
    line: int
    blocks: tuple[Block, ...] = ()

    @property
    def title(self) -> str:
        return self.path[-1] if self.path else ""


@dataclass(frozen=True)
class Page:
    """A whole document; ``front`` are the ``key: value`` lines before it."""

    front: Mapping[str, str]
    sections: tuple[Section, ...]
    links: tuple[tuple[str, int], ...] = ()
    #: (text, line) of each inline code span
    spans: tuple[tuple[str, int], ...] = ()
    headings: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.sections[0].title if self.sections else ""

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block for section in self.sections for block in section.blocks)

    @property
    def text(self) -> str:
        return "\n".join(section.text for section in self.sections)


def read_page(path: Path) -> Page:
    """The document at ``path``. Raises DocumentError when it cannot be read."""
    try:
        stamp = path.stat().st_mtime_ns
        return _read(path, stamp)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise DocumentError(f"The document {path} cannot be read: {reason}.", "Check the path.") from None


@lru_cache(maxsize=256)
def _read(path: Path, stamp: int) -> Page:
    return parse_page(path.read_text(encoding="utf-8"))


def parse_page(text: str) -> Page:
    """Markdown to sections, blocks, links and inline code."""
    from markdown_it import MarkdownIt

    front, before = _front(text)
    lines = text.split("\n")
    tokens = MarkdownIt("commonmark").enable("table").parse("\n".join(lines[before:]))
    starts: list[tuple[int, int, str]] = []
    blocks: list[Block] = []
    links: list[tuple[str, int]] = []
    spans: list[tuple[str, int]] = []
    for at, token in enumerate(tokens):
        line = (token.map[0] if token.map else 0) + before
        if token.type == "heading_open" and token.level == 0:
            starts.append((line, int(token.tag[1]), _plain(tokens[at + 1])))
        elif token.type == "fence":
            language, options = _info(token.info, line + 1)
            blocks.append(Block(language, options, token.content, line + 1))
        elif token.type == "inline":
            for child in token.children or ():
                if child.type == "link_open":
                    links.append((str(child.attrGet("href") or ""), line + 1))
                elif child.type == "image":
                    links.append((str(child.attrGet("src") or ""), line + 1))
                elif child.type == "code_inline":
                    spans.append((child.content, line + 1))
    sections = tuple(_sections(lines, before, starts, blocks))
    return Page(front, sections, tuple(links), tuple(spans), tuple(title for _, _, title in starts))


def _front(text: str) -> tuple[dict[str, str], int]:
    head = _FRONT.match(text)
    if head is None:
        return {}, 0
    pairs = (line.partition(":") for line in head[1].splitlines() if line.strip() and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}, head[0].count("\n")


def _plain(inline: Token) -> str:
    return "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))


def _info(info: str, line: int) -> tuple[str, dict[str, str]]:
    try:
        words = shlex.split(info)
    except ValueError:
        raise DocumentError(f"Line {line}: the words after ``` have an open quote.", "Close it.") from None
    options = (word.partition("=") for word in words[1:])
    return (words[0] if words else ""), {name: value for name, _, value in options}


def _sections(lines: list[str], before: int, starts: list[tuple[int, int, str]], blocks: list[Block]) -> list[Section]:
    if not starts or any(line.strip() for line in lines[before : starts[0][0]]):
        starts = [(before, 0, ""), *starts]
    sections: list[Section] = []
    path: list[tuple[int, str]] = []
    for (start, level, title), end in zip(starts, [*(s for s, _, _ in starts[1:]), len(lines)], strict=True):
        path = [*(p for p in path if p[0] < level), (level, title)]
        names = tuple(name for _, name in path if name)
        own = tuple(b for b in blocks if start < b.line <= end)
        sections.append(Section(names, level, "\n".join(lines[start:end]).rstrip() + "\n", start + 1, own))
    return sections
