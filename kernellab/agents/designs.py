"""When two designs are the same: by the sketch's structure and the values of its tunables, not by its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kernellab.sketch.syntax.tree import Declaration


class Design(NamedTuple):
    """The identity of a design: the sketch's tree without the tunables' defaults, and the value of each tunable."""

    structure: object
    values: dict[str, int | float]


def design_of(sketch: str, constexpr: Mapping[str, int | float]) -> Design:
    """The design of a sketch with chosen values of its tunables.

    Values of names that the sketch does not declare are ignored; if the sketch is unreadable, all values count.
    """
    from kernellab.sketch.check import check
    from kernellab.sketch.syntax.parse import parse
    from kernellab.sketch.syntax.pins import without_pins

    program = check(sketch).program
    if program is None:
        return Design(sketch.split(), dict(constexpr))
    defaults = {c.name: c.value for c in program.constexprs if c.value is not None}
    # a pin is not part of a design
    sketches = parse(without_pins(sketch)).sketches
    plain = [replace(s, declarations=tuple(map(_without_defaults, s.declarations))) for s in sketches]
    return Design(plain, {**defaults, **{name: value for name, value in constexpr.items() if name in defaults}})


def changed_defaults(before: str, after: str) -> dict[str, int | float]:
    """The defaults of ``after`` with other values in ``before``: a changed default counts as chosen."""
    before_values = design_of(before, {}).values
    return {
        name: value for name, value in design_of(after, {}).values.items() if before_values.get(name, value) != value
    }


def _without_defaults(line: Declaration) -> Declaration:
    from kernellab.sketch.syntax.tree import ConstDecl

    items = (replace(item, value=None) if isinstance(item, ConstDecl) and item.choices else item for item in line.items)
    return replace(line, items=tuple(items))
