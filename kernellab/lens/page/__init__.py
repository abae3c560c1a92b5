"""A lens as one self-contained HTML page: source and level side by side, linked both ways."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import Any

from kernellab.lens.difference import SOURCE, difference
from kernellab.lens.records import Lens


def page(title: str, lenses: Sequence[Lens], names: Sequence[str] = (), theme: str = "") -> str:
    """Return the HTML of one lens, or of two and their difference at each level that both have.

    ``theme`` is light or dark; "" follows JupyterLab's, elsewhere the system's.
    """
    here = files(__package__)
    data = {
        "lenses": [as_data(lens) for lens in lenses],
        "names": list(names),
        "theme": theme,
        "differences": [asdict(one) for one in _differences(lenses, names)],
    }
    texts = {name: (here / f"page.{name}").read_text(encoding="utf-8") for name in ("html", "css", "js")}
    # the inserted text may contain braces, and must not end the script
    embedded = json.dumps(data).replace("<", "\\u003c")
    html = texts["html"].replace("{title}", escape(title)).replace("{css}", texts["css"])
    before, _, after = html.partition("{data}")
    return f"{before}{embedded}{after.replace('{js}', texts['js'])}"


def framed(html: str, height: int = 620) -> str:
    """Return the page inside a cell's output."""
    return (
        f'<iframe title="lowering lens" srcdoc="{escape(html, quote=True)}" '
        f'style="width:100%;height:{height}px;border:1px solid var(--jp-border-color2,#ccc)"></iframe>'
    )


def as_text(lens: Lens) -> str:
    """Return the facts and the levels' sizes as lines of text."""
    width = max((len(fact.name) for fact in lens.facts), default=0)
    lines = [f"{lens.file}: {lens.target}"]
    for one in lens.levels:
        lines.append(f"  {one.name:8}{one.text.count(chr(10)) + 1:6} lines, {len(one.up)} of them linked: {one.title}")
    kernel = ""
    for fact in lens.facts:
        if fact.kernel != kernel:
            kernel = fact.kernel
            lines.append(kernel)
        lines.append(f"  {fact.name:{width}}  {fact.value:>15}  {fact.sentence}")
    return "\n".join(lines)


def as_data(lens: Lens) -> dict[str, Any]:
    """Return the lens as data for JSON; links are [line of the source, line of the level]."""
    return {
        "file": lens.file,
        "text": lens.text,
        "target": lens.target,
        "levels": [
            {
                "name": one.name, "title": one.title, "language": one.language, "text": one.text,
                "links": [[link.source, link.level] for link in one.lines],
            }
            for one in lens.levels
        ],
        "facts": [asdict(fact) for fact in lens.facts],
        "notes": list(lens.notes),
    }  # fmt: skip


def _differences(lenses: Sequence[Lens], names: Sequence[str]) -> list[Any]:
    if len(lenses) != 2:
        return []
    a, b = lenses
    both = [SOURCE, *(name for name in a.names if name in b.names)]
    return [difference(a, b, name, (names[0], names[1])) for name in both]
