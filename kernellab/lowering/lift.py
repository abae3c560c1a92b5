"""From a source that a lowering wrote back to its sketch: migration between DSLs without a model.

The lowering keeps every name, and each statement of the sketch in a comment beside the code that does it; loops nest
as in the code, declarations are read from the host function. What a person changed in the code itself is not seen:
the sketch gate says whether the result is right, and lowering it again whether it is the same kernel.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from kernellab.errors import LoweringError
from kernellab.records import Source

_DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
    "bool": "bool",
}  # fmt: skip
_REMEDY = "Lift it by a model (--roles designer=model --lift), or write the sketch by hand."


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
        return set(re.findall(r"[A-Za-z_]\w*", " ".join(" ".join([*line.hints, line.text]) for line in self.lines)))


@dataclass
class Host:
    """What the host function says: shapes (as text) and dtypes of tensors, and every constant."""

    symbols: list[str]
    shapes: dict[str, list[str]]
    dtypes: dict[str, str]
    outputs: list[str]
    made: list[str]
    #: constant -> "value" or "value in {...}"
    constants: dict[str, str]


def lift(source: Source) -> Iterator[str]:
    """Sketches that ``source`` may have been written from, likeliest first: views of an output can be read in several
    ways, and the first that the checker and the gate take is meant.

    Raises:
        LoweringError: no lowering of ours wrote it, or what it says does not make a sketch.
    """
    from kernellab.lowering import lift_cpp, lift_triton

    readers = {"triton": lift_triton.read, "cpp": lift_cpp.read}
    if source.dsl not in readers:
        raise LoweringError(f"A {source.dsl} source cannot be lifted by rules.", _REMEDY)
    bodies, host = readers[source.dsl](source)
    if not bodies or not any(body.lines for body in bodies):
        raise LoweringError("The source does not name the sketch that it was written from.", _REMEDY)
    yield from _texts(bodies, host)


def _texts(bodies: list[Body], host: Host) -> Iterator[str]:
    ranks = {name: _rank(name, bodies) for body in bodies for name in body.parameters if name in host.shapes}
    views: list[Mapping[str, list[str]]] = [{}]
    for name, rank in ranks.items():
        found = _views(host.shapes[name], rank)
        if rank != len(host.shapes[name]):
            # a view that an input of as many elements is declared in
            alike = [s for other, s in host.shapes.items() if len(s) == rank and _count(s) == _count(host.shapes[name])]
            found = [s for n, s in enumerate([*alike, *found]) if s not in [*alike, *found][:n]]
        views = [{**v, name: shape} for v in views for shape in found]
    for chosen in views:
        yield "\n\n".join(_sketch(body, host, chosen) for body in bodies) + "\n"


def _count(shape: list[str]) -> int | None:
    """Elements of a shape of numbers."""
    total = 1
    for extent in shape:
        if not extent.isdigit():
            return None
        total *= int(extent)
    return total


def _rank(name: str, bodies: list[Body]) -> int | None:
    """In how many dimensions the statements index a tensor."""
    for body in bodies:
        for line in body.lines:
            at = re.search(rf"\b{re.escape(name)}\[", line.text)
            if at and re.match(r"(load|store|atomic_add|gather|scatter)\(", line.text):
                return len(_split(_inside(line.text, at.end())))
    return None


def _views(shape: list[str], rank: int | None) -> list[list[str]]:
    """The ways to see a shape in ``rank`` dimensions: neighbours merged, or extents of 1 put in front."""
    if rank is None or rank == len(shape):
        return [shape]
    if rank > len(shape):
        return [["1"] * (rank - len(shape)) + shape]
    found = []
    for cuts in combinations(range(1, len(shape)), rank - 1):
        parts = [shape[a:b] for a, b in zip((0, *cuts), (*cuts, len(shape)), strict=True)]
        found.append([_product(p) for p in parts])
    return found


def _product(parts: list[str]) -> str:
    if all(p.isdigit() for p in parts):
        total = 1
        for p in parts:
            total *= int(p)
        return str(total)
    return " * ".join(p if re.fullmatch(r"\w+", p) else f"({p})" for p in parts)


def _sketch(body: Body, host: Host, views: Mapping[str, list[str]]) -> str:
    tensors, words = [], body.words
    for name in body.parameters:
        if name not in host.shapes or name not in words:  # a number, or a size
            continue
        shape = views.get(name, host.shapes[name]) or ["1"]
        role = " out" if name in host.outputs else " temp" if name in host.made else ""
        tensors.append(f"{name}[{', '.join(shape)}]: {host.dtypes[name]}{role};")
    words |= set(re.findall(r"[A-Za-z_]\w*", " ".join(tensors)))
    places = {name: n for n, name in enumerate(body.parameters)}
    symbols = sorted((s for s in host.symbols if s in words), key=lambda s: places.get(s, -1))
    used = [n for n in host.constants if n in words or n in body.launch]
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


def retarget(text: str, gpu: bool) -> str:
    """A sketch's parallel loops for the other kind of chip: the grid of a GPU, or the cores of a CPU."""
    lines = text.split("\n")
    if not gpu:
        found = [re.sub(r'"grididx(\.[xyz])?"', '"coreidx"', line) for line in lines]
        found = [re.sub(r', "swizzle"(, \w+)?|(?<="pipeline"), \w+', "", line) for line in found]
        return re.sub(r" ?num_(warps|stages) = [^;]*;", "", "\n".join(found)).replace("    constexpr:\n", "")
    starts = [n for n, line in enumerate(lines) if '"coreidx"' in line]
    groups: list[list[int]] = []
    for n in starts:
        joined = groups and not any(line.startswith("sketch ") for line in lines[groups[-1][-1] : n])
        if joined:
            groups[-1].append(n)
        else:
            groups.append([n])
    for group in groups:
        dims = {1: ("",), 2: (".y", ".x"), 3: (".z", ".y", ".x")}.get(len(group), ("",) * len(group))
        for n, dim in zip(group, dims, strict=True):
            lines[n] = lines[n].replace('"coreidx"', f'"grididx{dim}"')
    return "\n".join(lines)


# -- what both readers need


def extents(text: str) -> list[str]:
    """``(M, N)`` or ``[M, N]`` of host code as extents of the language."""
    inner = text.strip()[1:-1].strip()
    return [extent(part) for part in _split(inner) if part.strip()]


def extent(text: str) -> str:
    """Host code as the language writes it: ``triton.cdiv(a, b)`` and ``-(-a // b)`` are ``ceil(a, b)``."""
    text = text.strip().replace("triton.cdiv(", "ceil(").replace("kl::cdiv(", "ceil(")
    with contextlib.suppress(SyntaxError):
        text = ast.unparse(_Ceilings().visit(ast.parse(text, mode="eval")))
    while text.startswith("(") and _closes(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


class _Ceilings(ast.NodeTransformer):
    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), top), ast.FloorDiv(), bottom)):
                return ast.Call(ast.Name("ceil"), [top, bottom], [])
        return node


def dtype(word: str) -> str:
    return _DTYPES[word]


def constant(value: str, comment: str) -> str:
    """``value`` with the choices that a comment names."""
    choices = re.search(r"one of ([^\n]+)", comment)
    return f"{value} in {{{choices[1].strip()}}}" if choices else value


def _closes(text: str) -> int:
    depth = 0
    for n, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0:
            return n
    return len(text)


def _inside(text: str, start: int) -> str:
    return text[start : start - 1 + _closes(text[start - 1 :])]


def _split(text: str) -> list[str]:
    """Parts between commas that no bracket holds."""
    parts, depth, last = [], 0, 0
    for n, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[last:n])
            last = n + 1
    return [*parts, text[last:]]
