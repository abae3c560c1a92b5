"""Reads the sketch that a lowered C++ source was written from."""

from __future__ import annotations

import re

from kernellab.errors import LoweringError
from kernellab.lowering.lift import Body, Host, Line, constant, dtype, extents
from kernellab.records import Source

_COMMENT = re.compile(r"^(?P<code>.*?)\s*// (?P<number>\d+): (?P<text>.+)$")
_KERNEL = re.compile(r"^static void (\w+)\((.*)\) \{$")
_START = r"kl::inside\((?P<{0}_size>\w+), (?P<{0}>\w+), (?P<{0}_tile>\w+)\)"
_INSIDE = re.compile(
    rf"kl::matrix\((?P<tensor>\w+) \+ [^,]+, \w+, (?P<right>\w+), {_START.format('row')}, {_START.format('col')}\)"
)
_EXACT = re.compile(
    r"kl::matrix\((?P<tensor>\w+) \+ (?P<outer>\w+) \* \w+ \+ (?P<inner>\w+), \w+, (?P<right>\w+), "
    r"(?P<row_tile>\w+), (?P<col_tile>\w+)\)"
)
_AXIS = r"\{{(?P<{0}>\w+), (?P<{0}_tile>\w+), 1, \w+, (?P<{0}_step>\w+)\}}"
_WINDOW = re.compile(
    rf"kl::window\((?P<tensor>\w+), true, {_AXIS.format('row')}, \{{[^}}]*\}}, {_AXIS.format('col')}\)"
)
_REMEDY = "Lift its sketch by a model, or write it by hand."


def read(source: Source) -> tuple[list[Body], Host]:
    """Raises LoweringError: a file is missing, or a product's operands are read in a way that has no reading back."""
    if "kernel.cpp" not in source.files:
        raise LoweringError("The source has no kernel.cpp.", "Name the folder that a lowering wrote.")
    lines = source.files["kernel.cpp"].split("\n")
    host = _host(source.files[source.entry_file], lines)
    bodies = []
    for n, line in enumerate(lines):
        kernel = _KERNEL.match(line)
        if kernel:
            end = next(k for k in range(n, len(lines)) if lines[k] == "}")
            parameters = tuple(re.findall(r"(\w+)(?:,|$)", kernel[2]))
            bodies.append(_body(kernel[1], parameters, lines[n + 1 : end], host))
    return bodies, host


def _body(name: str, parameters: tuple[str, ...], lines: list[str], host: Host) -> Body:
    """Statements in the sketch's order; each lies in the loops whose code holds it where it is first seen."""
    found: dict[float, Line] = {}
    opened: list[tuple[int, int]] = []
    depth, parallel = 0, 0
    for line in lines:
        if m := re.search(r"#pragma omp parallel for(?: collapse\((\d+)\))?", line):
            parallel = int(m[1] or 1)
        comment = _COMMENT.match(line)
        code = comment["code"] if comment else line
        while opened and code.strip().startswith("}") and opened[-1][0] >= depth:
            opened.pop()
        if comment and int(comment["number"]) not in found:
            number, text = int(comment["number"]), comment["text"]
            opens = text.startswith(("for ", "if ")) and code.rstrip().endswith("{")
            hints: tuple[str, ...] = ()
            if opens and text.startswith("for ") and parallel:
                hints, parallel = ('"parallel", "coreidx"',), parallel - 1
            found[number] = Line(text, len(opened), hints)
            if text.startswith("gemm("):
                for k, made in enumerate(_operands(code, text, host, [line.text for line in found.values()])):
                    found[number - 1 + (k + 1) / 100] = Line(made, len(opened))
                outer = found.get(opened[-1][1]) if opened else None
                if outer is not None and not outer.hints:
                    outer.hints = ('"pipeline"',)
            if opens:
                opened.append((depth + 1, number))
        depth += code.count("{") - code.count("}")
        while opened and opened[-1][0] > depth:
            opened.pop()
    return Body(name, parameters, [found[k] for k in sorted(found)])


def _operands(code: str, text: str, host: Host, before: list[str]) -> list[str]:
    """The loads of a product whose operands are multiplied where they lie."""
    names = re.match(r"gemm\((\w+), (\w+), (\w+)", text)
    calls = re.split(r"(?=kl::(?:matrix|window)\()", code)[1:]
    if names is None or len(calls) != 2:
        raise LoweringError("The operands of a product are read in a way that has no reading back.", _REMEDY)
    made = (re.match(rf"{names[3]} = alloc\(\[(\w+), (\w+)\]", line) for line in before)
    rows, cols = next((m.groups() for m in made if m), ("", ""))
    inner = next(iter(m["col_tile"] for m in [_INSIDE.match(calls[0])] if m), "")
    return [*_operand(names[1], calls[0], host, rows, inner), *_operand(names[2], calls[1], host, inner, cols)]


def _operand(tile: str, call: str, host: Host, rows: str, cols: str) -> list[str]:
    """``rows`` and ``cols`` are the tile's extents where the other statements name them."""
    found = _INSIDE.match(call) or _EXACT.match(call) or _WINDOW.match(call)
    if found is None or len(host.shapes.get(found["tensor"], ())) != 2:
        raise LoweringError(f"The product reads {tile!r} through an address that has no reading back.", _REMEDY)
    part = found.groupdict()
    turned = part.get("right", part.get("col_step")) != "1"
    row = part.get("row") or part["inner" if turned else "outer"]
    col = part.get("col") or part["outer" if turned else "inner"]
    first, second = f"{row}:{row}+{rows or part['row_tile']}", f"{col}:{col}+{cols or part['col_tile']}"
    if not turned:
        return [f"load({part['tensor']}[{first}, {second}] -> {tile})"]
    loaded = tile.removesuffix("_turned") + "_tile" if tile.endswith("_turned") else f"{tile}_stored"
    return [f"load({part['tensor']}[{second}, {first}] -> {loaded})", f"{tile} = transpose({loaded}, perm=[1, 0])"]


def _host(python: str, cpp: list[str]) -> Host:
    host = Host([], {}, {}, [], [], {})
    for line in cpp:
        if m := re.match(r"constexpr int64_t (\w+) = (-?\d+);(?:  // (.*))?$", line):
            host.constants[m[1]] = constant(m[2], m[3] or "")
    start = re.search(r"^def kernel\((.*)\):$", python, re.MULTILINE)
    if start is None:
        raise LoweringError("The source has no function 'kernel'.", "Name the folder that a lowering wrote.")
    for name, value in re.findall(r"(\w+)=([^,)]+)", start[1]):
        host.constants.setdefault(name, value)
    for line in python[start.end() :].split("\n")[1:]:
        if line and not line.startswith(" "):
            break
        code = line.strip()
        if m := re.match(r"(\w+) = _tensor\(\w+, '\w+', torch\.(\w+)\)", code):
            host.dtypes[m[1]] = dtype(m[2])
        elif m := re.match(r"(\w+) = \w+\.shape\[\d+\]", code):
            host.symbols.append(m[1])
        elif m := re.match(r"_fits\((\w+), '\w+', (\(.*?\))(?:, view=True)?\)$", code):
            host.shapes[m[1]] = extents(m[2])
        elif m := re.match(r"(\w+) = torch\.(?:empty|zeros)\((\(.*?\)), dtype=torch\.(\w+)", code):
            host.made.append(m[1])
            host.shapes[m[1]], host.dtypes[m[1]] = extents(m[2]), dtype(m[3])
        elif m := re.match(r"return (.+)$", code):
            host.outputs = [part.strip() for part in m[1].strip("()").split(",") if part.strip()]
    return host
