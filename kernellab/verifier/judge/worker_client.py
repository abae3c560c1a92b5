"""What the judge asks of a worker: to build, to call on arguments in shared memory, to let its outputs be read."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.access import Access, HostAccess
from kernellab.verifier.judge.placement import as_timed
from kernellab.verifier.judge.process import WorkerFailure, WorkerProcess
from kernellab.verifier.protocol.control import DONE, OK, READY, Answer, Output, Written
from kernellab.verifier.protocol.memory import Arena, Layout, Window
from kernellab.verifier.protocol.rules import TIMING
from kernellab.verifier.protocol.sanitize import shown, shown_all

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


@dataclass(frozen=True)
class Call:
    """One call: where outputs lie, the judge's clock around it (s), the worker's own claim (s), and how long its
    threads waited for a core that something else had (s, all threads together)."""

    answer: Answer
    seconds: float
    waited: float = 0.0
    #: the arguments that are outputs too
    written: tuple[Written, ...] = ()
    #: seconds of the processor that all it has used from its go to its halt
    used: float = 0.0
    #: when its go was given (s of perf_counter)
    began: float = 0.0

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (*self.answer.outputs, *self.written)


@dataclass(frozen=True)
class _Glance:
    """What a few places (address, bytes) of a worker's ``outputs`` held; nothing where none was looked at."""

    outputs: Sequence[Output] = ()
    window: Window | None = None
    held: bytes | None = None

    def differs(self, pid: int, outputs: Sequence[Output]) -> bool:
        """Is something else there now, or more or less that can be read, or are the outputs said to lie elsewhere?"""
        if self.window is None or self.held is None:
            return False
        now = self.window.read(pid)
        return now is not None and (now != self.held or tuple(outputs) != tuple(self.outputs))


class Worker(WorkerProcess):
    """A worker as the stages use it: it builds, is given arguments, calls, and its outputs are read."""

    #: is it between the go of a timed call and its answer?
    computing = False
    #: how many such calls there were
    asked = 0
    #: arguments that a candidate takes, as it says, where it has no parameters for the last ones
    accepted: int | None = None
    #: called as soon as the worker continues in the next of them
    on_go: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.access: Access = HostAccess(self)

    def build(self, message: dict[str, Any], deadline: float) -> None:
        """Imports the candidate or builds the baseline; WorkerFailure("exception") with type, message and frames."""
        self.begin_build(message)
        self.finish_build(deadline)

    def begin_build(self, message: dict[str, Any]) -> None:
        """Starts a build without waiting for it."""
        self.post({"op": "build", "root": str(self.scratch / "src"), **message})
        self.building = True

    def finish_build(self, deadline: float) -> None:
        """Waits for a build that was begun; nothing when it is done."""
        if self.building:
            answer = self.receive(deadline)
            self.building = False
            if answer.get("ok") is not True:
                raise self.exception(answer)
            taken = answer.get("taken")
            self.accepted = taken if type(taken) is int else None

    def built(self) -> bool:
        """Is a build that was begun at its end, well or not? Does not wait."""
        if self.building:
            self.drain()
            return bool(wait([self.channel.fileno(), self.first_fd], 0))
        return True

    @property
    def arenas(self) -> dict[int, Arena]:
        return self.access.arenas

    def write(self, slot: int, layout: Layout, args: Sequence[Any]) -> Arena:
        """Puts ``args`` into the arena ``slot``, which grows when it must."""
        return self.access.write(slot, layout, args)

    def call(
        self, layout: Layout, slots: Sequence[int], deadline: float, *, poison: bool = False, op: str = "call",
        late: Sequence[Any] | None = None, awake: bool = False, private: bool = False,
    ) -> Call:  # fmt: skip
        """Calls once for each slot, the last one timed; the worker is halted when this returns.

        ``late`` are the arguments of the last call, written when everything before it is done. All that the worker has
        is halted while they are written, a few elements are withheld, and the clock starts before these are put in and
        it continues: there is no time in which the contents could be worked on early. The clock ends when the answer
        has come, or where halting takes long and the worker used that, when it has halted. An output that changes after
        the answer is refused; ``awake``, in a call that does not count, the judge waits without sleep, and sees the
        answer within microseconds. ``private``: the arguments lie in memory of the worker's, as a user's do.
        """
        try:
            call = self._call(layout, slots, deadline, poison, op, late, awake, private)
        finally:
            if private:
                self.access.drop()
        # arguments that were written into are the judge's own memory
        self.access.see(call.answer.outputs)
        return call

    def _call(
        self, layout: Layout, slots: Sequence[int], deadline: float, poison: bool, op: str, late: Sequence[Any] | None,
        awake: bool, private: bool,
    ) -> Call:  # fmt: skip
        self.resume()
        message = {
            "op": op, "args": [p.message for p in layout.places], "slots": list(slots), "poison": poison,
            "fences": list(layout.fences), "sealed": layout.sealed, "stacked": layout.stacked,
            "root": str(self.scratch / "src"),
            "private": private, "written": list(self.written),
        }  # fmt: skip
        self.post(message)
        end = time.monotonic() + deadline
        for slot in slots[:-1]:
            self.ready(end)
            self._go(slot, end)
            if self._failed():
                break
        else:
            self.ready(end)
            return self._last(layout, slots[-1], end, late, poison, awake)
        self.stop()
        return Call(self.answer(), 0.0)

    def ready(self, end: float) -> None:
        """Waits until a call's arguments are ready. What is answered before it was asked is refused."""
        event = self._pending or self.event(end)
        self._pending = 0
        if event != READY:
            self.stop()
            if event == DONE and self._failed():
                self.answer()
            raise WorkerFailure("protocol", "answered a call before it was made", log=self.log)

    def _go(self, slot: int, end: float) -> None:
        """A call that is not timed."""
        nonce = self.control.nonce()
        self.control.go(nonce)
        event = self.event(end)
        # it may be ready for the next by now
        self._pending = event & (DONE - 1)
        self.proven(event - self._pending, nonce)

    def _last(
        self, layout: Layout, slot: int, end: float, late: Sequence[Any] | None, poison: bool, awake: bool
    ) -> Call:
        """The timed call; a check that is none to the worker's eyes goes the same road."""
        self.stop()
        self.check_harness()
        arena, control = self.arenas[slot], self.control
        if late is not None:
            arena.write(layout, late)
            arena.withhold(self.random)
        if self.answered():
            raise WorkerFailure("protocol", "answered a call before it was made", log=self.log)
        ahead = contextlib.nullcontext() if poison or self.placement is not None else as_timed(self.pid)
        with ahead:
            asked = time.perf_counter()
            before = process_stats.threads(self.pid)
            if self.placement is not None:
                self.placement.release()
            used, nonce = self._used, control.nonce()
            start = time.perf_counter()
            arena.complete()
            control.go(nonce)
            self.asked += 1
            self.computing = True
            self.resume()
            if self.on_go is not None:
                self.on_go()
            # a call that takes long is waited for as any is
            came = awake and control.watch(nonce, start + TIMING.awake_seconds)
            seen = self._glance() if came else _Glance()
            event = self.event(end)
            answered = looked = time.perf_counter()
            if late is not None and not came:
                seen = self._glance()
                looked = time.perf_counter()
            self.computing = False
            halted = self.stop()
        self.proven(event, nonce)
        self.check_harness()
        answer = self.answer()
        if seen.differs(self.pid, answer.outputs):
            raise WorkerFailure("late-write", "writes its output after it has answered", log=self.log)
        after = process_stats.threads(self.pid)
        seconds = answered - start
        waited = process_stats.waited(before, after, seconds, time.perf_counter() - asked - seconds)
        # its processes may have worked on until all had halted
        allowed = TIMING.halting + looked - answered
        ran = self._used - used
        over = min(halted - answered - allowed, ran - allowed)
        return Call(answer, seconds + max(over, 0.0), waited, self._written(layout, slot), ran, start)

    def _glance(self) -> _Glance:
        """A few elements of what a call has answered, at secret places, and what stands there while the worker runs on:
        work that is left for after the answer would show."""
        try:
            outputs = self.control.read().outputs if self.access.on_host else ()
        except ValueError:
            return _Glance()
        each = -(-TIMING.glanced // max(len(outputs), 1))
        places = [place for output in outputs for place in output.some(self.random, each)]
        window = Window(places)
        return _Glance(outputs, window, window.read(self.pid)) if places else _Glance()

    def proven(self, event: int, nonce: int) -> None:
        """An answer is one event, and repeats its go; a failure that the worker tells needs no proof."""
        if event != DONE or not (self.control.proves(nonce) or self._failed()):
            self.stop()
            raise WorkerFailure("protocol", "answered a call that was not made", log=self.log)

    def answered(self) -> bool:
        """Does an event lie there that nothing waits for?"""
        try:
            return os.eventfd_read(self.done) > 0
        except BlockingIOError:
            return False

    @property
    def at_work(self) -> bool:
        """Is it between the go of a timed call and its answer, which the thread that waits may see only later?"""
        return self.computing and not wait([self.done], 0)

    def answer(self, calls: int = 1) -> Answer:
        try:
            answer = self.control.read(calls)
        except ValueError as error:
            raise WorkerFailure("protocol", f"The worker's answer is invalid: {error}.", log=self.log) from None
        if answer.status != OK:
            raise self.exception(_parsed(answer.error))
        return answer

    def read(self, output: Output) -> Tensor:
        """One output's contents, read while the worker is stopped."""
        if isinstance(output, Written):
            view = self.arenas[output.slot].views()[output.position]
            assert view is not None
            return view.clone()
        return self.access.read(output)

    def _written(self, layout: Layout, slot: int) -> tuple[Written, ...]:
        """The arguments at the places ``written``, as outputs of the call that has just ended."""
        places = [(i, layout.places[i]) for i in self.written]
        return tuple(Written.of(slot, i, p.dtype, p.shape, p.strides) for i, p in places)

    def trace(self, layout: Layout, slot: int, deadline: float) -> dict[str, Any]:
        """The worker's account of one call on ``slot``."""
        return self.access.trace(layout, slot, deadline)

    def witness(self, layout: Layout, slot: int, deadline: float) -> dict[str, Any]:
        """The worker's account of what one call on ``slot`` leaves to its caller."""
        root = str(self.scratch / "src")
        message = {"op": "witness", "args": [p.message for p in layout.places], "slots": [slot], "root": root}
        return self.ask(message, deadline)

    def seal(self, layout: Layout, slots: Sequence[int], dsl: str, deadline: float) -> str:
        """Has the candidate's calls on two ``slots`` recorded below its scratch; why they cannot be, or ""."""
        root = str(self.scratch / "src")
        places = [p.message for p in layout.places]
        message = {"op": "seal", "args": places, "slots": list(slots), "dsl": dsl, "root": root}
        answer = self.ask(message, deadline)
        return str(answer.get("reason", ""))[:400]

    def ghost(self, off: Sequence[str] | None, deadline: float) -> list[str]:
        """Leaves out the launches named in ``off`` from now on (None: none, and no more watching); the names that the
        worker says it saw before, which are words only."""
        root = str(self.scratch / "src")
        answer = self.ask({"op": "ghost", "off": off if off is None else list(off), "root": root}, deadline)
        seen = answer.get("seen")
        return [str(name)[:80] for name in seen][:64] if isinstance(seen, list) else []

    def team(self, threads: int, deadline: float) -> None:
        """Has OpenMP's and torch's teams be of so many threads from now on."""
        self.ask({"op": "team", "threads": threads}, deadline)

    def trespassed(self, output: Output) -> bool:
        """Were the guards around an output written over? False where it lies in memory without guards."""
        return self.access.trespassed(output)

    def renew(self) -> None:
        """Moves the inputs in the host's memory to other places, from the next call on."""
        if isinstance(self.access, HostAccess):
            self.access.renew()

    def input_ranges(self) -> list[tuple[int, int]]:
        """Addresses at which the worker has the inputs mapped."""
        return self.access.input_ranges()

    def shared(self, outputs: Sequence[Output]) -> tuple[list[tuple[int, int]], set[int]]:
        """The same addresses, and the outputs of a call of which a byte lies at a second address of its outputs too."""
        return self.access.shared([o for o in outputs if not isinstance(o, Written)])

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.access.close()

    def _failed(self) -> bool:
        try:
            return self.control.read().status != OK
        except ValueError:
            return True


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = shown_all(json.loads(text))
    except (ValueError, RecursionError):
        return {"type": "Exception", "message": shown(text)}
    return value if isinstance(value, dict) else {}
