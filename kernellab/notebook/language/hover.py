"""What a word of a sketch means: ``Hover`` of the protocol."""

from __future__ import annotations

from typing import NamedTuple

from kernellab.notebook.answers import Hover
from kernellab.notebook.language.place import Name, Word, before, names_in_sight, open_string, word_at
from kernellab.notebook.views.facts import Facts
from kernellab.operations.sketch import OPS, OpKind
from kernellab.records import Diagnostic
from kernellab.sketch.check import check
from kernellab.sketch.program.program import Alloc, Assign, Constexpr, Load, Loop, MultiAssign, Program, Tile
from kernellab.sketch.program.walk import statements
from kernellab.sketch.resolve import CHIP_FACTS
from kernellab.sketch.syntax.docs import DTYPES, HINTS, KEYWORDS, PRECISIONS, operations, sentence, signature


class Meaning(NamedTuple):
    title: str
    text: str = ""


#: the program of the last text that could be read
_last_readable: Program | None = None


def hover(text: str, line: int, col: int, facts: Facts) -> Hover | None:
    """The diagnostic at the place, and what the word there means; None where there is nothing to say."""
    word = word_at(text, line, col)
    checked = check(text, chip=facts.chip)
    faults = [d for d in checked.diagnostics if _covers(d, line, col, word)]
    program = _program_of(checked.program)
    meaning = _meaning(text, line, word, program, facts) if word is not None else None
    if not faults and meaning is None:
        return None
    parts = [explained(fault) for fault in faults]
    if meaning is not None:
        # under a fault the meaning's title is not the hover's
        parts += [meaning.title, meaning.text] if faults else [meaning.text]
    title = f"{faults[0].severity} {faults[0].code}" if faults else meaning.title if meaning else ""
    start, end = (word.start, word.end) if word else (col, col + 1)
    return {"title": title, "text": "\n".join(filter(None, parts)), "from": (line, start), "to": (line, end)}


def _program_of(program: Program | None) -> Program | None:
    """The text's program; of a text that cannot be read, that of the last one which could: it was right a moment ago,
    and its names mean what they meant."""
    global _last_readable
    _last_readable = program or _last_readable
    return _last_readable


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


def _meaning(text: str, line: int, word: Word, program: Program | None, facts: Facts) -> Meaning | None:
    name = word.text
    if open_string(before(text, line, word.start)) is not None:
        explanation = HINTS.get(name) or PRECISIONS.get(name)
        return Meaning(f'"{name}"', explanation) if explanation else None
    in_sight = next((n for n in names_in_sight(text, line, with_own=True) if n.text == name), None)
    if in_sight is not None:
        return _declared(in_sight, line, program, facts) if program is not None else Meaning(_plain(in_sight))
    if name in OPS or name in operations():
        return Meaning(signature(name), _operation(name))
    if name in DTYPES:
        return Meaning(name, DTYPES[name])
    if name in KEYWORDS:
        return Meaning(name, KEYWORDS[name])
    if name in CHIP_FACTS:
        value = getattr(facts.chip, name, None) if facts.chip else None
        return Meaning(name, "a fact of the chip" + (f": {value:,} here" if value else ""))
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


def _declared(name: Name, line: int, program: Program, facts: Facts) -> Meaning:
    """What a name in sight stands for: a symbol, a tensor, a constexpr, a loop's index, or a tile."""
    if name.kind == "symbol":
        size = (facts.sizes(program) or {}).get(name.text)
        text = "a size that the call's tensors give" + (f"; {size:,} in the task's own inputs" if size else "")
        return Meaning(_plain(name), text)
    tensor = next((tensor for tensor in program.tensors if tensor.name == name.text), None)
    if tensor is not None:
        shape = ", ".join(map(str, tensor.shape))
        title = f"{name.text}[{shape}]: {tensor.dtype.value} {tensor.role.value}"
        return Meaning(title, "a tensor in global memory")
    constant = next((constant for constant in program.constexprs if constant.name == name.text), None)
    if constant is not None:
        return Meaning(f"constexpr {name.text}", _values(constant))
    loop = _loop(program, name.text, line)
    if loop is not None:
        text = f"range({loop.start}, {loop.stop}, {loop.step}), line {loop.span.line}; {_hints(loop)}"
        return Meaning(f"index {name.text}", text)
    made = _tile(program, name.text, line)
    if made is not None:
        tile = made.tile
        shape = ", ".join(map(str, tile.shape))
        hints = f"; {', '.join(tile.hints)}" if tile.hints else ""
        text = f"a tile, made at line {made.line}{hints}{_bytes(tile, program, facts)}"
        return Meaning(f"{name.text}[{shape}]: {tile.dtype.value}", text)
    return Meaning(_plain(name))


def _plain(name: Name) -> str:
    return f"{name.kind} {name.text}"


def _values(constant: Constexpr) -> str:
    value = "no value here: the task or the target gives it" if constant.value is None else f"= {constant.value}"
    choices = f"one of {', '.join(map(str, constant.choices))}: tunable" if constant.choices else ""
    return "; ".join(filter(None, [value, choices]))


def _hints(loop: Loop) -> str:
    return "parallel" if loop.hints.parallel else "sequential"


def _loop(program: Program, name: str, line: int) -> Loop | None:
    nearest = None
    for kernel in program.kernels:
        for stmt in statements(kernel.body):
            if isinstance(stmt, Loop) and stmt.var == name and stmt.span.line <= line:
                nearest = stmt
    return nearest


class MadeAt(NamedTuple):
    """A tile and the line of the statement that makes it."""

    tile: Tile
    line: int


def _tile(program: Program, name: str, line: int) -> MadeAt | None:
    """The tile of that name that is in force at ``line``."""
    nearest: MadeAt | None = None
    for kernel in program.kernels:
        for stmt in statements(kernel.body):
            for tile in _made(stmt):
                if tile.name == name and stmt.span.line <= line:
                    nearest = MadeAt(tile, stmt.span.line)
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
