"""Lines of C++, each with the sketch line that it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_COMMENT_COLUMN = 72


class Writer:
    """Collects indented lines; ``line_map`` maps their numbers (from 1) to sketch lines."""

    def __init__(self, sketch: str) -> None:
        self._sketch = sketch.splitlines()
        self._depth = 0
        self.lines: list[str] = []
        self.line_map: dict[int, int] = {}

    def __call__(self, text: str = "", sketch_line: int = 0, said: bool = True) -> None:
        """One line; ``said`` repeats the sketch line in a comment behind it."""
        line = ("  " * self._depth + text).rstrip()
        if 0 < sketch_line <= len(self._sketch):
            self.line_map[len(self.lines) + 1] = sketch_line
            if said:
                line = f"{line.ljust(_COMMENT_COLUMN)}  // {sketch_line}: {self._sketch[sketch_line - 1].strip()}"
        self.lines.append(line)

    @contextmanager
    def block(self, head: str, sketch_line: int = 0, said: bool = True, tail: str = "}") -> Iterator[None]:
        self(f"{head} {{".lstrip(), sketch_line, said)
        self._depth += 1
        yield
        self._depth -= 1
        self(tail)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
