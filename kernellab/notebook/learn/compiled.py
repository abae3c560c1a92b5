"""What the compiler made of a sketch: the facts, and the hottest loop as a picture that steps through it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kernellab.errors import CourseError
from kernellab.notebook.learn.picture import frame, moving
from kernellab.notebook.saved.figures import BLUE, ORANGE
from kernellab.notebook.saved.receipt import Shown
from kernellab.teach.judge import source_of
from kernellab.teach.read.machine import hottest_loop

if TYPE_CHECKING:
    from kernellab.task import Task

#: facts that the course speaks of
_FACTS = ("vector width", "hottest loop", "spills in the loop", "calls in the loop", "divisions in the loop")
_LINE, _LEFT, _RIGHT, _MOST = 15, 400.0, 330.0, 24


def compiled(text: str, task: Task) -> Shown:
    """The cell's sketch or kernel in C++ under the lens.

    Raises:
        CourseError, SketchError, LoweringError, SessionError: it cannot be compiled.
    """
    from kernellab.lens import look

    lens = look(source_of(text, task, "cpp"))
    sentences = {fact.name: fact.sentence for fact in lens.facts}
    rows = [(one.text, one.line) for one in hottest_loop(lens)]
    if not rows:
        raise CourseError("The compiled code has no loop to show.", "Look at the whole of it with `kernellab lens`.")
    shown = [sentences[name] for name in _FACTS if name in sentences]
    sources = lens.text.splitlines()
    lines = list(dict.fromkeys(line for _, line in rows if line))
    code = "\n".join(f"  {row}" for row, _ in rows)
    source_lines = "\n".join(f"  {line}: {sources[line - 1].strip()}" for line in lines)
    words = f"the hottest loop, {len(rows)} instructions, next to the lines of C++ that they come from"
    drawn = _drawn(rows[:_MOST], {at: sources[at - 1] for at in lines}, words)
    facts = "".join(f"<li>{escape(sentence)}</li>" for sentence in shown)
    return Shown("\n".join([*shown, f"{lens.file}:", source_lines, "asm:", code]), f"{drawn}<ul>{facts}</ul>")


def _drawn(rows: list[tuple[str, int]], lines: dict[int, str], words: str) -> str:
    shown = {line: number for number, line in enumerate(sorted(lines))}
    height = _LINE * (max(len(rows), len(shown)) + 1) + 18
    font = "font-size='11' font-family='monospace' fill='currentColor'"
    parts = [
        f"<text x='0' y='11' {font}>C++</text>",
        f"<text x='{_LEFT}' y='11' {font}>assembly</text>",
        *(
            f"<text x='0' y='{_LINE * (at + 2)}' {font}>{line:>3} {escape(lines[line].strip()[:54])}</text>"
            for line, at in shown.items()
        ),
        *(
            f"<text x='{_LEFT}' y='{_LINE * (at + 2)}' {font}>{escape(row[:46])}</text>"
            for at, (row, _) in enumerate(rows)
        ),
    ]
    for at, (_, line) in enumerate(rows):
        mark = _mark(_LEFT, at, _RIGHT, ORANGE)
        if line in shown:
            mark += _mark(0, shown[line], _LEFT - 12, BLUE)
        parts.append(frame(at, mark))
    return moving(len(rows), _LEFT + _RIGHT, height, "".join(parts), words)


def _mark(x: float, at: int, width: float, colour: str) -> str:
    return (
        f"<rect x='{x - 3}' y='{_LINE * (at + 1) + 4}' width='{width}' height='{_LINE}' fill='{colour}' "
        f"fill-opacity='.22' stroke='{colour}'/>"
    )
