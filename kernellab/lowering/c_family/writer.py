"""Lines of C++, each with the sketch line that it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_COMMENT_COLUMN = 72


class Writer:
    """Collects indented lines; ``line_map`` maps their numbers (from 1) to sketch lines."""

    def __init__(self, sketch: str, quiet: Iterable[int] = ()) -> None:
        """``quiet`` are sketch lines without a line of code: each is a comment before what follows it."""
        self._sketch = sketch.splitlines()
        self._quiet = sorted(quiet, reverse=True)
        self._depth = 0
        self.lines: list[str] = []
        self.line_map: dict[int, int] = {}

    def __call__(self, text: str = "", sketch_line: int = 0, comment: bool = True) -> None:
        """Write one line; with ``comment`` the line of the sketch follows it as a comment."""
        while comment and self._quiet and self._quiet[-1] < sketch_line:
            self.say(self._quiet.pop())
        line = ("  " * self._depth + text).rstrip()
        if 0 < sketch_line <= len(self._sketch):
            self.line_map[len(self.lines) + 1] = sketch_line
            if comment:
                line = f"{line.ljust(_COMMENT_COLUMN)}  {self._comment(sketch_line)}"
        self.lines.append(line)

    def insert(self, at: int, lines: Iterable[str]) -> None:
        """Insert lines before the one numbered ``at`` (from 0), with the current indentation."""
        new = [("  " * self._depth + text).rstrip() for text in lines]
        self.lines[at:at] = new
        self.line_map = {n + len(new) if n > at else n: line for n, line in self.line_map.items()}

    def say(self, sketch_line: int) -> None:
        """Write the sketch line as a comment alone, for a line without code."""
        self.lines.append("  " * self._depth + self._comment(sketch_line))

    def _comment(self, sketch_line: int) -> str:
        # a backslash at the end would continue the comment in the next line
        return f"// {sketch_line}: {self._sketch[sketch_line - 1].strip()}".rstrip("\\ ")

    @contextmanager
    def block(self, head: str, sketch_line: int = 0, comment: bool = True, tail: str = "}") -> Iterator[None]:
        self(f"{head} {{".lstrip(), sketch_line, comment)
        self._depth += 1
        yield
        self._depth -= 1
        self(tail)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
