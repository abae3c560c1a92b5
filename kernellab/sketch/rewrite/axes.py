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
from kernellab.sketch.program.program import Apply, Assign, AtomicAdd, Gemm, Loop, MultiAssign, Program, Scatter, Value
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
        technique(program), estimate.footprint, _stages(program, dict(binding.constexpr)), estimate.intensity,
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


_BY_KIND = {AtomicAdd: Technique.ATOMIC, Scatter: Technique.ATOMIC, Gemm: Technique.PRODUCT}


def _techniques(body: tuple[object, ...], looped: bool) -> set[Technique]:
    techniques: set[Technique] = set()
    for stmt in statements(body):  # type: ignore[arg-type]
        if isinstance(stmt, Loop):
            if not stmt.hints.parallel:
                techniques |= _techniques(stmt.body, True)
                techniques |= {Technique.ONLINE} if _rescales(stmt) else set()
            continue
        techniques |= {t for kind, t in _BY_KIND.items() if isinstance(stmt, kind)}
        ops = [v.op for value in stmt.values for v in subvalues(value) if isinstance(v, Apply)]
        ops += [stmt.op] if isinstance(stmt, MultiAssign) else []
        techniques |= {t for op in ops if (t := _of(op, looped)) is not None}
    return techniques


def _of(op: str, looped: bool) -> Technique | None:
    kind = OPS[op].kind if op in OPS else None
    by_kind = {
        OpKind.MATRIX: Technique.PRODUCT,
        OpKind.SORT: Technique.ORDER,
        OpKind.SCAN: Technique.SCAN,
        OpKind.PICK: Technique.GATHER,
        OpKind.REDUCE: Technique.BLOCKED if looped else Technique.WHOLE,
    }
    return by_kind.get(kind) if kind is not None else None


def _rescales(loop: Loop) -> bool:
    """Is a tile that the loop carries multiplied by a factor that the loop computes, before the loop adds to it?"""
    inside = {s.tile.uid for s in statements(loop.body) if isinstance(s, Assign) and s.declares}
    for stmt in statements(loop.body):
        if not isinstance(stmt, Assign) or stmt.declares:
            continue
        for part in subvalues(stmt.value):
            if isinstance(part, Apply) and part.op == "mul":
                reads = {_uid(a) for a in part.args}
                if stmt.tile.uid in reads and reads & inside:
                    return True
    return False


def _uid(value: Value) -> str:
    """Return the uid of the tile below casts and new axes."""
    while isinstance(value, Apply) and value.op in ("cast", "newaxis", "broadcast"):
        value = value.args[0]
    tile = getattr(value, "tile", None)
    return tile.uid if tile is not None else ""


def _stages(program: Program, values: dict[str, int | float]) -> int:
    loops = [s for k in program.kernels for s in statements(k.body) if isinstance(s, Loop)]
    hinted = [loop.hints.pipeline or 1 for loop in loops if loop.hints.pipeline]
    return max([1, *hinted, *([int(values["num_stages"])] if hinted and "num_stages" in values else [])])


def _log4(value: float) -> int:
    return math.floor(math.log2(value) / 2) if value > 0 and math.isfinite(value) else 0
