"""Pictures of tensors as SVG in the page's own colours: which elements are wrong, and what each step touches.

Marks differ in shape as well as in colour, and each picture has its words as a title, so that it says the same without
colour and to a screen reader.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import prod
from typing import Generic, TypeVar

from kernellab.notebook.answers import Touches, TouchStep
from kernellab.notebook.saved.figures import BLUE, GREEN, ORANGE, RED
from kernellab.sketch.program.program import DType
from kernellab.teach.wrong import ErrorMap

Key = TypeVar("Key")

_CELL = 9
_LINE = "stroke='currentColor' stroke-opacity='.28' stroke-width='.6'"


@dataclass(frozen=True)
class _Mark:
    """How elements with one mark of a map are drawn; ``strokes`` are those in a cell whose corner is at {0}, {1}."""

    colour: str
    word: str
    sign: str
    strokes: str


_MARKS: Mapping[str, _Mark] = {
    "x": _Mark(RED, "wrong", "x", "M{0}.2 {1}.2l.6 .6m0-.6l-.6 .6"),
    "n": _Mark(ORANGE, "not finite", "N", "M{0}.2 {1}.8v-.6l.6 .6v-.6"),
    "u": _Mark("#888888", "never stored", "a diamond", "M{0}.5 {1}.2l.3 .3l-.3 .3l-.3-.3z"),
}
#: of a step of a moving picture: the share of its time that it is seen, and its seconds
_FADE, _SECONDS = 0.72, 0.7
#: a front end takes drawings and style sheets out of a notebook that it does not trust, and leaves their words
_UNTRUSTED = (
    "<p class='klp'>A moving picture, of which a notebook that is not trusted shows the words alone: run the cell, or "
    "trust the notebook.</p>"
)
#: pixels: a page's width, an element at most, and a tensor's height at most; a row of code
_PAGE, _WIDEST, _TALLEST, _ROW = 680.0, 14.0, 240.0, 15
#: pixels: an element of a tile, and a tile, at most
_TILE, _TILE_MOST = 8.0, 96.0
_CODE = "font-size='11' font-family='monospace' fill='currentColor' xml:space='preserve'"
#: steps that an animation shows; later ones repeat the pattern
_MOST_FRAMES = 24


def wrong_svg(wrong: ErrorMap) -> str:
    """The output's elements, those that are wrong marked."""
    rows = wrong.rows
    width, height = max(len(row) for row in rows) * _CELL, len(rows) * _CELL
    parts = [f"<rect width='{width}' height='{height}' fill='none' {_LINE}/>"]
    legend = []
    for letter, mark in _MARKS.items():
        places = [(r, c) for r, row in enumerate(rows) for c, element in enumerate(row) if element == letter]
        if not places:
            continue
        legend.append(f"{mark.word} {mark.sign}")
        ground = "".join(f"M{c} {r}h1v1h-1z" for r, c in places)
        signs = "".join(mark.strokes.format(c, r) for r, c in places)
        parts.append(
            f"<g transform='scale({_CELL})'><path d='{ground}' fill='{mark.colour}' fill-opacity='.25'/>"
            f"<path d='{signs}' fill='none' stroke='{mark.colour}' stroke-width='.13'/></g>"
        )
    caption = f"{escape(wrong.words)} ({', '.join(legend)})"
    picture = svg(width, height, "".join(parts), wrong.words)
    return f"<figure style='margin:6px 0'>{picture}<figcaption>{caption}</figcaption></figure>"


def moving_svg(touches: Touches, names: Sequence[str] = (), text: str = "") -> str:
    """The tensors, and the sketch ``text`` under them; step after step lights up, loads in blue, stores in orange with
    a frame, with the lines of the sketch that make them and the bytes moved so far.

    A style sheet moves it, no script: it plays in saved pages, and a row of buttons, which arrow keys walk along, shows
    one step. It stands still where the reader asks for less motion.
    """
    steps, code = touches["steps"][:_MOST_FRAMES], text.rstrip().splitlines()
    tensors = _tensors(touches, names)
    tiles = _tiles(steps, tensors.end + 10)
    code_top = tiles.end + 22
    width = max(tensors.width, tiles.width, 6.7 * max(map(len, code), default=0) + 8)
    parts = [*tensors.outlines, *tiles.outlines]
    for number, line in enumerate(code):
        parts.append(f"<text x='4' y='{code_top + _ROW * number + 11:.0f}' {_CODE}>{escape(line)}</text>")
    loaded = stored = 0
    for number, step in enumerate(steps):
        loaded += _bytes(touches, step, write=False)
        stored += _bytes(touches, step, write=True)
        marks = _marked_elements(step, tensors.places, tiles.places)
        for at, colour in sorted(_lit_lines(step).items()):
            if 0 < at <= len(code):
                y = code_top + _ROW * (at - 1)
                marks += (
                    f"<rect x='0' y='{y:.0f}' width='{width:.0f}' height='{_ROW}' fill='{colour}' fill-opacity='.3'/>"
                )
        state = f"step {number + 1} of {touches['total']}: {step['at'] or 'once'}; so far "
        state = escape(f"{state}{loaded} B loaded, {stored} B stored")
        label = f"<text x='0' y='{tiles.end + 14:.0f}' font-size='11' fill='currentColor'>{state}</text>"
        parts.append(frame(number, marks + label))
    words = f"{touches['total']} steps at {touches['sizes']}; loads in blue, stores framed in orange."
    if tiles.places:
        words += " Below the tensors the tiles on chip: blue where loaded, green where computed."
    return moving(len(steps), width, code_top + _ROW * len(code) + 4, "".join(parts), words)


def _bytes(touches: Touches, step: TouchStep, write: bool) -> int:
    """What the step stores, or loads."""
    return sum(
        DType(touches["tensors"][part["tensor"]]["dtype"]).bytes * sum(count for _, count in part["ranges"])
        for part in step["parts"]
        if part["write"] is write
    )


def _marked_elements(step: TouchStep, tensors: Mapping[int, _Place], tiles: Mapping[str, _Place]) -> str:
    """What a step accesses and makes."""
    parts = [part for part in step["parts"] if part["tensor"] in tensors]
    marks = "".join(_region(tensors[part["tensor"]], part["ranges"], part["write"]) for part in parts)
    load_lines = {part["line"] for part in step["parts"]}
    for name, made in {made["name"]: made for made in step["tiles"]}.items():
        marks += _made(tiles[name], made["shape"], BLUE if made["line"] in load_lines else GREEN)
    return marks


def _lit_lines(step: TouchStep) -> dict[int, str]:
    """The lines of the sketch that a step comes from, with their colours."""
    return {made["line"]: GREEN for made in step["tiles"]} | {part["line"]: BLUE for part in step["parts"]}


@dataclass(frozen=True)
class _Place:
    """Where a tensor is drawn: its corner, elements a row, and the size of one, in pixels."""

    x: float
    y: float
    columns: int
    wide: float
    high: float


@dataclass
class _Flow:
    """Boxes below their labels next to each other, in rows that fit the page, from ``y`` on; lengths in pixels."""

    y: float
    #: between two rows
    gap: float
    x: float = 0.0
    row: float = 0.0
    #: the width of all
    most: float = 0.0

    @property
    def end(self) -> float:
        return self.y + self.row

    def box(
        self, label: str, columns: int, rows: int, wide: float, high: float, dashes: str = ""
    ) -> tuple[_Place, str]:
        """Where a tensor of ``rows`` by ``columns`` elements of ``wide`` by ``high`` lies, and its outline."""
        across, down = columns * wide, rows * high
        width = max(across, 6.4 * len(label))
        if self.x and self.x + width > _PAGE:
            self.x, self.y, self.row = 0.0, self.end + self.gap, 0.0
        x, y = self.x, self.y
        place = _Place(x, y + 16, columns, wide, high)
        drawn = (
            f"<text x='{x:.1f}' y='{y + 11:.1f}' font-size='11' fill='currentColor'>{escape(label)}</text>"
            f"<rect x='{x:.1f}' y='{y + 16:.1f}' width='{across:.1f}' height='{down:.1f}' fill='none' {dashes}{_LINE}/>"
            + _grid(place, rows)
        )
        self.row, self.most = max(self.row, 16 + down), max(self.most, x + width)
        self.x += width + 22
        return place, drawn


@dataclass(frozen=True)
class _Layout(Generic[Key]):
    """Where boxes are drawn, their outlines, the width of all and where they end, in pixels."""

    places: Mapping[Key, _Place]
    outlines: Sequence[str]
    width: float
    end: float


def _tensors(touches: Touches, names: Sequence[str]) -> _Layout[int]:
    """The tensors one after another by number, in rows that fit the page; only ``names``, where there are any."""
    places: dict[int, _Place] = {}
    outlines: list[str] = []
    flow = _Flow(0.0, gap=10)
    for index, tensor in enumerate(touches["tensors"]):
        if names and tensor["name"] not in names:
            continue
        columns = tensor["shape"][-1] if tensor["shape"] else 1
        rows = max(1, prod(tensor["shape"]) // max(columns, 1))
        wide = min(_WIDEST, _PAGE / max(columns, 1), _PAGE if rows == 1 else max(2.0, _TALLEST / rows))
        high = _WIDEST if rows == 1 else min(max(wide, 4.0), _TALLEST / rows)
        label = f"{tensor['name']}[{', '.join(map(str, tensor['shape']))}]"
        places[index], outline = flow.box(label, columns, rows, wide, high)
        outlines.append(outline)
    return _Layout(places, outlines, max(flow.most, 420.0), flow.end)


def _tiles(steps: Sequence[TouchStep], top: float) -> _Layout[str]:
    """The tiles that the steps make, from ``top`` on, each by its largest shape."""
    shapes: dict[str, list[int]] = {}
    for made in (made for step in steps for made in step["tiles"]):
        shapes[made["name"]] = max(shapes.get(made["name"], []), made["shape"], key=lambda s: (len(s), prod(s)))
    places: dict[str, _Place] = {}
    outlines: list[str] = []
    flow = _Flow(top, gap=8)
    for name, shape in shapes.items():
        columns, rows = (shape[-1] if shape else 1), prod(shape[:-1])
        label = f"{name}[{', '.join(map(str, shape))}]" if shape else name
        wide, high = min(_TILE, _TILE_MOST / max(columns, 1)), min(_TILE, _TILE_MOST / max(rows, 1))
        places[name], outline = flow.box(label, columns, rows, wide, high, "stroke-dasharray='3 2' ")
        outlines.append(outline)
    return _Layout(places, outlines, flow.most, flow.end)


def _made(place: _Place, shape: Sequence[int], colour: str) -> str:
    """A tile that is set, as far as its shape goes."""
    wide, high = (shape[-1] if shape else 1) * place.wide, prod(shape[:-1]) * place.high
    return (
        f"<rect x='{place.x:.1f}' y='{place.y:.1f}' width='{wide:.1f}' height='{high:.1f}' fill='{colour}' "
        f"fill-opacity='.6'/>"
    )


#: key of a picture -> how often this process made it
_shown: Counter[str] = Counter()


def frame(number: int, inside: str) -> str:
    """One step of a moving picture."""
    return f"<g class='klm k{number}' style='animation-delay:{number * _SECONDS:.2f}s'>{inside}</g>"


def moving(frames: int, width: float, height: float, inside: str, words: str) -> str:
    """A picture whose :func:`frame` parts are shown in turn, or one of them by the buttons above it."""
    key = f"kl{hashlib.sha256(inside.encode()).hexdigest()[:10]}"
    _shown[key] += 1
    if _shown[key] > 1:  # a picture that is twice in one page has two sets of buttons
        key = f"{key}-r{_shown[key]}"
    share, total = 100 / max(frames, 1), max(frames, 1) * _SECONDS
    shown = ",".join(f"#{key}-{n}:checked~svg .k{n}" for n in range(frames))
    style = (
        f"{_UNTRUSTED}<style>.{key} .klp{{display:none}}.{key} .klm{{opacity:0;animation:{key} {total:.1f}s infinite}}"
        f"@keyframes {key}{{0%,{_FADE * share:.2f}%{{opacity:1}}{share:.2f}%,100%{{opacity:0}}}}"
        f".{key} svg:hover .klm{{animation-play-state:paused}}"
        f"@media (prefers-reduced-motion:reduce){{.{key} .klm{{animation:none}}.{key} .klm:last-of-type{{opacity:1}}}}"
        f"#{key}:not(:checked)~svg .klm{{animation:none;opacity:0}}{shown or '.none'}{{opacity:1!important}}"
        f".{key} input{{margin:0 1px;width:13px;height:13px}}.{key} svg{{display:block}}</style>"
    )
    buttons = f"<label for='{key}'>play </label><input type='radio' name='step' id='{key}' checked>" + "".join(
        f"<input type='radio' name='step' id='{key}-{n}' title='step {n + 1}' aria-label='step {n + 1}'>"
        for n in range(frames)
    )
    return (
        f"<form method='dialog' class='{key}'>{style}{buttons}{svg(width, height, inside, words, 'kl-moving')}</form>"
    )


def _grid(place: _Place, rows: int) -> str:
    if min(place.wide, place.high) < 5:
        return ""
    width, height = place.columns * place.wide, rows * place.high
    across = "".join(f"M{place.x:.1f} {place.y + r * place.high:.1f}h{width:.1f}" for r in range(1, rows))
    down = "".join(f"M{place.x + c * place.wide:.1f} {place.y:.1f}v{height:.1f}" for c in range(1, place.columns))
    return f"<path d='{across}{down}' fill='none' stroke='currentColor' stroke-opacity='.14' stroke-width='.5'/>"


def _region(place: _Place, ranges: Sequence[Sequence[int]], write: bool) -> str:
    """The elements of one access: runs of flat numbers, cut at the ends of rows."""
    path = ""
    for first, count in ranges:
        at, left = first, count
        while left > 0:
            row, column = divmod(at, place.columns)
            length = min(left, place.columns - column)
            wide = max(length * place.wide, 1.5)
            corner = f"{place.x + column * place.wide:.1f} {place.y + row * place.high:.1f}"
            path += f"M{corner}h{wide:.1f}v{place.high:.1f}h{-wide:.1f}z"
            at, left = at + length, left - length
    edge = f" stroke='{ORANGE}' stroke-width='1.4'" if write else ""
    return f"<path d='{path}' fill='{ORANGE if write else BLUE}' fill-opacity='{0.35 if write else 0.75}'{edge}/>"


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
