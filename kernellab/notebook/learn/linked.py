"""A sketch next to what the rules lower it to, linked line by line: pointing at a line marks its partners.

A style sheet does it, no script, so that it works in a saved page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from kernellab.errors import counted
from kernellab.notebook.saved.snapshot import PRE
from kernellab.teach.translate import Translation

_MARK = "background:rgba(230,159,0,.35)"
_STYLE = "display:flex;gap:12px;align-items:flex-start;overflow:auto"


def linked(sketch: str, other: Translation) -> str:
    """A fold-out with both; lines of the code that come from no line of the sketch are grey. Where there is no code,
    the reason."""
    if other.missing:
        why = f"no {other.language} yet for {other.missing}; lesson 19 has the hints that ask for it"
        return f"<p style='opacity:.75'>{escape(why)}</p>"
    sources = sketch.strip("\n").splitlines()
    # the judge counts the cell's lines, blank ones at its head too
    before = len(sketch) - len(sketch.lstrip("\n"))
    pairs = sorted({line for line in other.lines.values() if line})
    rules = ",".join(f".kl-linked:has(.kl-s{n}:hover) .kl-s{n}" for n in pairs)
    left = _rows(sources, {at: at + before for at in range(1, len(sources) + 1)}, pairs)
    lines = other.code.splitlines()
    head = _head(lines, min((at for at, line in other.lines.items() if line), default=1))
    right = f"<pre {PRE}>{_rows(lines[head:], {at - head: line for at, line in other.lines.items()}, pairs)}</pre>"
    if head:
        summary = f"{counted(head, 'line')} before the kernel"
        right = f"<details><summary>{summary}</summary><pre {PRE}>{_rows(lines[:head], {}, [])}</pre></details>{right}"
    words = f"the same in {other.language}, as the rules write it; point at a line to see which lines belong together"
    style = f"<style>{rules}{{{_MARK}}}</style>" if rules else ""
    return (
        f"<details><summary>{escape(words)}</summary>{style}<div class='kl-linked' style='{_STYLE}'>"
        f"<pre {PRE}>{left}</pre><div>{right}</div></div></details>"
    )


def _head(lines: list[str], first: int) -> int:
    """How many lines stand before the function, with its decorators, that holds line ``first``."""
    return max((at for at in range(1, first) if not lines[at - 1].strip()), default=0)


def _rows(lines: Iterable[str], of: Mapping[int, int], pairs: list[int]) -> str:
    shown = ""
    for at, line in enumerate(lines, 1):
        source = of.get(at, 0)
        is_linked = source in pairs
        kind = f" class='kl-s{source}'" if is_linked else " style='opacity:.55'"
        number = f"{source:>3} " if is_linked else "    "
        shown += f"<span{kind}>{number}{escape(line)}</span>\n"
    return shown
