"""The kernel of an asynchronous launch: it allocates buffers and barriers, and starts the groups and the warp that
loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernellab.lowering.gluon import barriers
from kernellab.lowering.gluon.limits import LOADER_REGISTERS
from kernellab.lowering.gluon.matrices import matrix_shape
from kernellab.lowering.gluon.parts import Function
from kernellab.lowering.gluon.roles import Roles
from kernellab.lowering.triton.kernel import KernelWriter
from kernellab.sketch.program.ints import int_op, num
from kernellab.sketch.program.program import Load


@dataclass(frozen=True)
class _Barrier:
    """A barrier, or one for each buffer; ``arrivals``: those that complete a phase, as Gluon."""

    name: str
    for_each_slot: bool
    arrivals: str


class KernelStart:
    """Writes the kernel; ``loads`` and ``multiplies`` are the functions that it starts."""

    def __init__(self, roles: Roles) -> None:
        self.roles, self.plan = roles, roles.plan

    def write(self, loads: Function, multiplies: Function) -> Function:
        writer, p = self.roles.new_writer(), self.plan
        put = writer.out.put
        self._put_buffers(writer)
        self._put_barriers(put)
        put("fence_async_shared()")
        if p.cluster > 1:
            put("if CLUSTER > 1:")
            put("    cluster.barrier()")
        put("gl.warp_specialize([")
        for who in range(p.groups):
            args = [self._group_argument(name, str(who)) for name in multiplies.parameters]
            put(f"    ({multiplies.name}, ({', '.join(args)},)),")
        put(f"    ({loads.name}, ({', '.join(loads.parameters)},)),")
        workers = ["WARPS"] * (p.groups - 1) + ["1"]
        registers = [str(p.registers)] * (p.groups - 1) + [str(LOADER_REGISTERS)]
        put(f"], [{', '.join(workers)}], [{', '.join(registers)}])")
        if p.cluster > 1:
            put("if CLUSTER > 1:  # none ends while another writes to its memory")
            put("    cluster.barrier()")
        groups = f"{p.groups} group{'s' * (p.groups > 1)} of {p.warps // p.groups} warps multiply, one warp loads"
        return Function(
            f"{self.roles.name}_asynchronous", f"{groups}; {p.shared_bytes:,} bytes of shared memory.", writer.out.lines
        )

    def _put_buffers(self, writer: KernelWriter) -> None:
        """Write the buffers in shared memory, and a cluster's barriers."""
        put, p = writer.out.put, self.plan
        for load in p.buffered:
            extents = ", ".join(writer.int_text(e) for e in matrix_shape(load.tile.shape))
            copies = "" if load in p.resident else "STAGES, "
            put(
                self._memory(
                    self.roles.buffer(load), self.roles.boxes[id(load)].name, f"[{copies}{extents}]", f"[{extents}]"
                )
            )
        if p.cluster > 1:
            for group in p.streams:
                self._put_cluster_barriers(put, group)
        if p.async_store is not None:
            shape = self._stored_shape(writer)
            factors = [*(["2"] if p.store_parts > 1 else []), *(["GROUPS"] if p.groups > 1 else [])]
            copies = f"{' * '.join(factors)}, " if factors else ""
            source = self.roles.boxes[id(p.async_store)].name
            put(self._memory("result_buffer", source, f"[{copies}{shape}]", f"[{shape}]"))

    def _barriers(self) -> list[_Barrier]:
        """Return the barriers of resident tiles, then those of the streams; a cluster's are written apart."""
        p, listed = self.plan, []
        for load in p.resident:
            listed.append(_Barrier(barriers.name([load], "ready"), False, "1"))
            if p.persistent:
                listed.append(_Barrier(barriers.name([load], "free"), False, "GROUPS"))
        for group in p.streams if p.cluster == 1 else ():
            listed.append(_Barrier(barriers.name(group, "ready"), True, "1"))
            listed.append(_Barrier(barriers.name(group, "free"), True, "1" if p.in_turn else "GROUPS"))
        return listed

    def _put_barriers(self, put: Callable[[str], None]) -> None:
        p, listed = self.plan, self._barriers()
        if p.in_turn or self.roles.alternates:
            put(_allocated("turns", "[GROUPS, 1]"))
            put("for turn in gl.static_range(GROUPS):")
            put("    mbarrier.init(turns.index(turn), count=1)")
        for barrier in listed:
            put(_allocated(barrier.name, "[STAGES, 1]" if barrier.for_each_slot else "[1]"))
        for barrier in listed:
            if not barrier.for_each_slot:
                put(f"mbarrier.init({barrier.name}, count={barrier.arrivals})")
        put("for slot in gl.static_range(STAGES):")
        for barrier in listed:
            if barrier.for_each_slot:
                put(f"    mbarrier.init({barrier.name}.index(slot), count={barrier.arrivals})")
        for group in p.streams if p.cluster > 1 else ():
            put(f"    mbarrier.init({barriers.name(group, 'ready')}.index(slot), count=1)")
            put(f"    mbarrier.init({barriers.name(group, 'free')}.index(slot), count=1)")
            put("    if CLUSTER > 1:")
            put(f"        mbarrier.init({barriers.name(group, 'taken')}.index(slot), count=1)  # from each block")

    def _put_cluster_barriers(self, put: Callable[[str], None], group: Sequence[Load]) -> None:
        """Write the barriers of a cluster's blocks: one of each block, and one of all, which the first block holds."""
        ready, free, taken = (barriers.name(group, event) for event in ("ready", "free", "taken"))
        put("if CLUSTER > 1:")
        for name in (ready, free):
            put(f"    {_allocated(name, '[STAGES, CLUSTER]', '[[1]]')}")
        put(f"    {_allocated(taken, '[STAGES, 1]', '[[0]]')}")
        put("else:")
        for name in (ready, free):
            put(f"    {_allocated(name, '[STAGES, 1]')}")
        put(f"    {taken} = {free}")

    def _stored_shape(self, writer: KernelWriter) -> str:
        """Return the extents of the buffer that results leave through."""
        assert self.plan.async_store is not None
        rows, columns = matrix_shape(self.plan.async_store.region.shape)
        columns = columns if self.plan.store_parts == 1 else int_op("//", columns, num(self.plan.store_parts))
        return ", ".join(self._group_argument(writer.int_text(e), "") for e in (rows, columns))

    def _memory(self, name: str, source: str, shape: str, block: str) -> str:
        layout = f"gl.NVMMASharedLayout.get_default_for({block}, {source}.dtype)"
        layout = layout if self.plan.cluster == 1 else f"{source}.layout"
        return f"{name} = gl.allocate_shared_memory({source}.dtype, {shape}, {layout})"

    def _group_argument(self, name: str, who: str) -> str:
        """Return what a group gets for its parameter ``name``: its number, or its share of the rows."""
        if name == "who":
            return who
        if name == self.plan.rows_name and self.plan.shares_rows:
            return f"{name} // GROUPS"
        return name


def _allocated(name: str, shape: str, blocks: str = "") -> str:
    """Return the allocation of barriers; ``blocks``: how the blocks of a cluster have them."""
    return f"{name} = gl.allocate_shared_memory(gl.int64, {shape}, mbarrier.MBarrierLayout({blocks}))"


__all__ = ["KernelStart"]
