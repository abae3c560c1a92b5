"""What the judge asks of a worker: to build, to call on arguments in shared memory, to let its outputs be read."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.verifier import accounts
from kernellab.verifier.control import OK, Answer, Output
from kernellab.verifier.guards import GUARD
from kernellab.verifier.memory import Arena, Layout, Unreadable, read_bytes, read_output
from kernellab.verifier.process import WorkerFailure, WorkerProcess
from kernellab.verifier.rules import CAPS

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

_DONE = 1 << 32
_HALT_SECONDS = 1e-4
#: eight bytes of a guard
_GUARDS = int.from_bytes(bytes([GUARD]) * 8, "little", signed=True)


@dataclass(frozen=True)
class Call:
    """One call: where outputs lie, the judge's clock around it (s), the worker's own claim (s), and how long its
    threads waited for a core that something else had (s, all threads together)."""

    answer: Answer
    seconds: float
    waited: float = 0.0

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self.answer.outputs


class Worker(WorkerProcess):
    """A worker as the stages use it: it builds, is given arguments, calls, and its outputs are read."""

    def build(self, message: dict[str, Any], deadline: float) -> None:
        """Imports the candidate or builds the baseline; WorkerFailure("exception") with type, message and frames."""
        self.begin_build(message)
        self.finish_build(deadline)

    def begin_build(self, message: dict[str, Any]) -> None:
        """Starts a build without waiting for it."""
        self._post({"op": "build", "root": str(self.scratch / "src"), **message})
        self.building = True

    def finish_build(self, deadline: float) -> None:
        """Waits for a build that was begun; nothing when it is done."""
        if self.building:
            answer = self._receive(deadline)
            self.building = False
            if answer.get("ok") is not True:
                raise self._exception(answer)

    def built(self) -> bool:
        """Is a build that was begun at its end, well or not? Does not wait."""
        if self.building:
            self._drain()
            return bool(select.select([self.channel.fileno(), self.first_fd], [], [], 0)[0])
        return True

    def write(self, slot: int, layout: Layout, args: Sequence[Any]) -> Arena:
        """Puts ``args`` into the arena ``slot``, which grows when it must."""
        arena = self.arenas.get(slot)
        if arena is None or arena.size < layout.size:
            self.resume()
            if arena is not None:
                arena.close()
            arena = self.arenas[slot] = Arena(max(layout.size, 1 << 20))
            self._post({"op": "arena", "slot": slot, "bytes": arena.size}, (arena.fd,))
        arena.write(layout, args)
        return arena

    def call(
        self, layout: Layout, slots: Sequence[int], deadline: float, *, poison: bool = False, op: str = "call",
        late: Sequence[Any] | None = None,
    ) -> Call:  # fmt: skip
        """Calls once for each slot, the last one timed; the worker is stopped when this returns.

        ``late`` are the arguments of the last call, written when everything before it is done: contents that lay there
        earlier could be worked on in the call that warms up, or while the arguments are made. Where no call
        warms up they are large: the worker is stopped while they are written, and the clock starts before it goes on.
        """
        self.resume()
        first = self.sequence + 1
        self.sequence += len(slots)
        message = {
            "op": op, "sequence": first, "args": [p.message for p in layout.places], "slots": list(slots),
            "copies": len(slots), "poison": poison, "root": str(self.scratch / "src"),
        }  # fmt: skip
        self._post(message)
        end = time.monotonic() + deadline
        words = self.control.words
        counter = 0
        start = stop = 0.0
        before: dict[int, accounts.Times] = {}
        asked = 0.0
        for i in range(len(slots)):
            while not counter:
                counter += self._event(end)
            if counter & (_DONE - 1):
                counter -= 1
                if i + 1 == len(slots):
                    if late is not None:
                        if len(slots) == 1:
                            self.stop()
                            # one of its threads shares the judge's core, and must have it to be halted
                            time.sleep(_HALT_SECONDS)
                        self.arenas[slots[i]].write(layout, late)
                    asked = time.perf_counter()
                    before = accounts.threads(self.pid)
                if i == 0 and self.placement is not None:
                    self.placement.release()
                start = time.perf_counter()
                words[0] = first + i
                self.resume()
                while counter < _DONE:
                    counter += self._event(end)
                stop = time.perf_counter()
            counter -= _DONE
            if i + 1 < len(slots) and self._failed():
                break
        self.stop()
        after = accounts.threads(self.pid)
        beside = time.perf_counter() - asked - (stop - start)
        waited = accounts.waited(before, after, stop - start, beside)
        try:
            answer = self.control.read()
        except ValueError as error:
            raise WorkerFailure("protocol", f"The worker's answer cannot be: {error}.", log=self.log) from None
        if answer.status != OK:
            raise self._exception(_parsed(answer.error))
        return Call(answer, stop - start, waited)

    def read(self, output: Output) -> Tensor:
        """One output's contents, read while the worker is stopped."""
        try:
            return read_output(self.pid, output)
        except Unreadable as error:
            raise WorkerFailure("protocol", f"An output cannot be read: {error}.", log=self.log) from None

    def renew(self) -> None:
        """Inputs lie elsewhere in the machine's memory from the next call on: how fast a place is for being shared with
        others in a cache is luck, and shall not be that of one worker for as long as it lives."""
        for slot, arena in list(self.arenas.items()):
            size = arena.size
            arena.close()
            self.arenas[slot] = Arena(size)
            self.resume()
            self._post({"op": "arena", "slot": slot, "bytes": size}, (self.arenas[slot].fd,))

    def trace(self, layout: Layout, slot: int, deadline: float) -> dict[str, Any]:
        self.resume()
        self._post({"op": "trace", "args": [p.message for p in layout.places], "slots": [slot]})
        answer = self._receive(deadline)
        if answer.get("ok") is not True:
            raise self._exception(answer)
        return answer

    def seal(self, layout: Layout, slots: Sequence[int], dsl: str, deadline: float) -> str:
        """Has the candidate's calls on two ``slots`` recorded below its scratch; why they cannot be, or ""."""
        self.resume()
        root = str(self.scratch / "src")
        places = [p.message for p in layout.places]
        self._post({"op": "seal", "args": places, "slots": list(slots), "dsl": dsl, "root": root})
        answer = self._receive(deadline)
        if answer.get("ok") is not True:
            raise self._exception(answer)
        return str(answer.get("reason", ""))[:400]

    def ghost(self, off: Sequence[str] | None, deadline: float) -> list[str]:
        """Leaves out the launches named in ``off`` from now on (None: none, and no more watching); the names that the
        worker says it saw before, which are words only."""
        self.resume()
        self._post({"op": "ghost", "off": off if off is None else list(off), "root": str(self.scratch / "src")})
        answer = self._receive(deadline)
        if answer.get("ok") is not True:
            raise self._exception(answer)
        seen = answer.get("seen")
        return [str(name)[:80] for name in seen][:64] if isinstance(seen, list) else []

    def trespassed(self, output: Output) -> bool:
        """Were the guards around an output written over? False where it lies in memory without guards."""
        import torch

        guard = CAPS.output_guard
        item = torch.empty(0, dtype=getattr(torch, output.dtype)).element_size()
        before, after = output.data - output.storage, output.storage_bytes - guard
        if before != guard or output.storage_bytes < 2 * guard or after < before or not output.shape:
            return False
        if prod(output.shape) * item + 2 * guard != output.storage_bytes:
            return False
        for place in (output.storage, output.storage + after):
            if not bool((read_bytes(self.pid, place, guard).view(torch.int64) == _GUARDS).all()):
                return True
        return False

    def input_ranges(self) -> list[tuple[int, int]]:
        """Addresses at which the worker has the inputs mapped."""
        ranges = []
        for line in Path(f"/proc/{self.pid}/maps").read_text().splitlines():
            if "/memfd:inputs" in line:
                low, high = line.split(" ", 1)[0].split("-")
                ranges.append((int(low, 16), int(high, 16)))
        return ranges

    def _failed(self) -> bool:
        try:
            return self.control.read().status != OK
        except ValueError:
            return True


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {"type": "Exception", "message": text}
    return value if isinstance(value, dict) else {}
