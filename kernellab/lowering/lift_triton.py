"""Reads the sketch that a lowered Triton source was written from."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from kernellab.errors import LoweringError
from kernellab.lowering.lift import Body, Host, Line, constant, dtype, extent, extents
from kernellab.records import Source


def read(source: Source) -> tuple[list[Body], Host]:
    """Raises LoweringError: it is no Python."""
    text = source.files[source.entry_file]
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise LoweringError(f"The source has a syntax error at line {error.lineno}.", "Mend it first.") from None
    comments = {
        t.start[0]: t.string[1:].strip()
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
        if t.type == tokenize.COMMENT
    }
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    lines = text.split("\n")
    if source.entry not in functions:
        raise LoweringError(f"The source has no function {source.entry!r}.", "Name the file that a lowering wrote.")
    bodies = [_body(f, lines, comments) for name, f in functions.items() if name.endswith("_kernel")]
    host = _host(functions[source.entry], lines, comments)
    for body in bodies:
        call = next((line for line in lines if line.lstrip().startswith(f"{body.name}_kernel[")), "")
        body.launch = tuple(n for n in ("num_warps", "num_stages") if f"{n}={n}" in call)
        if "num_stages" in body.launch:
            for line, code in zip(body.lines, _codes(body, lines, comments, functions), strict=True):
                if line.text.startswith("for ") and not line.hints and "dot(" in code:
                    line.hints = ('"pipeline", num_stages',)
    return bodies, host


def _body(function: ast.FunctionDef, lines: list[str], comments: dict[int, str]) -> Body:
    end = function.end_lineno or function.lineno
    body = Body(function.name.removesuffix("_kernel"), tuple(a.arg for a in function.args.args))
    outer = 0
    grid: list[Line] = []
    for number in range(function.lineno + 1, end + 1):
        code, text = lines[number - 1], comments.get(number, "")
        depth = outer + (len(code) - len(code.lstrip()) - 4) // 4
        if code.strip() == "else:":
            body.lines.append(Line("else:", depth))
        if not text or code.lstrip().startswith("#"):
            continue
        if text.startswith("for ") and not code.lstrip().startswith(("for ", "while ")):
            grid.append(Line(text, outer))
            body.lines.append(grid[-1])
            outer += 1
            continue
        body.lines.append(Line(text, depth))
    swizzle = re.search(r"tl\.swizzle2d\(.*, (\d+)\)", "\n".join(lines[function.lineno - 1 : end]))
    dims = {1: ("",), 2: (".y", ".x"), 3: (".z", ".y", ".x")}.get(len(grid), ("",) * len(grid))
    for line, dim in zip(grid, dims, strict=True):
        last = f', "swizzle", {swizzle[1]}' if swizzle and line is grid[-1] else ""
        line.hints = (f'"parallel", "grididx{dim}"{last}',)
    return body


def _codes(body: Body, lines: list[str], comments: dict[int, str], functions: dict[str, ast.FunctionDef]) -> list[str]:
    """For each statement the code of the loop that it opens, to its end."""
    function = functions[f"{body.name}_kernel"]
    loops = {n.lineno: n for n in ast.walk(function) if isinstance(n, ast.For)}
    found, left = [], list(body.lines)
    for number in range(function.lineno + 1, (function.end_lineno or 0) + 1):
        code = lines[number - 1]
        if left and (comments.get(number, "") == left[0].text or (code.strip() == "else:" == left[0].text)):
            loop = loops.get(number)
            found.append("\n".join(lines[number - 1 : loop.end_lineno]) if loop else "")
            left.pop(0)
    return found + [""] * len(left)


def _host(function: ast.FunctionDef, lines: list[str], comments: dict[int, str]) -> Host:
    host = Host([], {}, {}, [], [], {})
    defaults = dict(
        zip(
            [a.arg for a in function.args.args][::-1],
            [ast.unparse(d) for d in function.args.defaults][::-1],
            strict=False,
        )
    )
    for number in range(function.lineno + 1, (function.end_lineno or 0) + 1):
        line = lines[number - 1]
        code = line.partition("  # ")[0].strip()
        if m := re.match(r"if (\w+)\.dtype != torch\.(\w+):", code):
            host.dtypes[m[1]] = dtype(m[2])
        elif m := re.match(r"(\w+) = \w+\.shape\[\d+\]", code):
            host.symbols.append(m[1])
        elif m := re.search(r'f"(\w+) must hold (\[.*\]) elements', code):
            host.shapes[m[1]] = extents(m[2])
        elif m := re.match(r"(\w+) = torch\.(?:empty|zeros)\((.*?), dtype=torch\.(\w+)", code):
            host.made.append(m[1])
            sizes = m[2] if m[2].startswith("(") and m[2].endswith((",)", "()")) else f"({m[2]})"
            host.shapes[m[1]], host.dtypes[m[1]] = extents(sizes), dtype(m[3])
        elif m := re.match(r"([A-Za-z_]\w*) = (-?[\d.]+(?:e-?\d+)?)$", code):
            host.constants[m[1]] = constant(m[2], comments.get(number, ""))
        elif m := re.match(r"return (.+)$", code):
            host.outputs = [extent(part) for part in m[1].strip("()").split(",") if part.strip()]
    for name, value in defaults.items():
        host.constants.setdefault(name, value)
    return host
