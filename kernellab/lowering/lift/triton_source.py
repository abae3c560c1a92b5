"""Reads the kernels of a lowered Triton source."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from kernellab.errors import LoweringError
from kernellab.lowering.lift.text import Body, Line, grid_hints
from kernellab.records import Source

#: how the loop begins in which a persistent program walks over its tiles
_PERSISTENT = "    for pid in range(tl.program_id(0)"
_STATEMENT = re.compile(r"# ((?:\w+ = |load\(|alloc\().+)$")


def read(source: Source) -> list[Body]:
    """Raises LoweringError: it is not valid Python."""
    text = source.files[source.entry_file]
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise LoweringError(
            f"Line {error.lineno} of {source.entry_file} is not valid Python.", "Fix it first."
        ) from None
    comments = {
        t.start[0]: t.string[1:].strip()
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
        if t.type == tokenize.COMMENT
    }
    lines = text.split("\n")
    bodies = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"):
            body = _body(node, lines, comments)
            call = next((line for line in lines if line.lstrip().startswith(f"{node.name}[")), "")
            body.launch = tuple(n for n in ("num_warps", "num_stages") if f"{n}={n}" in call)
            if "\n    descriptors = " in text and "tl.dot(" in "\n".join(lines[node.lineno - 1 : node.end_lineno]):
                body.launch += ("descriptors",)
            _loops(body, node, lines, comments)
            bodies.append(body)
    return bodies


def _body(function: ast.FunctionDef, lines: list[str], comments: dict[int, str]) -> Body:
    end = function.end_lineno or function.lineno
    body = Body(function.name.removesuffix("_kernel"), tuple(a.arg for a in function.args.args))
    grid: list[Line] = []
    inside = 4
    for number in range(function.lineno + 1, end + 1):
        code, text = lines[number - 1], comments.get(number, "")
        if code.startswith(_PERSISTENT):
            inside = 8
            continue
        depth = len(grid) + (len(code) - len(code.lstrip()) - inside) // 4
        if code.strip() == "else:":
            body.lines.append(Line("else:", depth))
        if not text or (code.lstrip().startswith("#") and not _STATEMENT.match(code.lstrip())):
            continue
        if text.startswith("for ") and not code.lstrip().startswith(("for ", "while ")):
            grid.append(Line(text, len(grid)))
            body.lines.append(grid[-1])
            continue
        body.lines.append(Line(text, depth))
    swizzle = re.search(r"tl\.swizzle2d\(.*, (\d+)\)", "\n".join(lines[function.lineno - 1 : end]))
    grid_hints(grid, swizzle[1] if swizzle else "")
    if inside > 4:
        grid[-1].hints += ('"persistent"',)
    return body


def _loops(body: Body, function: ast.FunctionDef, lines: list[str], comments: dict[int, str]) -> None:
    """Hints of the loops within: what their ``tl.range`` says, and that the launch sets the stages of a product's."""
    inner = [line for line in body.lines if line.text.startswith("for ") and not line.hints]
    nodes = sorted((n for n in ast.walk(function) if isinstance(n, ast.For)), key=lambda n: n.lineno)
    loops = [n for n in nodes if comments.get(n.lineno, "").startswith("for ")]
    for line, loop in zip(inner, loops, strict=False):
        head = lines[loop.lineno - 1].partition("  # ")[0]
        stages = re.search(r"\bnum_stages=(\d+)", head)
        if stages:
            line.hints += (f'"pipeline", {stages[1]}',)
        elif "num_stages" in body.launch and "dot(" in "\n".join(lines[loop.lineno - 1 : loop.end_lineno]):
            line.hints += ('"pipeline", num_stages',)
        if unroll := re.search(r"\bloop_unroll_factor=(\d+)", head):
            line.hints += (f'"unroll", {unroll[1]}',)
