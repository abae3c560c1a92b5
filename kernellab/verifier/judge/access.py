"""The judge's access to a worker's arguments and outputs: here in host memory, by descriptors and by its pid."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernellab.sandbox.caps import CAPS
from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.process import WorkerFailure, WorkerProcess
from kernellab.verifier.protocol.control import Output
from kernellab.verifier.protocol.memory import Arena, Layout, is_all
from kernellab.verifier.protocol.process_memory import Unreadable, read_bytes, read_output
from kernellab.verifier.worker.guards import GUARD

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: the name by which the system lists memory of inputs
_INPUTS = "/memfd:inputs"


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

    def see(self, outputs: Sequence[Output]) -> None:
        """Make sure that the ``outputs`` of the last call can be read."""

    def read(self, output: Output) -> Tensor:
        """A copy of one output's contents. Raises WorkerFailure("protocol") if it cannot be read."""

    def trespassed(self, output: Output) -> bool:
        """Were the guards around an output overwritten? False for memory without guards."""

    def input_ranges(self) -> list[tuple[int, int]]:
        """Addresses at which the worker has mapped the inputs: (first byte, one after the last)."""

    def views(self, output: Output) -> bool:
        """Does an output lie in memory of the inputs, at any of these addresses?"""

    def shared(self, outputs: Sequence[Output]) -> tuple[list[tuple[int, int]], set[int]]:
        """The same addresses, and the numbers of the outputs that share a byte with a second address of these outputs
        (memory that is mapped twice)."""

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

    def see(self, outputs: Sequence[Output]) -> None:
        """Nothing to do: all of the process's memory can be read."""

    def read(self, output: Output) -> Tensor:
        try:
            return read_output(self.worker.pid, output)
        except Unreadable as error:
            raise self._unreadable(error) from None

    def trespassed(self, output: Output) -> bool:
        import torch

        guard = CAPS.output_guard
        item = torch.empty(0, dtype=getattr(torch, output.dtype)).element_size()
        before, after = output.data - output.storage, output.storage_bytes - guard
        if before != guard or output.storage_bytes < 2 * guard or after < before or not output.shape:
            return False
        if prod(output.shape) * item + 2 * guard != output.storage_bytes:
            return False
        for place in (output.storage, output.storage + after):
            try:
                whole = read_bytes(self.worker.pid, place, guard)
            except Unreadable as error:
                raise self._unreadable(error) from None
            if not is_all(whole, GUARD):
                return True
        return False

    def input_ranges(self) -> list[tuple[int, int]]:
        return _inputs(self._maps())

    def views(self, output: Output) -> bool:
        if 0 in output.shape:
            return False
        lies_there = process_stats.is_mapped(self.worker.pid, output.data, output.end, _INPUTS.encode())
        return output.lies_in(self.input_ranges()) if lies_there is None else lies_there

    def shared(self, outputs: Sequence[Output]) -> tuple[list[tuple[int, int]], set[int]]:
        maps = self._maps()
        return _inputs(maps), doubled(maps, outputs)

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


def _inputs(maps: Sequence[str]) -> list[tuple[int, int]]:
    return [_span(line) for line in maps if _INPUTS in line]


def doubled(maps: Sequence[str], outputs: Sequence[Output]) -> set[int]:
    """The outputs that have a byte of a file at two addresses of the outputs, from the lines of a process's map."""
    pieces: dict[tuple[str, str], list[tuple[int, int, int, int]]] = {}
    for number, output in enumerate(outputs):
        # the map is sorted by address, and long
        for line in maps[max(bisect_right(maps, output.data, key=lambda line: _span(line)[0]) - 1, 0) :]:
            low, high = _span(line)
            if low >= output.end:
                break
            _, _, offset, device, inode, *_ = line.split(None, 5)
            first, last = max(low, output.data), min(high, output.end)
            # memory mapped only once has no file behind it, not even an unnamed one
            if first < last and inode != "0":
                at = int(offset, 16) + first - low
                pieces.setdefault((device, inode), []).append((at, at + last - first, first, number))
    numbers: set[int] = set()
    for file_pieces in pieces.values():
        file_pieces.sort()
        widest = file_pieces[0]
        for piece in file_pieces:
            if piece[0] < widest[1] and piece[2] - piece[0] != widest[2] - widest[0]:
                numbers |= {widest[3], piece[3]}
            widest = max(widest, piece, key=lambda p: p[1])
    return numbers


def _span(line: str) -> tuple[int, int]:
    """The first address of a line of a process's map, and the one after its last."""
    low, high = line.split(" ", 1)[0].split("-")
    return int(low, 16), int(high, 16)
