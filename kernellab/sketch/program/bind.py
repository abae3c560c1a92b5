"""Binds a Program's names to a call: tensors to arguments, symbols to their dimensions, constexprs to values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernellab.errors import SketchError
from kernellab.sketch.program.binding import Binding, BoundOutput
from kernellab.sketch.program.program import Program

if TYPE_CHECKING:
    from kernellab.target import Target
    from kernellab.task import Task


def bind(
    program: Program,
    task: Task | None = None,
    constexpr: Mapping[str, int | float] | None = None,
    target: Target | None = None,
) -> Binding:
    """Return how ``program`` is called for ``task``; without a task its in tensors are the parameters, in order.

    ``in`` tensors bind by equal name, else in order; outs in output order. A declared shape may be a view of the
    argument's: a product of symbols takes consecutive dimensions, dimensions of extent 1 may be added or left out, and
    any other reshape must have the same number of elements. A constexpr named like a scalar argument is that argument.

    Raises:
        SketchError: a tensor without an argument, a wrong dtype or shape, a symbol that no argument's shape gives.
        NotRunnable: a constexpr without a value.
    """
    from kernellab.sketch.program.bind_task import bind_alone, bind_task

    overrides = dict(constexpr or {})
    extent = target.default_extent if target is not None else None
    return bind_alone(program, overrides, extent) if task is None else bind_task(program, task, overrides, extent)


def check_constexprs(program: Program, values: Mapping[str, int | float]) -> str:
    """Return a sentence on each value that is not among its constexpr's choices; it is accepted, and the choices stay.

    Raises:
        SketchError: a value is for a constexpr that the program does not have.
    """
    there = {constexpr.name: constexpr.choices for constexpr in program.constexprs}
    if unknown := next((name for name in values if name not in there), None):
        raise SketchError(f"The sketch has no constexpr {unknown}.", f"It has {', '.join(there) or 'none'}.")
    return " ".join(
        f"{name} = {value} is none of the sketch's choices ({', '.join(map(str, there[name]))})."
        for name, value in values.items()
        if there[name] and value not in there[name]
    )


__all__ = ["Binding", "BoundOutput", "bind", "check_constexprs"]
