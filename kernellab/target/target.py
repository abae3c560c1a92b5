"""Where a kernel runs: DSL x backend x chip.

A chip's facts are read from the machine where that is possible, else from ``knowledge/hardware/<chip>.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

#: the ``source`` of a chip whose roofs a judge has measured
JUDGED = "the judge's own copy and product on this machine, {day}"


class Backend(str, Enum):
    """The ways to run a kernel."""

    CPU = "cpu"
    CUDA = "cuda"
    #: Triton's interpreter: checks correctness without a GPU, never timed
    INTERPRETER = "interpreter"


#: a CPU's vector units by their flags, the widest first
VECTORS = (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("asimd", "NEON"))


@dataclass(frozen=True)
class Chip:
    """Facts of one chip. Bytes are bytes, rates are per second; 0 means unknown.

    ``peak_flops`` maps a precision class (f64, f32, tf32, f16, bf16, f8, i8) to dense FLOP/s.
    """

    name: str
    kind: str  # "cpu" | "gpu" | "npu"
    cores: int  # CPU cores used, or SMs
    simd_bits: int = 0
    isa: tuple[str, ...] = ()
    l1_bytes: int = 0
    l2_bytes: int = 0
    l3_bytes: int = 0
    #: shared memory that one block may use (GPU)
    shared_bytes: int = 0
    registers_per_core: int = 0
    memory_bytes: int = 0
    bandwidth: float = 0.0
    peak_flops: Mapping[str, float] = field(default_factory=dict)
    #: the origin of the numbers
    source: str = ""
    #: a judge measured the rates on this machine; figures from other rates are rough
    judged: bool = False
    #: other work ran while the rates were measured, so a bound from them is rough
    rough: bool = False

    def at_rates(self, bandwidth: float, flops: float, doubles: float = 0.0, rated: str = "") -> Chip:
        """Return the chip with the roofs that a judge measured on the day ``rated``; see :meth:`Target.at_rates`."""
        peaks = {**self.peak_flops, **{name: rate for name, rate in (("f32", flops), ("f64", doubles)) if rate}}
        source = JUDGED.format(day=rated or "today")
        return replace(self, bandwidth=bandwidth, peak_flops=peaks, source=source, judged=True, rough=False)

    @property
    def family(self) -> str:
        """The part of a chip on which the build of a kernel depends: the vector unit, or the GPU's instruction set; ""
        if unknown."""
        if self.kind != "cpu":
            return f"{self.kind} with {', '.join(self.isa)}" if self.isa else ""
        word = next((word for flag, word in VECTORS if flag in self.isa), "")
        return f"CPU with {word}" if word else ""

    @property
    def on_chip_bytes(self) -> int:
        """The limit for the tiles of one parallel iteration: L2 on a CPU, else shared memory plus registers."""
        return self.l2_bytes if self.kind == "cpu" else self.shared_bytes + 4 * self.registers_per_core


@dataclass(frozen=True)
class Target:
    """The target of a kernel: the DSL, the backend, the chip, and the machine of its judge."""

    dsl: str
    backend: Backend
    chip: Chip
    #: the address of its judge, as ssh://HOST or dask://HOST:PORT; "" for this machine
    host: str = ""

    @property
    def default_extent(self) -> int:
        """The default of an extent constexpr without a value (CPU 16, GPU 128)."""
        return 128 if self.chip.kind == "gpu" else 16

    def at_rates(self, bandwidth: float, flops: float, doubles: float = 0.0, rated: str = "") -> Target:
        """The same with the roofs that a judge measured: ``bandwidth`` in bytes/s, ``flops`` of f32 and ``doubles`` of
        f64 in FLOP/s, 0 for unknown. Its bounds depend on them, and a roof of another origin may be below a measured
        rate."""
        return replace(self, chip=self.chip.at_rates(bandwidth, flops, doubles, rated))

    def __str__(self) -> str:
        return f"{self.dsl} on {self.chip.name} ({self.backend.value})"
