"""The judge's access to a worker's arguments and outputs: here in host memory, by descriptors and by its pid."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kernellab.sandbox.caps import CAPS
from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.process import WorkerFailure, WorkerProcess
from kernellab.verifier.protocol.control import AddressRange, Output
from kernellab.verifier.protocol.memory import Arena, Layout, is_all
from kernellab.verifier.protocol.process_memory import Unreadable, read_bytes, read_output
from kernellab.verifier.worker.guards import GUARD

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: the name by which the system lists memory of inputs
_INPUTS = "/memfd:inputs"


class InputMemory(NamedTuple):
    """Where a worker has mapped the inputs, and the numbers of the outputs that share a byte with a second address of
    these outputs (memory that is mapped twice)."""

    ranges: list[AddressRange]
    doubled: set[int]


class Access(Protocol):
    """Access to a worker's memory, on a host or on a device."""

    #: shared memory by slot, one for each set of arguments
    arenas: dict[int, Arena]
    #: are outputs in the worker's own memory, which the system lets the judge read at any time?
    on_host: bool

    def write(self, slot: int, layout: Layout, args: Sequence[Any]) -> Arena:
        """Write ``args`` into the arena ``slot``, which grows if needed."""

    def drop(self) -> None:
        """Forget all arenas, which the worker has released; the next write creates new ones."""

    def make_readable(self, outputs: Sequence[Output]) -> None:
        """Make sure that the ``outputs`` of the last call can be read."""

    def read(self, output: Output) -> Tensor:
        """A copy of one output's contents. Raises WorkerFailure("protocol") if it cannot be read."""

    def trespassed(self, output: Output) -> bool:
        """Were the guards around an output overwritten? False for memory without guards."""

    def views(self, output: Output) -> bool:
        """Does an output lie in memory of the inputs, at any address at which the worker has mapped them?"""

    def shared(self, outputs: Sequence[Output]) -> InputMemory:
        """The addresses of the inputs, and which of the outputs are mapped twice."""

    def trace(self, layout: Layout, slot: int, deadline: float) -> dict[str, Any]:
        """The worker's report of one call on ``slot``: its launches and calls. Raises WorkerFailure."""

    def close(self) -> None:
        """Free the arenas; the worker has ended."""


class HostAccess:
    """Arguments in sealed shared memory; outputs are read from the stopped process."""

    on_host = True

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker
        self.arenas: dict[int, Arena] = {}

    def write(self, slot: int, layout: Layout, args: Sequence[Any]) -> Arena:
        arena = self.arenas.get(slot)
        if arena is None or arena.size < layout.size:
            arena = self._arena(slot, max(layout.size, 1 << 20))
        arena.write(layout, args)
        return arena

    def renew(self) -> None:
        """Move every arena to other memory: some places are faster because of shared caches, and one worker must not
        keep such a place for its lifetime."""
        for slot, arena in list(self.arenas.items()):
            self._arena(slot, arena.size)

    def drop(self) -> None:
        while self.arenas:
            self.arenas.popitem()[1].close()

    def make_readable(self, outputs: Sequence[Output]) -> None:
        """Nothing to do: all of the process's memory can be read."""

    def read(self, output: Output) -> Tensor:
        try:
            return read_output(self.worker.pid, output)
        except Unreadable as error:
            raise self._unreadable(error) from None

    def trespassed(self, output: Output) -> bool:
        import torch

        item = torch.empty(0, dtype=getattr(torch, output.dtype)).element_size()
        for address in guard_addresses(output, prod(output.shape) * item):
            try:
                guard = read_bytes(self.worker.pid, address, CAPS.output_guard)
            except Unreadable as error:
                raise self._unreadable(error) from None
            if not is_all(guard, GUARD):
                return True
        return False

    def views(self, output: Output) -> bool:
        if 0 in output.shape:
            return False
        is_in_inputs = process_stats.is_mapped(self.worker.pid, output.data, output.end, _INPUTS.encode())
        return output.lies_in(_input_ranges(self._maps())) if is_in_inputs is None else is_in_inputs

    def shared(self, outputs: Sequence[Output]) -> InputMemory:
        maps = self._maps()
        return InputMemory(_input_ranges(maps), doubled(maps, outputs))

    def _maps(self) -> list[str]:
        try:
            text = Path(f"/proc/{self.worker.pid}/maps").read_text("utf-8", "surrogateescape")
        except OSError:
            raise self.worker.ended() from None
        return text.split("\n")[:-1]

    def trace(self, layout: Layout, slot: int, deadline: float) -> dict[str, Any]:
        return self.worker.ask({"op": "trace", "args": [p.message for p in layout.places], "slots": [slot]}, deadline)

    def close(self) -> None:
        for arena in self.arenas.values():
            arena.close()

    def _arena(self, slot: int, size: int) -> Arena:
        """A new arena at ``slot``; closes the previous one."""
        self.worker.resume()
        old = self.arenas.pop(slot, None)
        if old is not None:
            old.close()
        arena = self.arenas[slot] = Arena(size)
        self.worker.post({"op": "arena", "slot": slot, "bytes": size}, (arena.fd,))
        return arena

    def _unreadable(self, error: Unreadable) -> WorkerFailure:
        """The failure for an unreadable output; a worker that has ended since its answer is reported as ended."""
        if self.worker.gone():
            return self.worker.ended()
        return WorkerFailure("protocol", f"An output cannot be read: {error}.", log=self.worker.log)


def guard_addresses(output: Output, size: int) -> list[int]:
    """Addresses of the two guards around an output of ``size`` bytes; none if its memory was made without guards."""
    guard = CAPS.output_guard
    is_guarded = output.data - output.storage == guard and output.storage_bytes == size + 2 * guard
    if not is_guarded or not output.shape:
        return []
    return [output.storage, output.storage + guard + size]


def _input_ranges(maps: Sequence[str]) -> list[AddressRange]:
    return [_mapped_range(line) for line in maps if _INPUTS in line]


class _Piece(NamedTuple):
    """The bytes of a file, from ``start`` to ``stop`` in it, that an output number has mapped at ``address``."""

    start: int
    stop: int
    address: int
    output: int

    @property
    def base(self) -> int:
        """The address that the file's first byte has in this mapping."""
        return self.address - self.start


def doubled(maps: Sequence[str], outputs: Sequence[Output]) -> set[int]:
    """The outputs that have a byte of a file at two addresses of the outputs, from the lines of a process's map."""
    pieces: dict[tuple[str, str], list[_Piece]] = {}
    for number, output in enumerate(outputs):
        # the map is sorted by address, and long
        first_line = max(bisect_right(maps, output.data, key=lambda line: _mapped_range(line).low) - 1, 0)
        for line in maps[first_line:]:
            low, high = _mapped_range(line)
            if low >= output.end:
                break
            _, _, offset, device, inode, *_ = line.split(None, 5)
            first, last = max(low, output.data), min(high, output.end)
            # memory mapped only once has no file behind it, not even an unnamed one
            if first < last and inode != "0":
                start = int(offset, 16) + first - low
                pieces.setdefault((device, inode), []).append(_Piece(start, start + last - first, first, number))
    numbers: set[int] = set()
    for file_pieces in pieces.values():
        file_pieces.sort()
        widest = file_pieces[0]
        for piece in file_pieces:
            if piece.start < widest.stop and piece.base != widest.base:
                numbers |= {widest.output, piece.output}
            widest = max(widest, piece, key=lambda p: p.stop)
    return numbers


def _mapped_range(line: str) -> AddressRange:
    """The addresses of a line of a process's map."""
    low, high = line.split(" ", 1)[0].split("-")
    return AddressRange(int(low, 16), int(high, 16))
