"""Pictures of tensors as SVG in the page's own colours: which elements are wrong, and what each step touches.

Marks differ in shape as well as in colour, and each picture has its words as a title, so that it says the same without
colour and to a screen reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import prod

from kernellab.notebook.protocol import Touches
from kernellab.notebook.saved.figures import BLUE, GREEN, ORANGE, RED
from kernellab.teach.wrong import Wrong

_CELL = 9
_LINE = "stroke='currentColor' stroke-opacity='.28' stroke-width='.6'"
#: mark of a map -> colour, word, and the strokes drawn in a cell whose corner is at {0}, {1}
_MARKS: Mapping[str, tuple[str, str, str]] = {
    "x": (RED, "wrong", "M{0}.2 {1}.2l.6 .6m0-.6l-.6 .6"),
    "n": (ORANGE, "not finite", "M{0}.2 {1}.8v-.6l.6 .6v-.6"),
    "u": ("#888888", "never stored", "M{0}.5 {1}.2l.3 .3l-.3 .3l-.3-.3z"),
}
_FADE, _SECONDS = 0.72, 0.7
#: steps that an animation shows; later ones repeat the pattern
_MOST_FRAMES = 24


def wrong_svg(found: Wrong) -> str:
    """The output's elements, those that are wrong marked."""
    rows = found.rows
    width, height = max(len(row) for row in rows) * _CELL, len(rows) * _CELL
    parts = [f"<rect width='{width}' height='{height}' fill='none' {_LINE}/>"]
    for mark, (colour, _, path) in _MARKS.items():
        places = [(r, c) for r, row in enumerate(rows) for c, found_mark in enumerate(row) if found_mark == mark]
        if places:
            ground = "".join(f"M{c} {r}h1v1h-1z" for r, c in places)
            signs = "".join(path.format(c, r) for r, c in places)
            parts.append(
                f"<g transform='scale({_CELL})'><path d='{ground}' fill='{colour}' fill-opacity='.25'/>"
                f"<path d='{signs}' fill='none' stroke='{colour}' stroke-width='.13'/></g>"
            )
    seen = [mark for mark in _MARKS if any(mark in row for row in rows)]
    legend = ", ".join(f"{_MARKS[mark][1]} {_NAMES[mark]}" for mark in seen)
    picture = svg(width, height, "".join(parts), found.words)
    return f"<figure style='margin:6px 0'>{picture}<figcaption>{escape(found.words)} ({legend})</figcaption></figure>"


_NAMES = {"x": "x", "n": "N", "u": "a diamond"}


def moving_svg(found: Touches, names: Sequence[str] = ()) -> str:
    """The tensors side by side; one step after another lights up, loads in blue, stores in orange with a frame.

    A style sheet moves it, no script: it plays in saved pages, stops under the pointer, and stands still where the
    reader asks for less motion.
    """
    steps = found["steps"][:_MOST_FRAMES]
    shown = [(i, t) for i, t in enumerate(found["tensors"]) if not names or t["name"] in names]
    places: dict[int, tuple[float, float, int]] = {}
    parts, x, height, widths = [], 0.0, 0.0, 0.0
    cell = _cell_of([t["shape"] for _, t in shown])
    for index, tensor in shown:
        columns = tensor["shape"][-1] if tensor["shape"] else 1
        rows = max(1, prod(tensor["shape"]) // max(columns, 1))
        width = max(columns * cell, 7.0 * len(tensor["name"]) + 40)
        places[index] = x, 16.0, columns
        shape = ", ".join(map(str, tensor["shape"]))
        parts.append(
            f"<text x='{x}' y='11' font-size='10' fill='currentColor'>{escape(tensor['name'])}[{shape}]</text>"
            f"<rect x='{x}' y='16' width='{columns * cell}' height='{rows * cell}' fill='none' {_LINE}/>"
            + _grid(x, 16.0, rows, columns, cell)
        )
        height, widths = max(height, 16 + rows * cell), x + width
        x += width + 22
    for number, step in enumerate(steps):
        marks = "".join(
            _region(places[part["tensor"]], part["ranges"], cell, part["write"])
            for part in step["parts"]
            if part["tensor"] in places
        )
        parts.append(
            f"<g class='klm' style='animation-delay:{number * _SECONDS:.2f}s'>{marks}"
            f"<text x='0' y='{height + 14}' font-size='10' fill='currentColor'>"
            f"step {number + 1} of {found['total']}: {escape(step['at'] or 'once')}</text></g>"
        )
    words = f"{found['total']} steps at {found['sizes']}; loads in blue, stores framed in orange."
    return moving_style(len(steps)) + svg(
        widths, height + 20, "".join(parts), words, f"kl-moving kl-moving-{len(steps)}"
    )


def moving_style(frames: int) -> str:
    """The style sheet that shows the groups of class ``klm`` in turn; each says its own delay, 0.7 s apart."""
    share, total = 100 / max(frames, 1), max(frames, 1) * _SECONDS
    return (
        f"<style>.kl-moving-{frames} .klm{{opacity:0;animation:kl-{frames} {total:.1f}s infinite}}"
        f"@keyframes kl-{frames}{{0%,{_FADE * share:.2f}%{{opacity:1}}{share:.2f}%,100%{{opacity:0}}}}"
        ".kl-moving:hover .klm{animation-play-state:paused}"
        "@media (prefers-reduced-motion:reduce){.kl-moving .klm{animation:none}.kl-moving .klm:last-of-type{opacity:1}}"
        "</style>"
    )


def _cell_of(shapes: Sequence[Sequence[int]]) -> float:
    """Pixels an element, so that all tensors fit side by side."""
    columns = sum(shape[-1] if shape else 1 for shape in shapes)
    rows = max((prod(shape) // max(shape[-1], 1) if shape else 1 for shape in shapes), default=1)
    return round(max(2.0, min(12.0, 640 / max(columns, 1), 260 / max(rows, 1))), 2)


def _grid(x: float, y: float, rows: int, columns: int, cell: float) -> str:
    if cell < 5:
        return ""
    across = "".join(f"M{x} {y + r * cell:.1f}h{columns * cell:.1f}" for r in range(1, rows))
    down = "".join(f"M{x + c * cell:.1f} {y}v{rows * cell:.1f}" for c in range(1, columns))
    return f"<path d='{across}{down}' fill='none' stroke='currentColor' stroke-opacity='.14' stroke-width='.5'/>"


def _region(place: tuple[float, float, int], ranges: Sequence[Sequence[int]], cell: float, write: bool) -> str:
    """The elements of one access: runs of flat numbers, cut at the ends of rows."""
    x, y, columns = place
    path = ""
    for first, count in ranges:
        at, left = first, count
        while left > 0:
            row, column = divmod(at, columns)
            length = min(left, columns - column)
            path += (
                f"M{x + column * cell:.1f} {y + row * cell:.1f}h{length * cell:.1f}v{cell:.1f}h{-length * cell:.1f}z"
            )
            at, left = at + length, left - length
    frame = f" stroke='{ORANGE}' stroke-width='1.4'" if write else ""
    return f"<path d='{path}' fill='{ORANGE if write else BLUE}' fill-opacity='{0.35 if write else 0.75}'{frame}/>"


def bar(share: float, words: str) -> str:
    """A share as a bar with its words."""
    part = max(0.0, min(1.0, share))
    inside = (
        f"<rect width='160' height='10' fill='none' {_LINE}/>"
        f"<rect width='{160 * part:.0f}' height='10' fill='{GREEN}' fill-opacity='.8'/>"
    )
    return f"{svg(160, 10, inside, words)} {escape(words)}"


def svg(width: float, height: float, inside: str, words: str, name: str = "") -> str:
    """A picture with its words as a title and for screen readers."""
    kind = f" class='{name}'" if name else ""
    size = f"width='{width + 2:.0f}' height='{height + 2:.0f}' viewBox='-1 -1 {width + 2:.0f} {height + 2:.0f}'"
    return (
        f"<svg{kind} role='img' aria-label='{escape(words, quote=True)}' xmlns='http://www.w3.org/2000/svg' {size} "
        f"style='max-width:100%'><title>{escape(words)}</title>{inside}</svg>"
    )
