"""The position of a sketch among others of its task: its technique, and the cost model's numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.library import is_library
from kernellab.sketch.program.program import (
    Apply,
    Assign,
    AtomicAdd,
    Gemm,
    Loop,
    MultiAssign,
    Program,
    Scatter,
    Statement,
    Value,
)
from kernellab.sketch.program.walk import statements, subvalues
from kernellab.target import Target

if TYPE_CHECKING:
    from kernellab.task import Task


class Technique(str, Enum):
    """The technique of a sketch; if several apply, the first."""

    LIBRARY = "library"
    #: a product whose accumulators are rescaled
    ONLINE_PRODUCT = "online product"
    PRODUCT = "product"
    #: a reduction that rescales its partial result while it continues
    ONLINE = "online"
    ORDER = "order"
    SCAN = "scan"
    #: a reduction in blocks
    BLOCKED = "blocked"
    #: a reduction of a tile that is held entirely
    WHOLE = "whole"
    ATOMIC = "atomic"
    GATHER = "gather"
    POINTWISE = "pointwise"


@dataclass(frozen=True)
class Axes:
    """Coordinates for MAP-Elites. ``on_chip_bytes`` is that of one program, ``intensity`` is in FLOPs for each byte of
    global memory.

    ``stages`` are the stages of the deepest pipeline (1 without one), ``launches`` the kernels of one call.
    """

    technique: Technique
    on_chip_bytes: int
    stages: int
    intensity: float
    launches: int

    @property
    def cell(self) -> tuple[str, int, int, int]:
        """Return the cell of a coarse grid: technique, log4 of bytes, stages, log4 of intensity."""
        return (self.technique.value, _log4(self.on_chip_bytes), self.stages, _log4(self.intensity))


def axes(text: str, task: Task, target: Target) -> Axes:
    """Return the coordinates of a sketch for ``task`` at its default sizes on ``target``.

    Raises:
        SketchError: the sketch has errors.
        NotRunnable: a constexpr without a value, or a tensor that the task does not have.
    """
    program = load_program(text)
    binding = bind(program, task, {}, target)
    sizes = dict(task.module().default_sizes()) if task.dims else {}
    symbols = binding.sizes(lambda at, dim: task.args[at].extents(sizes)[dim])
    names = {**dict.fromkeys(program.symbols, 1), **dict(program.sizes), **binding.fixed, **symbols}
    estimate = cost(program, names, dict(binding.constexpr), target.chip)
    return Axes(
        technique(program), estimate.footprint, _pipeline_stages(program, dict(binding.constexpr)), estimate.intensity,
        len(program.kernels),
    )  # fmt: skip


def technique(program: Program) -> Technique:
    """Return the technique of ``program``."""
    if any(is_library(k) for k in program.kernels):
        return Technique.LIBRARY
    held = {t for kernel in program.kernels for t in _techniques(kernel.body, False)}
    if {Technique.PRODUCT, Technique.ONLINE} <= held:
        return Technique.ONLINE_PRODUCT
    return next((t for t in Technique if t in held), Technique.POINTWISE)


#: kind of statement, and kind of operation -> technique
_BY_STATEMENT = {AtomicAdd: Technique.ATOMIC, Scatter: Technique.ATOMIC, Gemm: Technique.PRODUCT}
_BY_OPERATION = {
    OpKind.MATRIX: Technique.PRODUCT,
    OpKind.SORT: Technique.ORDER,
    OpKind.SCAN: Technique.SCAN,
    OpKind.PICK: Technique.GATHER,
}


def _techniques(body: tuple[Statement, ...], looped: bool) -> set[Technique]:
    """Return the techniques of statements; ``looped``: they are in a loop of a program."""
    techniques: set[Technique] = set()
    for stmt in statements(body):
        if isinstance(stmt, Loop):
            if not stmt.hints.parallel:
                techniques |= _techniques(stmt.body, True)
                techniques |= {Technique.ONLINE} if _rescales(stmt) else set()
            continue
        techniques |= {t for kind, t in _BY_STATEMENT.items() if isinstance(stmt, kind)}
        ops = [v.op for value in stmt.values for v in subvalues(value) if isinstance(v, Apply)]
        ops += [stmt.op] if isinstance(stmt, MultiAssign) else []
        techniques |= {t for op in ops if (t := _of_operation(op, looped)) is not None}
    return techniques


def _of_operation(op: str, looped: bool) -> Technique | None:
    if op not in OPS:
        return None
    if OPS[op].kind is OpKind.REDUCE:
        return Technique.BLOCKED if looped else Technique.WHOLE
    return _BY_OPERATION.get(OPS[op].kind)


def _rescales(loop: Loop) -> bool:
    """Is a tile that the loop carries multiplied by a factor that the loop computes, before the loop adds to it?"""
    assigns = [s for s in statements(loop.body) if isinstance(s, Assign)]
    declared = {s.tile.uid for s in assigns if s.declares}
    for stmt in assigns:
        products = (v for v in subvalues(stmt.value) if isinstance(v, Apply) and v.op == "mul" and not stmt.declares)
        for factors in ({_tile_uid(a) for a in product.args} for product in products):
            if stmt.tile.uid in factors and factors & declared:
                return True
    return False


def _tile_uid(value: Value) -> str:
    """Return the uid of the tile below casts and new axes; "" for a value that is no tile."""
    while isinstance(value, Apply) and value.op in ("cast", "newaxis", "broadcast"):
        value = value.args[0]
    tile = getattr(value, "tile", None)
    return tile.uid if tile is not None else ""


def _pipeline_stages(program: Program, values: dict[str, int | float]) -> int:
    loops = [s for k in program.kernels for s in statements(k.body) if isinstance(s, Loop)]
    stages = [loop.hints.pipeline for loop in loops if loop.hints.pipeline]
    if stages and "num_stages" in values:
        stages.append(int(values["num_stages"]))
    return max(stages, default=1)


def _log4(value: float) -> int:
    """Return the logarithm, rounded down; 0 for what has none."""
    return math.floor(math.log2(value) / 2) if value > 0 and math.isfinite(value) else 0
