"""How a Program's names meet a call: tensors to arguments, symbols to their dimensions, constexprs to values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernellab.sketch.ints import IntExpr
from kernellab.sketch.program import DType, Program

if TYPE_CHECKING:
    from kernellab.target import Target
    from kernellab.task import Task


@dataclass(frozen=True)
class BoundOutput:
    """One output of the reference: its sketch tensor, and its true shape over the sketch's symbols.

    The sketch may declare a view (``Y[1]`` for a scalar, ``Y[B*T, D]`` for ``[B, T, D]``); ``shape`` is what the
    caller gets, ``()`` for a scalar.
    """

    tensor: str
    shape: tuple[IntExpr, ...]
    dtype: DType


@dataclass(frozen=True)
class Binding:
    """What a host function needs to call the program's kernels.

    ``parameters`` are the kernel's Python parameters in order: the reference's arguments, then parameters and
    buffers in state_dict order (the in tensors in order where there is no Task). ``tensors`` maps each in/inout
    tensor to its parameter's position; ``symbols`` maps a symbol to (position, dimension) of the argument that gives
    it. ``constexpr`` holds every constexpr's value; those in ``scalars`` (constexpr name -> parameter position) are
    the reference's scalar arguments, passed at run time unless they are extents. ``defaults`` holds the default of
    each parameter that has one.
    """

    parameters: tuple[str, ...]
    tensors: Mapping[str, int]
    symbols: Mapping[str, tuple[int, int]]
    constexpr: Mapping[str, int | float]
    outputs: tuple[BoundOutput, ...]
    scalars: Mapping[str, int] = field(default_factory=dict)
    defaults: Mapping[int, int | float | bool] = field(default_factory=dict)
    #: dtype that each tensor parameter must have, by position
    dtypes: Mapping[int, DType] = field(default_factory=dict)
    #: symbol -> value fixed by a static task (the host function refuses another size)
    fixed: Mapping[str, int] = field(default_factory=dict)


def bind(
    program: Program,
    task: Task | None = None,
    constexpr: Mapping[str, int | float] | None = None,
    target: Target | None = None,
) -> Binding:
    """How ``program`` is called for ``task``; without a task its in tensors are the parameters, in order.

    ``in`` tensors bind by equal name, else in order; outs in output order. A declared shape may be a view of the
    argument's: a product of symbols takes consecutive dimensions, dimensions of extent 1 come and go, and any other
    reshape must have the same number of elements. A constexpr named like a scalar argument is that argument.

    Raises:
        SketchError: a tensor without an argument, a wrong dtype or shape, a symbol that no argument's shape gives.
        NotRunnable: a constexpr that nothing gives a value.
    """
    from kernellab.sketch.bind_task import bind_alone, bind_task

    given = dict(constexpr or {})
    extent = target.default_extent if target is not None else None
    return bind_alone(program, given, extent) if task is None else bind_task(program, task, given, extent)
