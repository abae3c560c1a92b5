"""A Program's names in a host function; :func:`kernellab.sketch.program.bind.bind` makes the binding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import DType
from kernellab.task.dtypes import held
from kernellab.task.formula import Solved


@dataclass(frozen=True)
class BoundOutput:
    """One output of the reference: its sketch tensor, and its true shape over the sketch's symbols.

    The sketch may declare a view (``Y[1]`` for a scalar, ``Y[B*T, D]`` for ``[B, T, D]``); ``shape`` is the shape that
    the caller gets, ``()`` for a scalar. The tensor has the output's dtype. ``into``: it is not returned, but written
    into the parameter at that position. ``pairs``: the caller gets complex numbers, whose two parts are the last
    dimension."""

    tensor: str
    shape: tuple[IntExpr, ...]
    into: int | None = None
    pairs: bool = False
    #: the caller gets its last dimension as the second one
    last: bool = False


@dataclass(frozen=True)
class Binding:
    """The data with which a host function calls the program's kernels.

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
    #: value of each scalar argument for which the source was made, by position (the host function refuses others)
    constants: Mapping[int, int | float | bool] = field(default_factory=dict)
    #: dtype that each tensor parameter must have, by position
    dtypes: Mapping[int, DType] = field(default_factory=dict)
    #: symbol -> value fixed by a static task or by the sketch (the host function refuses another size)
    fixed: Mapping[str, int] = field(default_factory=dict)
    #: symbols that occur only inside extents (``N + 1``): their solutions from (position, dimension) and earlier
    #: symbols
    solved: Mapping[str, Solved[tuple[int, int]]] = field(default_factory=dict)
    #: symbol that no argument gives -> (output, dimension) with this extent
    of_outputs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: positions of complex parameters, which a kernel takes as pairs of real numbers: [..., 2]
    pairs: frozenset[int] = frozenset()
    #: positions of parameters whose second dimension is the last of the tensor that holds them
    last: frozenset[int] = frozenset()
    #: tunables that cannot be set in the lowered text (:mod:`kernellab.lowering.tunables` finds them)
    held: frozenset[str] = frozenset()

    def sizes(self, size_at: Callable[[int, int], int]) -> dict[str, int]:
        """Return each symbol's size; ``size_at`` returns that of an argument (by position) along a dimension."""
        sizes = {symbol: int(size_at(*place)) for symbol, place in self.symbols.items()}
        for symbol, solved in self.solved.items():
            sizes[symbol] = solved.value(lambda place: size_at(*place), {**self.fixed, **sizes})
        return sizes

    def inputs(self, args: Sequence[Any]) -> dict[str, Any]:
        """Return the contents of each in tensor in a call of the kernel with ``args``."""
        return {name: held(args[position], position in self.last) for name, position in self.tensors.items()}
