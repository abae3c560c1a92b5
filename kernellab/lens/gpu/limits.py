"""The limits of an SM, and the number of a kernel's blocks that fit.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the CUDA Occupancy Calculator
for the units of allocation.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.dsls.cuda_c import compute_capability
from kernellab.errors import TargetError
from kernellab.target import Chip

_WARP = 32
_REGISTERS = 65536
#: allocation units: registers of a warp, warps, and bytes of shared memory
_REGISTER_UNIT, _WARP_UNIT, _SHARED_UNIT = 256, 4, 128
#: bytes of shared memory that the system reserves in each block from capability 8.0 on
RESERVED = 1024


@dataclass(frozen=True)
class Limits:
    """Of one SM: warps, blocks, bytes of shared memory."""

    warps: int
    blocks: int
    shared: int


_KB = 1024
LIMITS = {
    70: Limits(64, 32, 96 * _KB), 75: Limits(32, 16, 64 * _KB), 80: Limits(64, 32, 164 * _KB),
    86: Limits(48, 16, 100 * _KB), 87: Limits(48, 16, 164 * _KB), 89: Limits(48, 24, 100 * _KB),
    90: Limits(64, 32, 228 * _KB), 100: Limits(64, 32, 228 * _KB), 103: Limits(64, 32, 228 * _KB),
    120: Limits(48, 24, 100 * _KB),
}  # fmt: skip
#: compute capability by a word of the chip's name
_CAPABILITY = {
    "v100": 70, "t4": 75, "a100": 80, "a10": 86, "a40": 86, "3090": 86, "l4": 89, "l40": 89, "4090": 89, "h100": 90,
    "h200": 90, "gh200": 90, "b200": 100, "gb200": 100, "b300": 103, "5090": 120,
}  # fmt: skip


@dataclass(frozen=True)
class Occupancy:
    """Blocks on an SM, their warps, and the limiting resource: registers, shared memory, warps or blocks."""

    blocks: int
    warps: int
    share: float
    limited_by: str


def capability_of(chip: Chip) -> int:
    """Return 90 for sm_90: by the chip's name, else that of this machine's GPU.

    Raises:
        TargetError: neither is known.
    """
    words = chip.name.lower().replace("-", " ").split()
    for word in words:
        for name, capability in _CAPABILITY.items():
            if word == name or word == f"rtx{name}":
                return capability
    here = compute_capability()
    if here and chip.kind == "gpu":
        return int(here.replace(".", ""))
    raise TargetError(
        f"The compute capability of {chip.name} is not known.",
        "Name another chip: --chip h200, h100, a100, b200, rtx4090.",
    )


def occupancy(capability: int, threads: int, registers: int, shared: int) -> Occupancy | None:
    """Return the occupancy for ``threads`` of a block, ``registers`` of a thread and ``shared`` bytes of a block
    without the reserved ones.

    None for a capability that is not listed, or if nothing is known about the block."""
    limits = LIMITS.get(capability)
    if limits is None or threads <= 0:
        return None
    warps = -(-threads // _WARP)
    each = -(-max(registers, 1) * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = (_REGISTERS // each) // _WARP_UNIT * _WARP_UNIT // warps
    allocated = -(-(shared + (RESERVED if capability >= 80 else 0)) // _SHARED_UNIT) * _SHARED_UNIT
    ways = {
        # a full SM has no other limit
        "warps": limits.warps // warps,
        "registers": by_registers,
        "shared memory": limits.shared // allocated if allocated else limits.blocks,
        "blocks": limits.blocks,
    }
    blocks = min(ways.values())
    limited = next(name for name, most in ways.items() if most == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps, limited)
