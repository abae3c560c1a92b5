"""What the compiler made of a sketch: the facts, and the hottest loop as a picture that steps through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from kernellab.errors import CourseError
from kernellab.notebook.learn.picture import frame, moving
from kernellab.notebook.saved.figures import BLUE, ORANGE
from kernellab.notebook.saved.receipt import Shown
from kernellab.teach.judge import source_of
from kernellab.teach.read.machine import Instruction, hottest_loop

if TYPE_CHECKING:
    from kernellab.task import Task

#: facts that the course speaks of
_FACTS = ("vector width", "hottest loop", "spills in the loop", "calls in the loop", "divisions in the loop")
#: pixels: a row, and the widths of both sides; instructions that are shown at most
_LINE, _LEFT, _RIGHT, _MOST = 15, 400.0, 330.0, 24


def compiled(text: str, task: Task) -> Shown:
    """The cell's sketch or kernel in C++ under the lens.

    Raises:
        CourseError, SketchError, LoweringError, SessionError: it cannot be compiled.
    """
    from kernellab.lens import look

    lens = look(source_of(text, task, "cpp"))
    loop = hottest_loop(lens)
    if not loop:
        raise CourseError("The compiled code has no loop to show.", "Look at the whole of it with `kernellab lens`.")
    sentences = {fact.name: fact.sentence for fact in lens.facts}
    facts = [sentences[name] for name in _FACTS if name in sentences]
    source = lens.text.splitlines()
    source_lines = {one.line: source[one.line - 1].strip() for one in loop if one.line}
    words = f"the hottest loop, {len(loop)} instructions, next to the lines of C++ that they come from"
    picture = _drawn(loop[:_MOST], source_lines, words)
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in facts)
    listed_source = "\n".join(f"  {line}: {text}" for line, text in source_lines.items())
    listed_code = "\n".join(f"  {one.text}" for one in loop)
    return Shown("\n".join([*facts, f"{lens.file}:", listed_source, "asm:", listed_code]), f"{picture}<ul>{items}</ul>")


def _drawn(loop: Sequence[Instruction], source_lines: Mapping[int, str], words: str) -> str:
    """C++ on the left, assembly on the right; step by step an instruction and its line light up."""
    row_of_line = {line: row for row, line in enumerate(sorted(source_lines))}
    height = _LINE * (max(len(loop), len(row_of_line)) + 1) + 18
    font = "font-size='11' font-family='monospace' fill='currentColor'"
    parts = [f"<text x='0' y='11' {font}>C++</text>", f"<text x='{_LEFT}' y='11' {font}>assembly</text>"]
    for line, row in row_of_line.items():
        text = escape(source_lines[line][:54])
        parts.append(f"<text x='0' y='{_LINE * (row + 2)}' {font}>{line:>3} {text}</text>")
    for row, instruction in enumerate(loop):
        text = escape(instruction.text[:46])
        parts.append(f"<text x='{_LEFT}' y='{_LINE * (row + 2)}' {font}>{text}</text>")
    for row, instruction in enumerate(loop):
        mark = _mark(_LEFT, row, _RIGHT, ORANGE)
        if instruction.line in row_of_line:
            mark += _mark(0, row_of_line[instruction.line], _LEFT - 12, BLUE)
        parts.append(frame(row, mark))
    return moving(len(loop), _LEFT + _RIGHT, height, "".join(parts), words)


def _mark(x: float, row: int, width: float, colour: str) -> str:
    return (
        f"<rect x='{x - 3}' y='{_LINE * (row + 1) + 4}' width='{width}' height='{_LINE}' fill='{colour}' "
        f"fill-opacity='.22' stroke='{colour}'/>"
    )
