"""The judge's requests to a worker: build, call on arguments in shared memory, and read its outputs."""

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
from kernellab.verifier.judge.access import Access, HostAccess, InputMemory
from kernellab.verifier.judge.placement import as_timed
from kernellab.verifier.judge.process import WorkerFailure, WorkerProcess
from kernellab.verifier.protocol.control import DONE, OK, READY, Answer, Output, Written
from kernellab.verifier.protocol.memory import Arena, Layout
from kernellab.verifier.protocol.process_memory import Probe
from kernellab.verifier.protocol.rules import TIMING
from kernellab.verifier.protocol.sanitize import shown, shown_all

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


@dataclass(frozen=True)
class Call:
    """One call: the places of the outputs, the judge's clock around it (s), the worker's own claim (s), and the time
    that its threads waited for a core used by something else (s, all threads together)."""

    answer: Answer
    seconds: float
    waited: float = 0.0
    #: the arguments that are outputs too
    written: tuple[Written, ...] = ()
    #: processor seconds that all its processes used from its go to its halt
    used: float = 0.0
    #: time of its go (s of perf_counter)
    began: float = 0.0

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (*self.answer.outputs, *self.written)


@dataclass(frozen=True)
class _Glance:
    """The contents of a few places of a worker's ``outputs``; empty without a glance."""

    outputs: Sequence[Output] = ()
    probe: Probe | None = None
    contents: bytes | None = None

    def differs(self, pid: int, outputs: Sequence[Output]) -> bool:
        """Have the contents changed, is another amount readable, or does the worker now report other outputs?"""
        if self.probe is None or self.contents is None:
            return False
        now = self.probe.read(pid)
        return now is not None and (now != self.contents or tuple(outputs) != tuple(self.outputs))


class Worker(WorkerProcess):
    """A worker as the stages use it: it builds, receives arguments, calls, and its outputs are read."""

    #: is it between the go of a timed call and its answer?
    computing = False
    #: number of such calls
    asked = 0
    #: number of arguments that a candidate accepts, by its own report, if the last ones have no parameters
    accepted: int | None = None
    #: called as soon as the worker continues in the next such call
    on_go: Callable[[], None] | None = None
    #: called with the places, arguments and operation of each call that answered
    seen: Callable[[Layout, Sequence[Any], str], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.access: Access = HostAccess(self)

    def build(self, message: dict[str, Any], deadline: float) -> None:
        """Import the candidate or build the baseline. Raises WorkerFailure("exception") with type, message, frames."""
        self.begin_build(message)
        self.finish_build(deadline)

    def begin_build(self, message: dict[str, Any]) -> None:
        """Start a build without waiting for it."""
        self.post({"op": "build", "root": str(self.scratch / "src"), **message})
        self.building = True

    def finish_build(self, deadline: float) -> None:
        """Wait for a build in progress; does nothing when it is done."""
        if self.building:
            answer = self.receive(deadline)
            self.building = False
            if answer.get("ok") is not True:
                raise self.exception(answer)
            accepted = answer.get("taken")
            self.accepted = accepted if type(accepted) is int else None

    def built(self) -> bool:
        """Has a build finished, successfully or not? Does not wait."""
        if self.building:
            self.drain()
            return bool(wait([self.channel.fileno(), self.first_fd], 0))
        return True

    @property
    def arenas(self) -> dict[int, Arena]:
        return self.access.arenas

    def write(self, slot: int, layout: Layout, args: Sequence[Any]) -> Arena:
        """Write ``args`` into the arena ``slot``, which grows if needed."""
        return self.access.write(slot, layout, args)

    def call(
        self, layout: Layout, slots: Sequence[int], deadline: float, *, poison: bool = False, op: str = "call",
        late: Sequence[Any] | None = None, awake: bool = False, private: bool = False,
    ) -> Call:  # fmt: skip
        """Call once for each slot, with the last call timed; the worker is halted when this returns.

        ``late`` are the arguments of the last call, written after all earlier calls. All of the worker's processes are
        halted while they are written, a few elements are withheld, and the clock starts before these are restored and
        the worker continues: it never has time to work on the contents early. The clock ends when the answer has come,
        or, if the halt takes long and the worker used that time, at the halt. An output that changes after the answer
        is refused. With ``awake``, in an uncounted call, the judge waits without sleep and sees the answer within
        microseconds. ``private``: the arguments are in the worker's own memory, as a user's are.
        """
        values = self._values(layout, slots[-1], late) if self.seen is not None else []
        try:
            call = self._call(layout, slots, deadline, poison, op, late, awake, private)
            if self.seen is not None:
                self.seen(layout, values, op)
        finally:
            if private:
                self.access.drop()
        # arguments that the call writes into are the judge's own memory
        self.access.make_readable(call.answer.outputs)
        return call

    def _values(self, layout: Layout, slot: int, late: Sequence[Any] | None) -> list[Any]:
        """Return the arguments of a call that comes; copies of those that it writes into."""
        values: list[Any] = [p.value for p in layout.places]
        views = self.arenas[slot].views() if late is None else late
        for i, (place, view) in enumerate(zip(layout.places, views, strict=False)):
            if view is not None and place.dtype:
                values[i] = view.clone() if i in self.written else view
        return values

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
        """Wait until a call's arguments are ready. Refuses an answer that precedes its call."""
        event = self._pending or self.event(end)
        self._pending = 0
        if event != READY:
            self.stop()
            if event == DONE and self._failed():
                self.answer()
            raise WorkerFailure("protocol", "answered a call before it was made", log=self.log)

    def _go(self, slot: int, end: float) -> None:
        """An untimed call."""
        nonce = self.control.nonce()
        self.control.go(nonce)
        event = self.event(end)
        # the worker may be ready for the next call already
        self._pending = event & (DONE - 1)
        self.proven(event - self._pending, nonce)

    def _last(
        self, layout: Layout, slot: int, end: float, late: Sequence[Any] | None, poison: bool, awake: bool
    ) -> Call:
        """The timed call. Checks that must look like one to the worker use the same path."""
        self.stop()
        self.check_harness()
        arena, control = self.arenas[slot], self.control
        if late is not None:
            arena.write(layout, late)
            arena.withhold(self.random)
        if self.answered():
            raise WorkerFailure("protocol", "answered a call before it was made", log=self.log)
        priority = contextlib.nullcontext() if poison or self.placement is not None else as_timed(self.pid)
        with priority:
            began = time.perf_counter()
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
            # a long call is then waited for as usual
            is_answered = awake and control.watch(nonce, start + TIMING.awake_seconds)
            glance = self._glance() if is_answered else _Glance()
            event = self.event(end)
            answered = glanced = time.perf_counter()
            if late is not None and not is_answered:
                glance = self._glance()
                glanced = time.perf_counter()
            self.computing = False
            halted = self.stop()
        self.proven(event, nonce)
        self.check_harness()
        answer = self.answer()
        if glance.differs(self.pid, answer.outputs):
            raise WorkerFailure("late-write", "writes its output after it has answered", log=self.log)
        after = process_stats.threads(self.pid)
        seconds = answered - start
        waited = process_stats.waited(before, after, seconds, time.perf_counter() - began - seconds)
        # its processes may have worked until all had halted
        allowed = TIMING.halt_seconds + glanced - answered
        ran = self._used - used
        excess = min(halted - answered - allowed, ran - allowed)
        return Call(answer, seconds + max(excess, 0.0), waited, self._written(layout, slot), ran, start)

    def _glance(self) -> _Glance:
        """Read a few elements of a call's answer at secret places, and their contents while the worker still runs: work
        left for after the answer would show."""
        try:
            outputs = self.control.read().outputs if self.access.on_host else ()
        except ValueError:
            return _Glance()
        each = -(-TIMING.glance_elements // max(len(outputs), 1))
        places = [place for output in outputs for place in output.sample_elements(self.random, each)]
        if not places:
            return _Glance()
        probe = Probe(places)
        return _Glance(outputs, probe, probe.read(self.pid))

    def proven(self, event: int, nonce: int) -> None:
        """Check that an answer is one event and repeats its go; a failure that the worker reports needs no proof."""
        if event != DONE or not (self.control.proves(nonce) or self._failed()):
            self.stop()
            raise WorkerFailure("protocol", "answered a call that was not made", log=self.log)

    def answered(self) -> bool:
        """Is there an event that nothing waits for?"""
        try:
            return os.eventfd_read(self.done) > 0
        except BlockingIOError:
            return False

    @property
    def at_work(self) -> bool:
        """Is it between the go of a timed call and its answer? The waiting thread may notice the answer only later."""
        return self.computing and not wait([self.done], 0)

    def answer(self, calls: int = 1) -> Answer:
        """The worker's answer to ``calls`` calls. Raises WorkerFailure for an exception or an invalid answer."""
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
        """The arguments at the positions ``written``, as outputs of the call that has just ended."""
        places = [(i, layout.places[i]) for i in self.written]
        return tuple(Written.of(slot, i, p.dtype, p.shape, p.strides) for i, p in places)

    def trace(self, layout: Layout, slot: int, deadline: float) -> dict[str, Any]:
        """The worker's report of one call on ``slot``."""
        return self.access.trace(layout, slot, deadline)

    def witness(self, layout: Layout, slot: int, deadline: float) -> dict[str, Any]:
        """The worker's report of the effects of one call on ``slot`` on the caller."""
        root = str(self.scratch / "src")
        message = {"op": "witness", "args": [p.message for p in layout.places], "slots": [slot], "root": root}
        return self.ask(message, deadline)

    def seal(self, layout: Layout, slots: Sequence[int], dsl: str, deadline: float) -> str:
        """Record the candidate's calls on two ``slots`` below its scratch folder. Returns why it failed, or ""."""
        root = str(self.scratch / "src")
        places = [p.message for p in layout.places]
        message = {"op": "seal", "args": places, "slots": list(slots), "dsl": dsl, "root": root}
        answer = self.ask(message, deadline)
        return str(answer.get("reason", ""))[:400]

    def ghost(self, off: Sequence[str] | None, deadline: float) -> list[str]:
        """Leave out the launches named in ``off`` from now on (None: leave out none, and stop watching). Returns the
        names that the worker reports from before, which are unverified."""
        root = str(self.scratch / "src")
        answer = self.ask({"op": "ghost", "off": off if off is None else list(off), "root": root}, deadline)
        names = answer.get("seen")
        return [str(name)[:80] for name in names][:64] if isinstance(names, list) else []

    def team(self, threads: int, deadline: float) -> None:
        """Set the team size of OpenMP and torch from now on."""
        self.ask({"op": "team", "threads": threads}, deadline)

    def trespassed(self, output: Output) -> bool:
        """Were the guards around an output overwritten? False for memory without guards."""
        return self.access.trespassed(output)

    def renew(self) -> None:
        """Move the inputs in host memory to other places, from the next call on."""
        if isinstance(self.access, HostAccess):
            self.access.renew()

    def views(self, output: Output) -> bool:
        """Does an output lie in memory of the inputs?"""
        return self.access.views(output)

    def shared(self, outputs: Sequence[Output]) -> InputMemory:
        """The addresses of the inputs, and which of a call's outputs share a byte with another of its mappings."""
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
