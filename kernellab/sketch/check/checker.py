"""The checker: text to diagnostics and, when there is no error, the resolved program."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernellab.errors import SketchError
from kernellab.records import Author, Diagnostic
from kernellab.sketch.check.limits import check_limits
from kernellab.sketch.check.memory import check_memory
from kernellab.sketch.check.partial import beside_unread, beside_wrong
from kernellab.sketch.check.values import check_values
from kernellab.sketch.program.program import Program
from kernellab.sketch.resolve import Readings, resolve
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.parse import parse_with_faults, too_deep
from kernellab.sketch.syntax.pins import check_pins
from kernellab.sketch.syntax.printer import format
from kernellab.target import Chip

_LOCK = threading.RLock()
_CACHED_TEXTS = 64


@dataclass(frozen=True)
class CheckResult:
    """``program`` is None when a diagnostic is an error."""

    diagnostics: tuple[Diagnostic, ...]
    program: Program | None

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.diagnostics if d.severity == "error")

    @property
    def ok(self) -> bool:
        return self.program is not None


#: what was found of the texts seen last, and how expressions were read: both by content, so that they stay true
_checked: OrderedDict[str, CheckResult] = OrderedDict()
_readings = Readings()


def check(
    source: str | tree.SketchFile,
    *,
    chip: Chip | None = None,
    constexpr: Mapping[str, int | float] | None = None,
    parent: str | None = None,
) -> CheckResult:
    """Everything that can be said about ``source`` without running it. Never raises on bad text.

    ``chip`` bounds the footprint, ``constexpr`` overrides default values, ``parent`` is the text whose pins and
    constraints an agent's revision must keep.
    """
    text = source if isinstance(source, str) else format(source)
    try:
        return _everything(text, chip, dict(constexpr or {}), parent)
    except RecursionError:
        return CheckResult((too_deep(text),), None)


def load_program(
    text: str,
    *,
    chip: Chip | None = None,
    constexpr: Mapping[str, int | float] | None = None,
    parent: str | None = None,
) -> Program:
    """The resolved program of ``text``. Raises SketchError with the diagnostics when the sketch has errors."""
    result = check(text, chip=chip, constexpr=constexpr, parent=parent)
    if result.program is None:
        first = result.errors[0]
        raise SketchError(f"Line {first.line}: {first.message}", first.remedy, result.diagnostics)
    return result.program


def _everything(text: str, chip: Chip | None, constexpr: dict[str, int | float], parent: str | None) -> CheckResult:
    with _LOCK:
        found = _check(text)
        if found.program is not None:
            found = _against(found, chip, constexpr)
        if parent is not None:
            found = _result((*found.diagnostics, *check_pins(parent, text, Author.MODEL)), found.program)
    return found


def _result(diagnostics: Iterable[Diagnostic], program: Program | None) -> CheckResult:
    ordered = tuple(sorted(diagnostics, key=lambda d: (d.line, d.col)))
    bad = any(d.severity == "error" for d in ordered)
    return CheckResult(ordered, None if bad else program)


def _check(text: str) -> CheckResult:
    """What the text alone says; kept for the texts seen last."""
    known = _checked.get(text)
    if known is not None:
        _checked.move_to_end(text)
        return known
    result = _read(text)
    _checked[text] = result
    if len(_checked) > _CACHED_TEXTS:
        _checked.popitem(last=False)
    return result


def _read(text: str) -> CheckResult:
    """What is wrong with the text; an error does not hide those that are independent of it."""
    file, faults = parse_with_faults(text)
    if file is None:
        return CheckResult(tuple(faults), None)
    program, found = resolve(file, text, _readings)
    if faults:
        return _result((*faults, *beside_unread(text, faults, found)), None)
    result = _result(found, program)
    return result if result.ok else _result((*found, *beside_wrong(program)), None)


def _against(found: CheckResult, chip: Chip | None, constexpr: dict[str, int | float]) -> CheckResult:
    """The checks that depend on values: of constexprs, and of the chip."""
    program = found.program
    assert program is not None
    unknown = [n for n in constexpr if n not in {c.name for c in program.constexprs}]
    values = {c.name: c.value for c in program.constexprs if c.value is not None} | constexpr
    for name in unknown:
        values.pop(name)
    more = [
        *check_memory(program, values),
        *check_values(program, values),
        *check_limits(program, values, chip),
    ]
    return _result((*found.diagnostics, *more), program)
