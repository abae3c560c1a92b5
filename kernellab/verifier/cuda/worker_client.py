"""The judge's access to a worker that uses a CUDA device.

Stopping the process does not stop a running kernel, so the judge checks for leftover work: at the moment of the answer
it halts the process and launches its own tiny kernel. The device serves one process at a time, so work left running
shows as a delay of that kernel (0.15 ms plus the work's own time, on an H200) or as an output that is not there yet.
Work cannot begin before ``go``: until then the judge has the device, and the contents are not there.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernellab.sandbox.caps import CAPS
from kernellab.verifier.cuda import driver as cuda_driver
from kernellab.verifier.cuda import pool as cuda_pool
from kernellab.verifier.cuda.faults import device_fault
from kernellab.verifier.cuda.memory import (
    DeviceArena,
    Segment,
    current_device,
    dense_bytes,
    l2_bytes,
    output_bytes,
    read_from,
    span_bytes,
)
from kernellab.verifier.cuda.reports import TimedCalls, Traced
from kernellab.verifier.judge.access import InputMemory, guard_addresses
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.servers import ForkServer
from kernellab.verifier.judge.worker_client import Worker
from kernellab.verifier.protocol.control import AddressRange, Output
from kernellab.verifier.protocol.memory import Arena, Layout
from kernellab.verifier.protocol.process_memory import Unreadable
from kernellab.verifier.protocol.rules import DEADLINES
from kernellab.verifier.worker.guards import GUARD

#: how device memory is shared, in addition to the sandbox's level words
SHARED = "device memory shared by descriptor (arguments read-only when timed, outputs read in place)"
COPIED = "device memory shared by descriptor (arguments read-only when timed, outputs copied by the worker)"
#: slots of arenas that do not hold a stage's arguments
TIMED_SLOT, COPY_SLOT = 100, 101


def device_files() -> tuple[str, ...]:
    """Files that a worker must open for reading and writing to use the device: the driver's nodes, and the names of the
    worker's threads, without which CUDA does not start (error 304)."""
    return (*sorted(glob("/dev/nvidia*")), *sorted(glob("/dev/dxg")), "/proc/self/task")


def cuda_worker(
    server: ForkServer, role: str, threads: int, environment: Callable[[Path], Mapping[str, str]],
    writable: tuple[str, ...], library: Path | None, seen_at: str = "",
) -> Worker:  # fmt: skip
    """A fresh worker whose arguments and outputs are in device memory that the judge has mapped too.

    Args:
        library: the allocator's path; with None the worker copies its outputs to the judge, with a label.
    """

    def with_pool(scratch: Path) -> Mapping[str, str]:
        own = dict(environment(scratch))
        if library is not None:
            target = scratch / "src" / f".{library.name}"
            shutil.copy(library, target)
            target.chmod(0o755)
            own[cuda_pool.VARIABLE] = str(target)
        return own

    worker = Worker(
        server, role, threads, device="cuda", environment=with_pool, devices=device_files(), writable=writable,
        faults=device_fault, seen_at=seen_at,
    )  # fmt: skip
    worker.access = DeviceAccess(worker)
    worker.sandbox = [*worker.sandbox, SHARED if library is not None else COPIED]
    return worker


class DeviceAccess:
    """A worker's arguments and outputs in device memory, its timed calls, and its report of device activity."""

    on_host = False

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.arenas: dict[int, Arena] = {}
        #: the worker's memory for outputs, as far as the judge has mapped it
        self.segments: list[Segment] = []
        #: the worker's address of each slot's memory
        self.bases: dict[int, int] = {}
        #: slots whose memory another worker's arena owns
        self.shared_slots: set[int] = set()
        #: number of the entries of the worker's table that the judge has read
        self._read_entries = 0
        #: outputs of the last calls that the worker has copied
        self._copied: list[Segment] = []
        #: outputs that the judge could not read in place
        self.copies = 0
        #: device activity in the traced calls, as the worker reports it
        self.traced = Traced()

    # -- memory

    def write(self, slot: int, layout: Layout, args: Sequence[Any]) -> DeviceArena:
        """Write ``args`` into the arena ``slot``, which grows if needed. Raises WorkerFailure("memory")."""
        arena = self.arenas.get(slot)
        if not isinstance(arena, DeviceArena) or arena.size < layout.size:
            self.release(slot)
            arena = self._arena(layout.size)
            self.attach(slot, arena, writable=True)
            self.shared_slots.discard(slot)
        arena.write(layout, args)
        torch.cuda.synchronize()
        return arena

    def attach(self, slot: int, arena: DeviceArena, *, writable: bool) -> None:
        """Let the worker map ``arena``; its owner closes it."""
        self.worker.resume()
        fd = arena.mapping.export()
        try:
            self.worker.post({"op": "attach", "slot": slot, "bytes": arena.size, "write": writable}, (fd,))
        finally:
            os.close(fd)
        answer = self.worker.receive(DEADLINES.start)
        if answer.get("ok") is not True or not isinstance(answer.get("base"), int):
            raise self.worker.exception(answer)
        self.bases[slot], self.arenas[slot] = answer["base"], arena
        self.shared_slots.add(slot)

    def release(self, slot: int) -> None:
        """Unmap the arena ``slot`` from the worker; its memory is freed if nothing else uses it."""
        arena = self.arenas.pop(slot, None)
        self.bases.pop(slot, None)
        if arena is None:
            return
        self.worker.resume()
        self.worker.post({"op": "detach", "slot": slot})
        self.worker.receive(DEADLINES.start)
        if slot not in self.shared_slots:
            arena.close()
        self.shared_slots.discard(slot)

    def input_ranges(self) -> list[AddressRange]:
        """Addresses at which the worker has mapped the inputs."""
        inputs = ((base, self.arenas[slot].size) for slot, base in self.bases.items() if slot != COPY_SLOT)
        return [AddressRange(base, base + size) for base, size in inputs]

    def views(self, output: Output) -> bool:
        return output.lies_in(self.input_ranges())

    def drop(self) -> None:
        raise NotImplementedError("arguments on a device lie in memory of the judge's")

    def shared(self, outputs: Sequence[Output]) -> InputMemory:
        # the segment gives an output's place in memory, and each output has its own
        return InputMemory(self.input_ranges(), set())

    def read(self, output: Output) -> Tensor:
        """One output's contents, copied on the device by the judge."""
        try:
            count = output_bytes(output)
            return read_from(self._find(output.data, count), output, count)
        except Unreadable as error:
            raise WorkerFailure("protocol", f"An output cannot be read: {error}.", log=self.worker.log) from None

    def trespassed(self, output: Output) -> bool:
        segment = self._find(output.storage, output.storage_bytes)
        if segment is None:
            return False
        guards = (segment.bytes(a, CAPS.output_guard) for a in guard_addresses(output, span_bytes(output)))
        return not all(bool((guard == GUARD).all()) for guard in guards)

    # -- calls

    def timed_calls(
        self, layout: Layout, slot: int, deadline: float, prepare: Callable[[], Callable[[], None]],
        probe: Callable[[], None], *, calls: int = 1, echo: bool = False, warm: bool = True,
        lead: Callable[[], None] | None = None,
    ) -> TimedCalls:  # fmt: skip
        """Make the timed ``calls`` of one go, on sets of arguments that are ``layout.size`` bytes apart in ``slot``.

        ``prepare`` writes the contents, cold, while the worker is halted, so that the worker learns nothing about them
        before ``go``, at which it continues; the judge's own work must be done when it returns. Its result writes a few
        withheld elements after the clock has started: a kernel left running on the device, which is not halted with its
        process, saw wrong ones. ``warm`` adds a call on the earlier contents first; ``echo`` uses the same path without
        a call; ``probe`` launches the judge's tiny kernel and waits for it; ``lead`` launches work that keeps the
        device busy for a while from the go on. The worker is halted when this returns.
        """
        worker = self.worker
        worker.resume()
        worker.post({
            "op": "timed", "args": [p.message for p in layout.places], "slots": [slot],
            "calls": calls, "stride": layout.size, "echo": echo, "warm": warm, "led": lead is not None,
            "root": str(worker.scratch / "src"),
        })  # fmt: skip
        end = time.monotonic() + deadline
        worker.ready(end)
        worker.stop()
        complete = prepare()
        if worker.answered():
            raise WorkerFailure("protocol", "answered a call before it was made", log=worker.log)
        nonce = worker.control.nonce()
        start = time.perf_counter()
        complete()
        if lead is not None:
            lead()
        worker.control.go(nonce)
        worker.resume()
        event = worker.event(end)
        answered = time.perf_counter()
        # the worker must not launch anything from here on
        worker.signal(signal.SIGSTOP, [worker.pid, *worker.halted])
        before = time.perf_counter()
        probe()
        tail = time.perf_counter() - before
        worker.stop()
        worker.proven(event, nonce)
        # copies of an earlier call do not belong to this one, even at the same address
        self._copied = []
        return TimedCalls(worker.answer(calls), answered - start, tail, calls)

    def trace(self, layout: Layout, slot: int, deadline: float) -> dict[str, Any]:
        """Trace calls on the device; stores the plausible part of the worker's report in ``traced``."""
        message = {
            "op": "trace", "args": [p.message for p in layout.places], "slots": [slot], "flush": 2 * l2_bytes(),
            "root": str(self.worker.scratch / "src"),
        }  # fmt: skip
        answer = self.worker.ask(message, deadline)
        self.traced = Traced.of(answer)
        return answer

    def make_readable(self, outputs: Sequence[Output], calls: int = 1) -> None:
        """Find where the ``outputs`` of the last ``calls`` are. The worker copies those that are in no segment which
        the judge can map."""
        self._copied = []
        if self.can_read(outputs):
            return
        self._map_segments()
        if not self.can_read(outputs):
            self._copy(outputs, calls)
        self.worker.stop()

    def can_read(self, outputs: Sequence[Output]) -> bool:
        """Can the judge read ``outputs`` in place?"""
        return all(not span_bytes(o) or self._find(o.data, span_bytes(o), copied=False) is not None for o in outputs)

    def close(self) -> None:
        for slot, arena in self.arenas.items():
            if slot not in self.shared_slots:
                arena.close()
        self.arenas = {}
        for segment in self.segments:
            segment.mapping.close()
        self.segments = []

    # -- inside

    def _arena(self, size: int) -> DeviceArena:
        try:
            return DeviceArena(max(size, 2 << 20))
        except cuda_driver.DriverError as error:
            if not error.out_of_memory:
                raise
            raise WorkerFailure("memory", "needs more device memory than there is", log=self.worker.log) from None

    def _find(self, address: int, count: int, copied: bool = True) -> Segment | None:
        """The newest memory that holds ``count`` bytes at the worker's ``address``: an output's, or the inputs'."""
        inputs = (
            Segment(base, arena.size, arena.mapping)
            for slot, base in self.bases.items()
            if isinstance(arena := self.arenas[slot], DeviceArena)
        )
        candidates = (*(reversed(self._copied) if copied else ()), *reversed(self.segments), *inputs)
        return next((segment for segment in candidates if segment.holds(address, count)), None)

    def _map_segments(self) -> None:
        """Map the worker's new segments, and unmap those that its allocator has freed."""
        self.worker.resume()
        has_more = True
        while has_more:
            self.worker.post({"op": "segments", "first": self._read_entries})
            answer, fds = self._receive_with_fds(DEADLINES.start)
            try:
                freed = self._map_reported(answer, fds)
            except (KeyError, TypeError, ValueError, cuda_driver.DriverError) as error:
                raise WorkerFailure("protocol", f"The worker's account of its memory is invalid: {error}.") from None
            finally:
                for fd in fds:
                    os.close(fd)
            for segment in self.segments:
                if segment.number in freed:
                    segment.mapping.close()
            self.segments = [segment for segment in self.segments if segment.number not in freed]
            has_more = bool(answer.get("more"))

    def _map_reported(self, answer: Mapping[str, Any], fds: Sequence[int]) -> set[int]:
        """Map the segments of one report. Returns the numbers of those that were freed.

        Raises KeyError, TypeError or ValueError for a report of another form; DriverError.
        """
        reported = [(int(number), int(address), int(size)) for number, address, size in answer["segments"]]
        freed, next_entry = {int(number) for number in answer["dead"]}, int(answer["next"])
        if len(reported) != len(fds) or not self._read_entries <= next_entry <= self._read_entries + len(reported) + 8:
            raise ValueError
        for (number, address, size), fd in zip(reported, fds, strict=True):
            mapping = cuda_driver.attach(fd, size, current_device())
            self.segments.append(Segment(address, size, mapping, number=number))
        self._read_entries = next_entry
        return freed

    def _copy(self, outputs: Sequence[Output], calls: int) -> None:
        """Make the worker copy its outputs to the judge's memory: it could send something it did not compute in the
        call, but only something that it knew by then."""
        self.worker.resume()
        self.release(COPY_SLOT)
        places, end = [], 0
        for output in outputs:
            places.append(end)
            end += -(-dense_bytes(output) // 256) * 256
        arena = self._arena(end)
        self.attach(COPY_SLOT, arena, writable=True)
        self.shared_slots.discard(COPY_SLOT)
        self.worker.post({"op": "copy", "slot": COPY_SLOT, "calls": calls})
        answer = self.worker.receive(DEADLINES.call_least)
        if answer.get("ok") is not True:
            raise self.worker.exception(answer)
        self.copies += 1
        for output, place in zip(outputs, places, strict=True):
            if dense_bytes(output) != span_bytes(output):
                raise WorkerFailure("output", "An output that is not dense is in memory that the judge cannot read.")
            self._copied.append(Segment(output.data, span_bytes(output), arena.mapping, place))

    def _receive_with_fds(self, seconds: float) -> tuple[dict[str, Any], list[int]]:
        end = time.monotonic() + seconds
        channel = self.worker.channel.fileno()
        while channel not in self.worker.poll((channel,), end):
            pass
        return self.worker.take_message()
