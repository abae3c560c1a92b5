"""What the readers of lowered sources find, and the text of the sketch that it makes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod

#: a reading has so many ways to see its outputs at most
_MOST_VIEWS = 48


@dataclass
class Line:
    """A statement of the sketch: its text, and how many loops and tests hold it."""

    text: str
    depth: int
    hints: tuple[str, ...] = ()


@dataclass
class Body:
    """One kernel: its name, its statements, and the names of its parameters."""

    name: str
    parameters: tuple[str, ...]
    lines: list[Line] = field(default_factory=list)
    #: tunables that its launch takes without naming them in a statement
    launch: tuple[str, ...] = ()

    @property
    def words(self) -> set[str]:
        return names_in(" ".join(" ".join([*line.hints, line.text]) for line in self.lines))


@dataclass
class Host:
    """What the host function says: shapes (as text) and dtypes of tensors, and every constant."""

    symbols: list[str] = field(default_factory=list)
    shapes: dict[str, list[str]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    #: outputs and tensors between kernels
    made: list[str] = field(default_factory=list)
    #: arguments that a kernel changes in a copy
    changed: list[str] = field(default_factory=list)
    #: constant -> "value" or "value in {...}"
    constants: dict[str, str] = field(default_factory=dict)

    def role(self, name: str) -> str:
        if name in self.made:
            return " out" if name in self.outputs else " temp"
        return " inout" if name in self.changed else ""


def sketches(bodies: list[Body], host: Host) -> Iterator[str]:
    """The sketch's text, once for each way to see the outputs: the host makes them in the caller's shape."""
    # a kernel may see a tensor in another shape than the one before it
    views: list[dict[tuple[str, str], list[str]]] = [{}]
    for body in bodies:
        for name in (n for n in body.parameters if n in host.shapes):
            found = _shapes(name, body, host)
            views = [{**v, (body.name, name): shape} for v in views for shape in found][:_MOST_VIEWS]
    for chosen in views:
        own = [{n: shape for (kernel, n), shape in chosen.items() if kernel == body.name} for body in bodies]
        yield "\n\n".join(_sketch(body, host, seen) for body, seen in zip(bodies, own, strict=True)) + "\n"


def _shapes(name: str, body: Body, host: Host) -> list[list[str]]:
    shape, rank = host.shapes[name], _rank(name, body)
    if rank is None or rank == len(shape):
        return [shape]
    # a view that an input of as many elements is declared in comes first
    alike = [s for other, s in host.shapes.items() if len(s) == rank and count(s) == count(shape) and other != name]
    found = [*alike, *(_split_views(shape, rank, body, host) if rank > len(shape) else _merged_views(shape, rank))]
    return [s for n, s in enumerate(found) if s not in found[:n]]


def _rank(name: str, body: Body) -> int | None:
    """In how many dimensions the statements index a tensor."""
    for line in body.lines:
        at = re.search(rf"\b{re.escape(name)}\[", line.text)
        if at:
            return len(split(inside(line.text, at.end())))
    return None


def _merged_views(shape: list[str], rank: int) -> list[list[str]]:
    found = []
    for cuts in combinations(range(1, len(shape)), rank - 1):
        parts = [shape[a:b] for a, b in zip((0, *cuts), (*cuts, len(shape)), strict=True)]
        found.append([_product(p) for p in parts])
    return found


def _split_views(shape: list[str], rank: int, body: Body, host: Host) -> list[list[str]]:
    """Extents of 1 put in front, or one extent as a product of numbers that the kernels use."""
    found = [["1"] * (rank - len(shape)) + shape]
    if rank != len(shape) + 1:
        return found
    numbers = {n for s in host.shapes.values() for n in s if n.isdigit()}
    numbers |= {n for line in body.lines for n in re.findall(r"\b\d+\b", line.text)}
    for at, extent in reversed(list(enumerate(shape))):
        if extent.isdigit():
            parts = sorted((int(n) for n in numbers if int(n) > 1 and int(extent) % int(n) == 0), reverse=True)
            found += [[*shape[:at], str(n), str(int(extent) // n), *shape[at + 1 :]] for n in parts]
    return found


def _product(parts: list[str]) -> str:
    if all(p.isdigit() for p in parts):
        return str(prod(map(int, parts)))
    return " * ".join(p if re.fullmatch(r"\w+", p) else f"({p})" for p in parts)


def _sketch(body: Body, host: Host, views: Mapping[str, list[str]]) -> str:
    tensors, words = [], body.words
    for name in body.parameters:
        if name not in host.shapes or name not in words:  # a number, or a size
            continue
        shape = views.get(name, host.shapes[name]) or ["1"]
        tensors.append(f"{name}[{', '.join(shape)}]: {host.dtypes[name]}{host.role(name)};")
    words |= names_in(" ".join(tensors))
    places = {name: n for n, name in enumerate(body.parameters)}
    symbols = sorted((s for s in host.symbols if s in words), key=lambda s: places.get(s, -1))
    used = [n for n in host.constants if n not in host.symbols and (n in words or n in body.launch)]
    # numbers that a caller gives are parameters of the kernel too, in the order of their declaration
    used.sort(key=lambda n: places.get(n, -1) if host.constants[n].partition(" in ")[2] == "" else len(places))
    constants = [f"{n} = {host.constants[n]};" for n in used]
    text = [f"sketch {body.name} {{"]
    if symbols:
        text.append(f"    symbols: {', '.join(symbols)};")
    text.append(f"    tensors: {' '.join(tensors)}")
    if constants:
        text.append(f"    constexpr: {' '.join(constants)}")
    text.append("")
    for line in body.lines:
        indent = "    " * (line.depth + 1)
        text += [f"{indent}@llm_hint({hint})" for hint in line.hints]
        text.append(indent + line.text)
    return "\n".join([*text, "}"])


def grid_hints(loops: Sequence[Line], swizzle: str = "") -> None:
    """Marks the parallel loops of a GPU's kernel, outermost first; the last may be walked in groups."""
    axes = {1: ("",), 2: (".y", ".x"), 3: (".z", ".y", ".x")}.get(len(loops), ("",) * len(loops))
    for line, axis in zip(loops, axes, strict=True):
        last = f', "swizzle", {swizzle}' if swizzle and line is loops[-1] else ""
        line.hints = (f'"parallel", "grididx{axis}"{last}', *line.hints)


# -- text ---------------------------------------------------------------------------------------------------------


def names_in(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def count(shape: Sequence[str]) -> int | None:
    """Elements of a shape of numbers."""
    return prod(map(int, shape)) if all(extent.isdigit() for extent in shape) else None


def closes(text: str) -> int:
    """Where the bracket that ``text`` starts with is closed, its length where it is not."""
    depth = 0
    for n, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0:
            return n
    return len(text)


def inside(text: str, start: int) -> str:
    """What the bracket just before ``start`` holds."""
    return text[start : start - 1 + closes(text[start - 1 :])]


def split(text: str) -> list[str]:
    """Parts between commas that no bracket holds."""
    parts, depth, last = [], 0, 0
    for n, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[last:n].strip())
            last = n + 1
    return [*parts, text[last:].strip()]
