"""What a word of a sketch means: ``Hover`` of the protocol."""

from __future__ import annotations

from kernellab.notebook.answers import Hover
from kernellab.notebook.language.place import Word, before, names_in_sight, open_string, word_at
from kernellab.notebook.views.facts import Facts
from kernellab.operations.sketch import OPS, OpKind
from kernellab.records import Diagnostic
from kernellab.sketch.check import check
from kernellab.sketch.program.program import Alloc, Assign, Load, Loop, MultiAssign, Program, Tile
from kernellab.sketch.program.walk import statements
from kernellab.sketch.resolve import CHIP_FACTS
from kernellab.sketch.syntax.docs import DTYPES, HINTS, KEYWORDS, PRECISIONS, operations, sentence, signature


def hover(text: str, line: int, col: int, facts: Facts) -> Hover | None:
    """The diagnostic at the place, and what the word there means; None where there is nothing to say."""
    word = word_at(text, line, col)
    checked = check(text, chip=facts.chip)
    faults = [d for d in checked.diagnostics if _covers(d, line, col, word)]
    meaning = _meaning(text, line, word, checked.program or _last_program(), facts, _is_string(text, line, word))
    if checked.program is not None:
        _remember(checked.program)
    parts = [explained(d) for d in faults] + ([meaning[1]] if meaning else [])
    if not parts:
        return None
    title = f"{faults[0].severity} {faults[0].code}" if faults else meaning[0] if meaning else ""
    start, end = (word.start, word.end) if word else (col, col + 1)
    if faults and meaning:
        parts.insert(len(faults), meaning[0])
    return {"title": title, "text": "\n".join(filter(None, parts)), "from": (line, start), "to": (line, end)}


def explained(diagnostic: Diagnostic) -> str:
    """A diagnostic in full: what, how to fix it, and the rule's word."""
    return "\n".join(filter(None, [diagnostic.message, diagnostic.remedy, f"({diagnostic.code} {diagnostic.rule})"]))


def _covers(diagnostic: Diagnostic, line: int, col: int, word: Word | None) -> bool:
    if not diagnostic.line <= line <= (diagnostic.end_line or diagnostic.line):
        return False
    if diagnostic.line != (diagnostic.end_line or diagnostic.line):
        return True
    end = diagnostic.end_col or (word.end if word and word.start <= diagnostic.col < word.end else diagnostic.col + 1)
    return diagnostic.col <= col < max(end, diagnostic.col + 1)


def _is_string(text: str, line: int, word: Word | None) -> bool:
    return word is not None and open_string(before(text, line, word.start)) is not None


def _meaning(
    text: str, line: int, word: Word | None, program: Program | None, facts: Facts, quoted: bool
) -> tuple[str, str] | None:
    """A title and a text."""
    if word is None:
        return None
    name = word.text
    if quoted:
        explanation = HINTS.get(name) or PRECISIONS.get(name)
        return (f'"{name}"', explanation) if explanation else None
    in_sight = next((n for n in names_in_sight(text, line, own=True) if n.text == name), None)
    if in_sight is not None:
        return _named(name, in_sight.kind, line, program, facts)
    if name in OPS or name in operations():
        return signature(name), _operation(name)
    if name in DTYPES:
        return name, DTYPES[name]
    if name in KEYWORDS:
        return name, KEYWORDS[name]
    if name in CHIP_FACTS:
        value = getattr(facts.chip, name, None) if facts.chip else None
        return name, "a fact of the chip" + (f": {value:,} here" if value else "")
    return None


def _operation(name: str) -> str:
    op = OPS.get(name)
    lines = [sentence(name)]
    if op is not None:
        if op.flops:
            lines.append(f"{op.flops:g} FLOP an element")
        if op.identity is not None and op.kind in (OpKind.REDUCE, OpKind.SCAN):
            lines.append(f"identity {op.identity:g}: a padded tile should be loaded with pad={op.identity:g}")
    return "\n".join(lines)


def _named(name: str, kind: str, line: int, program: Program | None, facts: Facts) -> tuple[str, str]:
    plain = f"{kind} {name}"
    if program is None:
        return plain, ""
    if kind == "symbol":
        size = (facts.sizes(program) or {}).get(name)
        return plain, "a size that the call's tensors give" + (f"; {size:,} in the task's own inputs" if size else "")
    for tensor in program.tensors:
        if tensor.name == name:
            shape = ", ".join(map(str, tensor.shape))
            return f"{name}[{shape}]: {tensor.dtype.value} {tensor.role.value}", "a tensor in global memory"
    for constant in program.constexprs:
        if constant.name == name:
            value = (
                "no value here: the task or the target gives it" if constant.value is None else f"= {constant.value}"
            )
            choices = f"one of {', '.join(map(str, constant.choices))}: tunable" if constant.choices else ""
            return f"constexpr {name}", "; ".join(filter(None, [value, choices]))
    loop = _loop(program, name, line)
    if loop is not None:
        return f"index {name}", f"range({loop.start}, {loop.stop}, {loop.step}), line {loop.span.line}; {_hints(loop)}"
    declared = _tile(program, name, line)
    if declared is not None:
        tile, at = declared
        shape = ", ".join(map(str, tile.shape))
        hints = f"; {', '.join(tile.hints)}" if tile.hints else ""
        return f"{name}[{shape}]: {tile.dtype.value}", f"a tile, made at line {at}{hints}{_bytes(tile, program, facts)}"
    return plain, ""


def _hints(loop: Loop) -> str:
    return "parallel" if loop.hints.parallel else "sequential"


def _loop(program: Program, name: str, line: int) -> Loop | None:
    nearest = None
    for kernel in program.kernels:
        for stmt in statements(kernel.body):
            if isinstance(stmt, Loop) and stmt.var == name and stmt.span.line <= line:
                nearest = stmt
    return nearest


def _tile(program: Program, name: str, line: int) -> tuple[Tile, int] | None:
    """The tile of that name that is in force at ``line``, and where it was made."""
    nearest: tuple[Tile, int] | None = None
    for kernel in program.kernels:
        for stmt in statements(kernel.body):
            for tile in _made(stmt):
                if tile.name == name and stmt.span.line <= line:
                    nearest = tile, stmt.span.line
    return nearest


def _made(stmt: object) -> list[Tile]:
    if isinstance(stmt, Alloc):
        return [stmt.tile]
    if isinstance(stmt, (Load, Assign)):
        return [stmt.tile] if stmt.declares else []
    if isinstance(stmt, MultiAssign):
        return [tile for tile, new in zip(stmt.tiles, stmt.declares, strict=True) if new]
    return []


def _bytes(tile: Tile, program: Program, facts: Facts) -> str:
    sizes = facts.sizes(program)
    if sizes is None:
        return ""
    values: dict[str, int] = {c.name: int(c.value) for c in program.constexprs if c.value is not None and c.is_extent}
    try:
        count = tile.dtype.bytes
        for extent in tile.shape:
            count *= extent.evaluate({**values, **sizes})
    except KeyError:
        return ""
    return f"; {count:,} bytes"


_last: list[Program] = []


def _remember(program: Program) -> None:
    _last[:] = [program]


def _last_program() -> Program | None:
    """The text was right a moment ago: its names mean what they meant."""
    return _last[0] if _last else None
