"""The checker: from text to diagnostics and, if there is no error, the resolved program."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernellab.errors import SketchError
from kernellab.records import Author, Diagnostic
from kernellab.sketch.check.memory import check_memory
from kernellab.sketch.check.unused import unused_names
from kernellab.sketch.check.values import check_values
from kernellab.sketch.program import affine
from kernellab.sketch.program.alive import declared_tiles, most_alive
from kernellab.sketch.program.ints import IntExpr, product
from kernellab.sketch.program.program import If, Loop, Program, Statement, Tile
from kernellab.sketch.program.walk import endless_loop
from kernellab.sketch.resolve import Readings, resolve
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.messages import diagnostic, nearest
from kernellab.sketch.syntax.parse import parse_with_faults, too_deep
from kernellab.sketch.syntax.pins import check_pins
from kernellab.sketch.syntax.printer import format
from kernellab.sketch.syntax.tree import Span
from kernellab.sketch.syntax.words import DECLARATIONS
from kernellab.target import Chip

_LOCK = threading.RLock()
#: chosen, not measured
_CACHED_TEXTS = 64


@dataclass(frozen=True)
class CheckResult:
    """``program`` is None when a diagnostic is an error."""

    diagnostics: tuple[Diagnostic, ...]
    program: Program | None

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that are errors."""
        return tuple(d for d in self.diagnostics if d.severity == "error")

    @property
    def ok(self) -> bool:
        """Is there a program? Warnings do not prevent it."""
        return self.program is not None


#: results for the latest texts, and resolved expressions: both by content, so that they stay valid
_checked: OrderedDict[str, CheckResult] = OrderedDict()
#: results of the memory checks, by constexprs: a search repeats them, and they may run the sketch at small sizes
_accesses: OrderedDict[tuple[str, tuple[tuple[str, int | float], ...]], list[Diagnostic]] = OrderedDict()
_readings = Readings()


def check(
    source: str | tree.SketchFile,
    *,
    chip: Chip | None = None,
    constexpr: Mapping[str, int | float] | None = None,
    parent: str | None = None,
) -> CheckResult:
    """Return everything that is known about ``source`` without running it. Does not raise for an invalid text.

    ``chip`` limits the footprint, ``constexpr`` overrides default values, ``parent`` is the text whose pins and
    constraints an agent's revision must keep."""
    text = source if isinstance(source, str) else format(source)
    try:
        return _everything(text, chip, dict(constexpr or {}), parent)
    except RecursionError:
        return CheckResult((too_deep(text),), None)


def load_program(text: str, *, constexpr: Mapping[str, int | float] | None = None) -> Program:
    """Return the resolved program of ``text``. Raises SketchError with the diagnostics if the sketch has errors."""
    result = check(text, constexpr=constexpr)
    if result.program is None:
        first = result.errors[0]
        raise SketchError(f"Line {first.line}: {first.message}", first.remedy, result.diagnostics)
    return result.program


def _everything(text: str, chip: Chip | None, constexpr: dict[str, int | float], parent: str | None) -> CheckResult:
    with _LOCK:
        result = _check(text)
        if result.program is not None:
            result = _against(text, result, chip, constexpr)
        if parent is not None:
            breaches = [d for d in check_pins(parent, text, Author.MODEL) if d not in result.diagnostics]
            result = _result((*result.diagnostics, *breaches), result.program)
    return result


def _result(diagnostics: Iterable[Diagnostic], program: Program | None) -> CheckResult:
    ordered = tuple(sorted(diagnostics, key=lambda d: (d.line, d.col)))
    has_errors = any(d.severity == "error" for d in ordered)
    return CheckResult(ordered, None if has_errors else program)


def _check(text: str) -> CheckResult:
    """Return the result of the checks of the text alone, from a cache for the latest texts."""
    cached = _checked.get(text)
    if cached is not None:
        _checked.move_to_end(text)
        return cached
    result = _read(text)
    _checked[text] = result
    if len(_checked) > _CACHED_TEXTS:
        _checked.popitem(last=False)
    return result


def _read(text: str) -> CheckResult:
    """Return the diagnostics of the text; an error does not hide those that are independent of it."""
    file, faults = parse_with_faults(text)
    if file is None:
        return CheckResult(tuple(faults), None)
    program, diagnostics = resolve(file, text, _readings)
    if faults:
        return _result((*faults, *outside_unread(text, faults, diagnostics)), None)
    result = _result(diagnostics, program)
    if not result.ok:
        return _result((*diagnostics, *of_resolved_statements(program)), None)
    # if a use of a name is misspelt, the correct name would be reported as unused
    return _result((*diagnostics, *unused_names(file)), program)


def _against(text: str, result: CheckResult, chip: Chip | None, constexpr: dict[str, int | float]) -> CheckResult:
    """Return the checks that depend on values: of constexprs, and of the chip."""
    program = result.program
    assert program is not None
    names = {c.name for c in program.constexprs}
    values = {c.name: c.value for c in program.constexprs if c.value is not None}
    values |= {name: value for name, value in constexpr.items() if name in names}
    unfit = [(c.span, reason) for c in program.constexprs if c.name in values and (reason := c.unfit(values[c.name]))]
    if not unfit and (loop := endless_loop(program, values)) is not None:
        unfit = [(loop.span, f"The step of the loop over {loop.var} is not above 0.")]
    if unfit:
        remedy = "Give its constexpr another value."
        refusals = [diagnostic("constexpr-value", s.line, s.col, what=reason, remedy=remedy) for s, reason in unfit]
        return _result((*result.diagnostics, *refusals), program)
    more = [
        *_memory(text, program, values),
        *check_values(program, values),
        *check_limits(program, values, chip),
    ]
    return _result((*result.diagnostics, *more), program)


def _memory(text: str, program: Program, values: Mapping[str, int | float]) -> list[Diagnostic]:
    key = (text, tuple(values.items()))
    if key not in _accesses:
        _accesses[key] = check_memory(program, values)
        if len(_accesses) > _CACHED_TEXTS:
            _accesses.popitem(last=False)
    return _accesses[key]


# -- limits ------------------------------------------------------------------------------------------------------------


def check_limits(program: Program, constexpr: Mapping[str, int | float], chip: Chip | None) -> list[Diagnostic]:
    """Return diagnostics of broken constraints, and of kernels whose tiles do not fit on ``chip``."""
    env: dict[str, int | float] = dict(constexpr)
    if chip is not None:
        env |= chip_facts(chip)
    broken = [d for c in program.requires if (d := _broken(c, env, program)) is not None]
    if chip is not None and chip.on_chip_bytes:
        broken += [d for k in program.kernels if (d := _footprint(k.body, k.span, constexpr, chip)) is not None]
    return broken


def chip_facts(chip: Chip) -> dict[str, int]:
    """Return the facts of ``chip`` that a constraint may name."""
    return {
        "cores": chip.cores,
        "simd_bits": chip.simd_bits,
        "l1_bytes": chip.l1_bytes,
        "l2_bytes": chip.l2_bytes,
        "l3_bytes": chip.l3_bytes,
        "shared_bytes": chip.shared_bytes,
        "on_chip_bytes": chip.on_chip_bytes,
    }


def _broken(condition: IntExpr, env: Mapping[str, int | float], program: Program) -> Diagnostic | None:
    names = sorted(condition.names())
    if any(n not in env for n in names):
        return None
    try:
        if condition.evaluate(env):  # type: ignore[arg-type]
            return None
    except ZeroDivisionError:
        pass
    spans = [c.span for c in program.constexprs if c.name in names]
    span = spans[0] if spans else program.kernels[0].span
    values = ", ".join(f"{n} is {env[n]}" for n in names)
    return diagnostic("require", span.line, span.col, what=f"'{_bare(condition)}'", values=values)


def _bare(condition: IntExpr) -> str:
    text = str(condition)
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _footprint(
    body: tuple[Statement, ...], span: Span, constexpr: Mapping[str, int | float], chip: Chip
) -> Diagnostic | None:
    env = {n: int(v) for n, v in constexpr.items()}
    total, tiles = most_alive(body, lambda tile: _bytes(tile, env))
    if total <= chip.on_chip_bytes:
        return None
    largest = max(tiles, key=lambda t: _bytes(t, env), default=None)
    names = sorted({n for t in tiles for d in t.shape for n in d.names()}) or ["the tiles"]
    place = span if largest is None else _declared_at(body, largest) or span
    return diagnostic(
        "footprint", place.line, place.col, bytes=f"{total:,}", chip=chip.name, limit=f"{chip.on_chip_bytes:,}",
        names=", ".join(names),
    )  # fmt: skip


def _bytes(tile: Tile, env: Mapping[str, int]) -> int:
    """Return the bytes of ``tile``; 0 if its extent depends on a symbol, whose size is unknown here."""
    try:
        return affine.simplify(product(tile.shape)).evaluate(env) * tile.dtype.bytes
    except KeyError:
        return 0


def _declared_at(body: tuple[Statement, ...], tile: Tile) -> Span | None:
    for stmt in body:
        if isinstance(stmt, Loop):
            inner = _declared_at(stmt.body, tile)
        elif isinstance(stmt, If):
            inner = _declared_at(stmt.then, tile) or _declared_at(stmt.orelse, tile)
        else:
            inner = stmt.span if tile in declared_tiles(stmt) else None
        if inner is not None:
            return inner
    return None


# -- texts with errors ------------------------------------------------------------------------------------------------


#: rules about one statement, which are valid whatever the unreadable lines contain
_OF_A_STATEMENT = frozenset((
    "unknown-name", "unknown-operation", "unknown-dtype", "unknown-hint", "unknown-role", "declared-twice",
    "constexpr-value", "arguments", "shape-mismatch", "rank", "axis", "dtype", "gemm-assign", "tensor-as-value",
    "tile-logic", "tile-index", "not-index", "not-index-condition",
))  # fmt: skip
#: rules about a whole sketch, which a missing statement may satisfy
_OF_A_SKETCH = frozenset(("not-covered", "unused-output"))

#: what a line writes, also where it cannot be read: an assignment, a move, an item, a loop variable
_WRITES = (
    re.compile(r"^\s*([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*=(?!=)"),
    re.compile(r"->\s*([A-Za-z_]\w*)"),
    re.compile(r"^\s*([A-Za-z_]\w*)\s*\[[^\]]*\]\s*=(?!=)"),
    re.compile(r"^\s*for\s+([A-Za-z_]\w*)"),
)
_WORD = re.compile(r"[A-Za-z_]\w*")
#: a declaration, also where its first word is misspelt or its colon is missing
_DECLARES = re.compile(r"\s*([A-Za-z]\w*)(?:\s*:|\s+(?=[A-Za-z_]))(.*)", re.DOTALL)


def outside_unread(text: str, unread: Sequence[Diagnostic], diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return those of ``diagnostics`` that are valid whatever the lines of ``unread`` were meant to be."""
    lines = text.split("\n")
    unread_lines = {d.line for d in unread}
    missing = {name for number in unread_lines for name in _written(_line(lines, number))}
    return [
        d
        for d in diagnostics
        if d.rule in _OF_A_STATEMENT
        and d.line not in unread_lines
        and not missing & set(_WORD.findall(_line(lines, d.line)))
    ]


def of_resolved_statements(program: Program) -> list[Diagnostic]:
    """Return the diagnostics of the statements of ``program`` that could be resolved."""
    values = {c.name: c.value for c in program.constexprs if c.value is not None}
    diagnostics = [*check_memory(program, values), *check_values(program, values)]
    return [d for d in diagnostics if d.rule not in _OF_A_SKETCH]


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1] if 1 <= number <= len(lines) else ""


def _written(line: str) -> set[str]:
    """Return the names that a line declares or writes, from its text alone."""
    declared = _DECLARES.match(line)
    kind = declared and nearest(declared[1].lower(), DECLARATIONS)
    if declared and kind and kind.known != "require":
        return set(_WORD.findall(declared[2]))
    return {name for pattern in _WRITES for group in pattern.findall(line) for name in _WORD.findall(group)}
