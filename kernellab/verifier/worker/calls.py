"""The worker's side of the protocol: it builds a candidate or a baseline, and calls it. It makes no decisions.

After the import of the candidate, the candidate can change everything here, so the judge does not trust what this
module reports: it reads outputs from this process's memory while the process is stopped, compares them with a
reference that never was here, and times with its own clock.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernellab.verifier.protocol import wire
from kernellab.verifier.protocol.control import BAD_OUTPUT, DONE, RAISED, READY, Control, span_elements
from kernellab.verifier.worker import build as worker_build
from kernellab.verifier.worker import caller_states, repeated, witness
from kernellab.verifier.worker.guards import Workspaces, poisoned, protect
from kernellab.verifier.worker.results import BadOutput, explain, flatten, place

#: seconds for which a worker waits for its go without sleep
_SPIN_SECONDS = 0.05
#: bytes by which the place of a result may shift from call to call
_SHIFT_BYTES = 1 << 20


class Worker:
    """Executes the judge's requests. The attributes have slots, so that none hides a method and the judge notices when
    one that a call needs is replaced."""

    __slots__ = (
        "_ghost", "arenas", "before", "channel", "control", "device", "done", "function", "last_outputs", "load",
        "parameters", "random", "role", "threads", "workspaces",
    )  # fmt: skip

    def __init__(self, channel: socket.socket, control: Control, done: int, request: dict[str, Any]) -> None:
        self.channel = channel
        self.control = control
        self.done = done
        self.role: str = request["role"]
        self.device: str = request.get("device", "cpu")
        self.threads: int = request["threads"]
        self.function: Callable[..., Any] = _missing
        self.arenas: dict[int, mmap.mmap] = {}
        #: outputs of the last two calls, which expose a kernel that reuses buffers
        self.last_outputs: list[list[Any]] = []
        self.load: Callable[[Sequence[Any]], Sequence[Any]] = lambda args: args
        self._ghost: Any = None
        #: memory that a checked call allocates
        self.workspaces: Workspaces | None = None
        self.random = random.Random()
        #: the tensors that ``load`` puts a model's last arguments into
        self.parameters: list[Any] = []
        #: the process's state when the candidate was built
        self.before = witness.Before()

    def obey(self) -> None:
        """Handle requests until the judge closes the channel."""
        while True:
            message, fds = wire.take(self.channel)
            if message is None:
                return
            # through the class, which the judge watches, not through attributes set on this object later
            getattr(type(self), message["op"])(self, message, fds)

    # -- build

    def build(self, message: dict[str, Any], _: list[int]) -> None:
        accepted = None
        try:
            import torch

            torch.set_num_threads(self.threads)
            if self.role == "candidate":
                if "seal" in message:
                    from kernellab.verifier.seal import inside

                    inside.watch(message["seal"], self.device)
                if message.get("covered"):
                    from kernellab.verifier.coverage import inside as coverage

                    coverage.watch(message["root"])
                before = witness.at_import()
                accepted = self._use(worker_build.candidate(message, self.device))
                self.before = replace(self.before, imported=witness.changed_by_import(before))
            elif self.role == "replayer":
                from kernellab.verifier.seal import inside

                self.function = inside.load(Path(message["bundle"]), self.device)
            else:
                self._use(worker_build.baseline(message, self.role, self.device))
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})
            return
        wire.post(self.channel, {"ok": True, "taken": accepted})

    def _use(self, built: worker_build.Built) -> int | None:
        self.function, self.load, self.parameters = built.function, built.load, built.parameters
        self.before = witness.Before(witness.state())
        return built.taken

    # -- calls

    def arena(self, message: dict[str, Any], fds: list[int]) -> None:
        # map its pages before the first call: page faults are not part of a kernel
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        self.arenas[message["slot"]] = mmap.mmap(fds[0], message["bytes"], flags=flags)
        os.close(fds[0])

    def call(self, message: dict[str, Any], _: list[int]) -> None:
        """Prepare the arguments, report READY, wait for go, call, and report the places of the outputs."""
        try:
            args = self._arguments(message)
            if not message.get("poison", False):
                # a loop in a user's program frees a result before the next call, and so reuses its pages
                self.last_outputs = self.last_outputs if message["op"] in ("echo", "held") else []
            below = str(Path(message["root"]).parent)
            poison, slow = message.get("poison", False), message["op"] == "slowly"
            with poisoned(poison, below=below, slow=slow) as self.workspaces, self._fenced(message):
                type(self)._timed(self, args)
        except BaseException as error:
            status = BAD_OUTPUT if isinstance(error, BadOutput) else RAISED
            self.control.write_error(status, json.dumps(explain(error, message.get("root", ""))))
            os.eventfd_write(self.done, DONE)

    def rehearse(self, message: dict[str, Any], _: list[int]) -> None:
        """Calls on zeros of given forms, to cache the code compiled for them. Ignores results and exceptions."""
        import torch

        synchronize = _synchronizer(self.device)
        for places in message["calls"]:
            with contextlib.suppress(Exception):
                args = [
                    spec["value"] if "value" in spec
                    else torch.zeros(spec["shape"], dtype=getattr(torch, spec["dtype"]), device=self.device)
                    for spec in places
                ]  # fmt: skip
                self.function(*self.load(args))
                synchronize()
        wire.post(self.channel, {"ok": True})

    @contextlib.contextmanager
    def _fenced(self, message: dict[str, Any]) -> Iterator[None]:
        """Protect pages of the arguments' memory from any access meanwhile, or all of it from writes."""
        fences, memory = message.get("fences", ()), self.arenas.get(message["slots"][-1])
        try:
            if message.get("sealed"):
                protect(memory, 0, len(memory or ()), mmap.PROT_READ)
            for place in fences:
                protect(memory, place, mmap.PAGESIZE, 0)
            yield
        finally:
            if fences or message.get("sealed"):
                protect(memory, 0, len(memory or ()), mmap.PROT_READ | mmap.PROT_WRITE)

    def _timed(self, args: Sequence[Sequence[Any]]) -> None:
        import torch

        function, control, words, done = self.function, self.control, self.control.words, self.done
        synchronize = _synchronizer(self.device)
        synchronize()
        for number, call_args in enumerate(args):
            # processor modes that an earlier call changed must not affect this call
            torch.set_flush_denormal(False)
            # results have another place in each call: some places are faster because of their neighbours in the caches,
            # and one process must not keep such a place for its lifetime
            shift = _shift(self.random)
            last = words[0]
            os.eventfd_write(done, READY)
            go = _wait(words, last)
            start = time.perf_counter()
            result = function(*call_args)
            synchronize()
            seconds = time.perf_counter() - start
            outputs = flatten(result, self.role == "candidate")
            if self.workspaces is not None:
                # the judge inspects the memory around outputs
                self.workspaces.check([tensor.untyped_storage().data_ptr() for tensor in outputs])
            for i, tensor in enumerate(outputs):
                control.write_output(i, *place(tensor))
            control.write_done(len(outputs), seconds)
            control.answered(go)
            os.eventfd_write(done, DONE)
            # other tensors in the same memory: a candidate that holds a view of a result then holds as much memory
            views = [tensor.detach() for tensor in outputs]
            self.last_outputs = [*self.last_outputs[-1:], views] if number + 1 == len(args) else []
            del result, outputs, shift

    def echo(self, message: dict[str, Any], _: list[int]) -> None:
        """The same path with no computation: what the judge's clock measures for a call that takes no time."""
        outputs = self.last_outputs[-1] if self.last_outputs else []
        self._call_by(lambda *_: tuple(outputs), message)

    def _call_by(self, function: Callable[..., Any], message: dict[str, Any]) -> None:
        """A usual call, answered by ``function`` instead of the candidate's."""
        own, self.function = self.function, function
        try:
            type(self).call(self, message, [])
        finally:
            self.function = own

    def slowly(self, message: dict[str, Any], _: list[int]) -> None:
        """A call whose threads are delayed at random where they access memory that torch allocates for it."""
        type(self).call(self, message, [])

    def burst(self, message: dict[str, Any], _: list[int]) -> None:
        """Many consecutive calls; with the operation ``held`` their results stay alive."""
        self._call_by(repeated.burst(self.function, is_held=message["op"] == "held"), message)

    held = burst

    def again(self, message: dict[str, Any], _: list[int]) -> None:
        """Calls directly after others on nearly the same contents."""
        self._call_by(repeated.after_others(self.function, message["written"]), message)

    def many(self, message: dict[str, Any], _: list[int]) -> None:
        """One call for each of the stacked contents."""
        self._call_by(repeated.unstacked(self.function, message["stacked"]), message)

    def elsewhere(self, message: dict[str, Any], _: list[int]) -> None:
        """A call in another thread, or under another state of torch that a caller may have set."""
        self._call_by(caller_states.elsewhere(message["op"], self.function, message["written"]), message)

    threaded = together = trained = inferred = widened = conjugated = flushed = larger = elsewhere

    def later(self, message: dict[str, Any], _: list[int]) -> None:
        """A call one hour later by the C library's clocks, if the preloaded allocator can shift them."""
        self._call_by(repeated.an_hour_later(self.function), message)

    def dry(self, message: dict[str, Any], _: list[int]) -> None:
        """A call in Triton's interpreter that runs no program: does each grid fit a GPU's limits?"""
        from kernellab.verifier.worker.interpreter import BOUNDS

        BOUNDS.dry = True
        try:
            type(self).call(self, message, [])
        finally:
            BOUNDS.dry = False

    def _answer(self, message: dict[str, Any], report: Callable[[], Mapping[str, Any]]) -> None:
        """Post what ``report`` returns, or the exception that it raises."""
        try:
            wire.post(self.channel, {"ok": True, **report()})
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})

    def witness(self, message: dict[str, Any], _: list[int]) -> None:
        """One call, and its effects on the caller's state."""

        def report() -> Mapping[str, Any]:
            args = self._arguments(message)[0]
            # a team size that each call sets to the same value would seem unchanged
            set_teams(self.threads + 1)
            effects = witness.effects_of(self.function, args, self.before)
            set_teams(self.threads)
            return effects

        self._answer(message, report)

    def covered(self, message: dict[str, Any], _: list[int]) -> None:
        """Calls whose results are not needed, and then which of the candidate's code ran, in a process that counts."""
        from kernellab.verifier.coverage import inside

        def report() -> Mapping[str, Any]:
            for one in message["calls"]:
                # on another answer than the checked call's, the counts say what ran until then
                with contextlib.suppress(Exception):
                    inside.call(self.function, self._arguments({**message, **one})[0], one, message["written"])
            inside.write(message["root"], message["compared"])
            return {}

        self._answer(message, report)

    def team(self, message: dict[str, Any], _: list[int]) -> None:
        """Set the number of threads of torch and of every loaded OpenMP runtime."""
        import torch

        count = int(message["threads"])
        torch.set_num_threads(count)
        set_teams(count)
        wire.post(self.channel, {"ok": True})

    def trace(self, message: dict[str, Any], _: list[int]) -> None:
        """One call under a dispatch mode: seconds in the framework's compute operators, by name."""
        from kernellab.verifier.worker.dispatch import library_report

        def report() -> Mapping[str, Any]:
            return library_report(self.function, self._arguments(message)[0], _synchronizer(self.device))

        self._answer(message, report)

    def seal(self, message: dict[str, Any], _: list[int]) -> None:
        """Record a call on two sets of arguments, for a replay without the candidate."""
        from kernellab.verifier.seal import inside

        def report() -> Mapping[str, Any]:
            scratch = Path(message["root"]).parent
            sets = self._arguments(message)
            return inside.seal(self.function, sets, self.parameters, message["dsl"], self.device, scratch)

        self._answer(message, report)

    def ghost(self, message: dict[str, Any], _: list[int]) -> None:
        """Watch the candidate's launches from now on, leaving out those named in ``off``; None ends it. Returns the
        names of earlier launches."""
        from kernellab.verifier.worker.ghost import Ghost

        def report() -> Mapping[str, Any]:
            self._ghost = self._ghost or Ghost(message["root"])
            names = list(self._ghost.seen)
            if message["off"] is None:
                self._ghost.disarm()
            else:
                self._ghost.arm(message["off"])
            return {"seen": [name[:80] for name in names]}

        self._answer(message, report)

    def _arguments(self, message: dict[str, Any]) -> list[Sequence[Any]]:
        import torch

        sets = []
        for slot in message["slots"]:
            args: list[Any] = []
            for spec in message["args"]:
                if "value" in spec:
                    args.append(spec["value"])
                    continue
                dtype = getattr(torch, spec["dtype"])
                shape, strides = spec["shape"], spec["strides"]
                span = span_elements(shape, strides)
                if span:
                    flat = torch.frombuffer(self.arenas[slot], dtype=dtype, count=span, offset=spec["offset"])
                else:
                    flat = torch.empty(0, dtype=dtype)
                if message.get("private"):
                    flat = flat.clone()
                args.append(flat.as_strided(shape, strides))
            sets.append(self.load(args))
        if message.get("private"):
            # each arena is unmapped with the last view of it
            self.arenas.clear()
        return sets


def _shift(draw: random.Random) -> Any:
    """Up to one megabyte of memory that shifts later allocations."""
    import torch

    # a storage, since tensors may be poisoned; nothing reads it
    return torch.UntypedStorage(draw.randrange(1, _SHIFT_BYTES))  # type: ignore[no-untyped-call]


def _wait(words: memoryview, last: int) -> int:
    """The judge's go, once it differs from ``last``: spins for it (a wake-up would cost more than a small kernel), then
    sleeps in small steps."""
    limit = time.perf_counter() + _SPIN_SECONDS
    while words[0] == last:
        if time.perf_counter() > limit:
            time.sleep(1e-4)
    return words[0]


def set_teams(count: int) -> None:
    """Set the team size in each OpenMP runtime of this process; torch and a compiler may each bring one."""
    import ctypes

    for path in witness.runtimes():
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(path).omp_set_num_threads(ctypes.c_int(count))


def _synchronizer(device: str) -> Callable[[], None]:
    if device == "cpu":
        return _nothing
    import torch

    return torch.cuda.synchronize


def _missing(*_: Any) -> Any:
    raise RuntimeError("nothing was built")


def _nothing() -> None: ...
