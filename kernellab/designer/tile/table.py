"""The tile rule of each kind of launch, for CPUs and for GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernellab.designer.ir.launch import Launch, LaunchKind
from kernellab.designer.ir.normal import Purpose
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.tile import attention, cpu, scans, scatter, sorting, why, windows
from kernellab.designer.tile.context import Context
from kernellab.designer.tile.gpu import launches as gpu
from kernellab.designer.tile.gpu import products as gpu_products
from kernellab.designer.tile.gpu import windows as gpu_windows

Rule = Callable[[Context, Launch], Tiling]

CPU: dict[LaunchKind, Rule] = {
    LaunchKind.POINTWISE: cpu.pointwise,
    LaunchKind.REDUCTION: cpu.reduction,
    LaunchKind.PRODUCT: cpu.product,
    LaunchKind.SCAN: scans.cpu,
    LaunchKind.SORT: sorting.cpu,
    LaunchKind.SCATTER: scatter.cpu,
    LaunchKind.WINDOW: windows.window,
    LaunchKind.ATTENTION: attention.cpu,
}
GPU: dict[LaunchKind, Rule] = {
    LaunchKind.POINTWISE: gpu.pointwise,
    LaunchKind.REDUCTION: gpu.reduction,
    LaunchKind.PRODUCT: gpu_products.product,
    LaunchKind.SCAN: scans.gpu,
    LaunchKind.SORT: sorting.gpu,
    LaunchKind.SCATTER: scatter.gpu,
    LaunchKind.WINDOW: gpu_windows.window,
    LaunchKind.COPY: gpu_windows.copy,
    LaunchKind.ATTENTION: attention.gpu,
    LaunchKind.CHAIN: attention.chain,
}


def tiling(ctx: Context, k: Launch) -> Tiling:
    """Return how the axes of one launch run on the chip.

    Raises:
        DesignError: the chip has no schedule for the launch.
    """
    t = (GPU if ctx.gpu else CPU)[k.kind](ctx, k)
    return replace(t, why=_why(ctx, k) or t.why)


def _why(ctx: Context, k: Launch) -> tuple[str, ...]:
    """Return the sentences for a launch with special outputs; () if its tiles say all."""
    if Purpose.SUMS in k.purposes:
        return why.SUMS
    if Purpose.PARTS in k.purposes:
        return why.PARTS
    if Purpose.HALVES in k.purposes:
        return why.HALVES
    if Purpose.SCALES in k.purposes:
        return why.SCALES
    if k.chunk is not None and k.kind is not LaunchKind.ATTENTION:
        return why.CHUNK_OF_SCAN if k.kind is LaunchKind.SCAN else why.CHUNK
    puts = any(o.put for o in k.outs) and k.kind is not LaunchKind.SORT
    return scatter.words(ctx, k) if puts else ()
