"""State shared by the tile rules of one file: the task, the target, the style, and the constexprs so far."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.extents import Chunks
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Consts
from kernellab.designer.tile.gpu.rows import Quantity, Rows, Value, rows_of
from kernellab.designer.tile.styles import Style
from kernellab.target import Chip, Target
from kernellab.task import Task

#: elements of the longest row that one tile of a GPU holds, and partial results that one program combines
_LONGEST_ROW, _MOST_PARTS = 1 << 16, 1 << 12
#: shared memory of a program in CUDA-C, and on a chip where it is unknown
_STATIC_SHARED, _UNKNOWN_SHARED = 48 << 10, 96 << 10
_PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6", "bf16")


@dataclass(frozen=True)
class Context:
    """State of the tile rules of one file.

    ``sizes`` are the expected Dims; ``consts`` collects the constexprs that rules name; ``rows``, if given, replace the
    chip's measured ones.
    """

    task: Task
    target: Target
    style: Style
    sizes: Mapping[str, int]
    consts: Consts = field(default_factory=Consts)
    rows: Rows | None = None

    @property
    def gpu(self) -> bool:
        return self.target.chip.kind == "gpu"

    @property
    def chip(self) -> Chip:
        return self.target.chip

    @property
    def cores(self) -> int:
        """Cores or SMs, at least one."""
        return max(self.chip.cores, 1)

    def row(self, kind: str, **quantities: Quantity) -> Mapping[str, Value] | None:
        """Return the values measured on the chip for ``kind`` at these quantities; None if the model must decide."""
        rows = rows_of(self.chip) if self.rows is None else self.rows
        return rows.first(kind, self.target.dsl, {**quantities, "cores": self.chip.cores})

    @property
    def shared(self) -> int:
        """Bytes of shared memory of one program."""
        return _STATIC_SHARED if self.scalar_products else self.chip.shared_bytes or _UNKNOWN_SHARED

    @property
    def scalar_products(self) -> bool:
        """Whether products consist of scalar multiply-adds in registers: the CUDA-C lowering has no tensor cores."""
        return self.target.dsl == "cuda_c"

    @property
    def has_copy_engine(self) -> bool:
        """Whether the chip has a copy engine and products that read copied tiles, and the DSL uses them."""
        return self.target.dsl == "triton" and {"wgmma", "tma"} <= set(self.chip.isa)

    @property
    def halves(self) -> bool:
        """Whether float32 may be multiplied as pairs of float16 values."""
        return self.gpu and self.style.measured and not self.scalar_products

    # -- extents

    def size(self, axis: Axis) -> int:
        """Return the elements along ``axis`` at the expected Dims."""
        return extents.value(axis.extent, {**self.sizes, **self.consts.defaults})

    def volume(self, axes: Iterable[Axis]) -> int:
        """Return the elements over all of ``axes``."""
        return math.prod(self.size(a) for a in axes)

    def chunk(self, k: Launch) -> int:
        """Return the elements of one chunk of a launch with chunks."""
        assert k.chunk is not None and isinstance(k.chunk.extent, Chunks)
        return self.consts.default(k.chunk.extent.size)

    def bounded(self, axes: Iterable[Axis]) -> bool:
        """Return whether all of ``axes`` fit in one tile of a GPU at every size that the Dims allow."""
        along = list(axes)
        if any(isinstance(a.extent, Chunks) for a in along):
            only_parts = not self.task.dims and all(isinstance(a.extent, Chunks) for a in along)
            return only_parts and self.volume(along) <= _MOST_PARTS
        most = {**self.consts.defaults, **{d.name: d.max for d in self.task.dims}}
        try:
            return math.prod(extents.value(a.extent, most) for a in along) <= _LONGEST_ROW
        except (KeyError, ValueError):
            return False

    # -- constexprs

    def block(self, name: str, default: int, axis: Axis | None = None, least: int = 1, most: int = 1 << 16) -> str:
        """Add a tile size, halved while half of it still holds ``axis``; its choices are within a factor of four."""
        if axis is not None:
            size = self.size(axis)
            while default > least and default >= 2 * size:
                default //= 2
        return self.consts.add(name, default, tuple(c for c in near(default) if least <= c <= most))

    def tunable(self, name: str, value: int, least: int, most: int) -> str:
        """Add a constexpr that may be tuned to powers of two near ``value``, from ``least`` to ``most``."""
        around = {value, *(c for c in near(value) if least <= c <= most)}
        return self.consts.add(name, value, tuple(sorted(around)))

    def within(self, name: str, default: int, least: int, most: int) -> str:
        """Add a tile size whose choices all divide ``most``, a power of two: no tile crosses into the next chunk."""
        return self.consts.add(name, default, tuple(c for c in near(default) if min(least, default) <= c <= most))

    def exact(self, blocks: Mapping[Axis, str]) -> frozenset[Axis]:
        """Return the axes whose extent is divisible by every choice of their block."""
        divided = set()
        for axis, name in blocks.items():
            choices = self.consts.choices(name)
            if isinstance(axis.extent, int) and choices and all(axis.extent % c == 0 for c in choices):
                divided.add(axis)
        return frozenset(divided)

    # -- precision

    def stated(self, operation: str, default: str) -> str:
        """Return the precision that the task states for ``operation`` ("matmul", "conv"), else ``default``; ieee if
        unknown."""
        precision = self.task.granted.get(operation, default)
        return precision if precision in _PRECISIONS else "ieee"


def near(value: int) -> tuple[int, ...]:
    """Return ``value``, and its halves and doubles within a factor of four."""
    return (value // 4, value // 2, value, value * 2, value * 4)


def power(n: int) -> int:
    """Return the smallest power of two that is at least ``n``."""
    return 1 << max(n - 1, 0).bit_length()


def below(n: int) -> int:
    """Return the largest power of two that is at most ``n``, at least 1."""
    return 1 << max(0, n.bit_length() - 1)
