"""Text of a Triton kernel: lines with the sketch lines that they come from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kernellab import python_tree


@dataclass
class Writer:
    """Lines of one function, each with the sketch line that it came from (0: none)."""

    lines: list[tuple[str, int]] = field(default_factory=list)
    depth: int = 1
    #: sketch line of the statement being written
    at: int = 0

    def put(self, text: str) -> None:
        self.lines.append(("    " * self.depth + text, self.at))


def is_atom(text: str) -> bool:
    """Is it a name or a number, which costs nothing to write twice?"""
    return text.isidentifier() or re.fullmatch(r"-?[\d.]+(e-?\d+)?", text) is not None


def join_comments(
    lines: list[tuple[str, int]], sketch: list[str], first: int, quiet: Iterable[int] = ()
) -> tuple[str, dict[int, int]]:
    """Return the text with each statement's sketch line as a trailing comment, and the sketch line of each generated
    line.

    ``first`` is the number of the first line in its file. ``quiet`` are sketch lines without a line of code: each is a
    comment before what follows it."""
    mapped: dict[int, int] = {}
    written = 0
    out: list[str] = []
    left = sorted(quiet, reverse=True)
    for text, line in lines:
        while left and left[-1] < line:
            out.append(f"{text[: len(text) - len(text.lstrip())]}# {sketch[left.pop() - 1].strip()}")
        if line:
            mapped[first + len(out)] = line
        if line and line != written and line <= len(sketch):
            text = f"{text:<72}  # {sketch[line - 1].strip()}"
        written = line or written
        out.append(text.rstrip())
    return "\n".join(out) + "\n", mapped


def names_in(tree: ast.AST) -> frozenset[str]:
    """Return every name in the code."""
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def names_used(lines: Sequence[tuple[str, int]]) -> frozenset[str]:
    """Return every name in a function's lines; each line has its number in the sketch."""
    return names_in(python_tree.parse("def f():\n" + "\n".join(text for text, _ in lines)))
