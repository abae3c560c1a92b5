"""Reads the host function of a lowered source: what it checks, makes and returns declares the sketch's names."""

from __future__ import annotations

import ast
import re

from kernellab.errors import LoweringError
from kernellab.lowering.lift.text import Host, split
from kernellab.records import Source
from kernellab.sketch.program.program import DType

_DTYPES = {d.torch_name: d.value for d in DType}
_NUMBER = r"-?[\d.]+(?:e[-+]?\d+)?"


def read_host(source: Source) -> Host:
    """Raises LoweringError: the source has no host function, or one that says a dtype unknown to the language."""
    python = source.files.get(source.entry_file, "")
    start = re.search(rf"^def {re.escape(source.entry)}\((.*)\):$", python, re.MULTILINE)
    if start is None:
        raise LoweringError(
            f"The source has no function {source.entry!r}.", "Name the folder that a lowering wrote, or its file."
        )
    host = Host()
    #: what the host function calls a tensor -> what the kernel does
    kernel_names = _kernel_names(python, source.files.get("kernel.cpp", ""))
    _constants(source.files.get("kernel.cpp", ""), host)
    for line in python[start.end() :].split("\n")[1:]:
        if line and not line.startswith(" "):
            break
        code, _, comment = line.strip().partition("  # ")
        _line(code, comment, host)
    for name, value in (part.split("=", 1) for part in split(start[1]) if "=" in part):
        host.constants.setdefault(name.strip(), value.strip())
    return _renamed(host, kernel_names)


def _line(code: str, comment: str, host: Host) -> None:
    if m := re.match(r"if (\w+)\.dtype != torch\.(\w+):$", code):
        host.dtypes[m[1]] = _dtype(m[2])
    elif m := re.match(r"(\w+) = _tensor\(\w+(?:\.movedim\(1, -1\))?, '[^']*', torch\.(\w+)\)(\.clone\(\))?$", code):
        host.dtypes[m[1]] = _dtype(m[2])
        host.changed += [m[1]] if m[3] else []
    elif m := re.match(r"(\w+) = \w+\.(?:movedim\(-1, 1\)\.)?shape\[\d+\]$", code):
        host.symbols.append(m[1])
    elif (m := re.search(r'f"(\w+) must hold (\[.*\]) elements', code)) or (
        m := re.match(r"_fits\((\w+), '[^']*', (\(.*\)?\))(?:, view=True)?\)$", code)
    ):
        host.shapes[m[1]] = _extents(m[2])
    elif m := re.match(r"(\w+) = torch\.(?:empty|zeros)\((.*), dtype=torch\.(\w+)", code):
        host.made.append(m[1])
        host.shapes[m[1]] = _sizes(m[2])
        host.dtypes[m[1]] = _dtype(m[3])
    elif m := re.match(r"(\w+) = (\w+)(?:\.movedim\(1, -1\))?\.(contiguous|clone)\(", code):
        if m[2] in host.shapes:
            host.shapes[m[1]], host.dtypes[m[1]] = host.shapes.pop(m[2]), host.dtypes.pop(m[2])
        host.changed += [m[1]] if m[3] == "clone" else []
    elif m := re.match(rf"([A-Za-z_]\w*) = ({_NUMBER}|float\(\"-?inf\"\))$", code):
        # kernel.cpp, read before, names the choices
        host.constants.setdefault(m[1], _constant(m[2], comment))
    elif m := re.match(r"return (.+)$", code):
        host.outputs = [part.partition(".")[0] for part in split(m[1].strip("()")) if part]


def _constants(cpp: str, host: Host) -> None:
    for name, value, comment in re.findall(
        rf"^constexpr (?:int64_t|double) (\w+) = ({_NUMBER});(?:  // (.*))?$", cpp, re.M
    ):
        host.constants[name] = _constant(value, comment)


def _kernel_names(python: str, cpp: str) -> dict[str, str]:
    """C++ is called by addresses in order: host names are those of the call, kernel names those of the pointers."""
    call = re.search(r"^    _kernel\((.*)\)$", python, re.MULTILINE)
    given = re.findall(r"(\w+)\.data_ptr\(\)", call[1]) if call else []
    named = re.findall(r"auto\* const (\w+) = args\.pointer", cpp)
    return {ours: theirs for ours, theirs in zip(given, named, strict=False) if ours != theirs}


def _renamed(host: Host, names: dict[str, str]) -> Host:
    if not names:
        return host

    def of(name: str) -> str:
        return names.get(name, name)

    return Host(
        symbols=host.symbols,
        shapes={of(n): s for n, s in host.shapes.items()},
        dtypes={of(n): d for n, d in host.dtypes.items()},
        outputs=[of(n) for n in host.outputs],
        made=[of(n) for n in host.made],
        changed=[of(n) for n in host.changed],
        constants=host.constants,
    )


def _dtype(word: str) -> str:
    if word not in _DTYPES:
        raise LoweringError(f"The source has the dtype torch.{word}, which sketches lack.", "Undo the edit.")
    return _DTYPES[word]


def _constant(value: str, comment: str) -> str:
    """``value`` with the choices that a comment names; a value that a person has set is one more."""
    named = re.search(r"(?:one of|the sketch takes) ([^\n]+)", comment)
    value = value.removeprefix('float("').removesuffix('")')
    choices = split(named[1]) if named else []
    return f"{value} in {{{', '.join(choices if value in choices else [value, *choices])}}}" if choices else value


def _extents(text: str) -> list[str]:
    """``(M, N)`` or ``[M, N]`` of host code as extents of the language."""
    return [_extent(part) for part in split(text.strip()[1:-1]) if part]


def _sizes(text: str) -> list[str]:
    """Arguments of ``torch.empty``: sizes one by one, or one tuple of them."""
    try:
        call = ast.parse(f"sizes({text})", mode="eval").body
    except SyntaxError:
        return [text]
    given = call.args if isinstance(call, ast.Call) else []
    if len(given) == 1 and isinstance(given[0], ast.Tuple):
        given = given[0].elts
    return [_extent(ast.unparse(size)) for size in given]


class _Spelled(ast.NodeTransformer):
    """Ceiling division as the language writes it: of Triton's host, and of Python's floor division turned round."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if ast.unparse(node.func) == "triton.cdiv":
            node.func = ast.Name("ceil")
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        floor = node.operand
        if isinstance(node.op, ast.USub) and isinstance(floor, ast.BinOp) and isinstance(floor.op, ast.FloorDiv):
            inner = floor.left
            if isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.USub):
                return ast.Call(ast.Name("ceil"), [inner.operand, floor.right], [])
        return node


def _extent(text: str) -> str:
    try:
        return ast.unparse(_Spelled().visit(ast.parse(text, mode="eval").body))
    except SyntaxError:
        return text
