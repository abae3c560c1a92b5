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
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernellab.verifier.protocol import wire
from kernellab.verifier.protocol.control import BAD_OUTPUT, DONE, RAISED, READY, Control, span_elements
from kernellab.verifier.worker import build as worker_build
from kernellab.verifier.worker import caller_states, repeated, witness
from kernellab.verifier.worker.guards import Workspaces, poisoned, protect
from kernellab.verifier.worker.results import BadOutput, explain, flatten, place

Socket = Any
_SPIN_SECONDS = 0.05
_SHIFT = 1 << 20


class Worker:
    """Executes the judge's requests. The attributes have slots, so that none hides a method and the judge notices when
    one that a call needs is replaced."""

    __slots__ = (
        "_ghost", "arenas", "channel", "control", "device", "done", "function", "kept", "load", "made",
        "on_device", "parameters", "random", "role", "state", "threads",
    )  # fmt: skip

    def __init__(self, channel: Socket, control: Control, done: int, request: dict[str, Any]) -> None:
        self.channel = channel
        self.control = control
        self.done = done
        self.role: str = request["role"]
        self.device: str = request.get("device", "cpu")
        self.threads: int = request["threads"]
        self.function: Callable[..., Any] = _missing
        self.arenas: dict[int, mmap.mmap] = {}
        self.on_device: dict[int, Any] = {}
        #: outputs of the last two calls, which expose a kernel that reuses buffers
        self.kept: list[list[Any]] = []
        self.load: Callable[[Sequence[Any]], Sequence[Any]] = lambda args: args
        self._ghost: Any = None
        #: memory that a checked call allocates
        self.made: Workspaces | None = None
        self.random = random.Random()
        #: the tensors that ``load`` puts a model's last arguments into
        self.parameters: list[Any] = []
        #: the process's state when the candidate was built
        self.state = witness.Before()

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
                accepted = self._take(worker_build.candidate(message, self.device))
                self.state = replace(self.state, imported=witness.changed_by_import(before))
            elif self.role == "replayer":
                from kernellab.verifier.seal import inside

                self.function = inside.load(Path(message["bundle"]), self.device)
            else:
                self._take(worker_build.baseline(message, self.role, self.device))
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})
            return
        wire.post(self.channel, {"ok": True, "taken": accepted})

    def _take(self, built: worker_build.Built) -> int | None:
        self.function, self.load, self.parameters = built.function, built.load, built.parameters
        self.state = witness.Before(witness.state())
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
                self.kept = self.kept if message["op"] in ("echo", "held") else []
            below = str(Path(message["root"]).parent)
            poison, slow = message.get("poison", False), message["op"] == "slowly"
            with poisoned(poison, below=below, slow=slow) as self.made, self._fenced(message):
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
            if self.made is not None:
                # the judge inspects the memory around outputs
                self.made.check([tensor.untyped_storage().data_ptr() for tensor in outputs])
            for i, tensor in enumerate(outputs):
                control.write_output(i, *place(tensor))
            control.write_done(len(outputs), seconds)
            control.answered(go)
            os.eventfd_write(done, DONE)
            # other tensors in the same memory: a candidate that holds a view of a result then holds as much memory
            views = [tensor.detach() for tensor in outputs]
            self.kept = [*self.kept[-1:], views] if number + 1 == len(args) else []
            del result, outputs, shift

    def echo(self, message: dict[str, Any], _: list[int]) -> None:
        """The same path with no computation: what the judge's clock measures for a call that takes no time."""
        outputs = self.kept[-1] if self.kept else []
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

    def witness(self, message: dict[str, Any], _: list[int]) -> None:
        """One call, and its effects on the caller's state."""
        try:
            args = self._arguments(message)[0]
            # a team size that each call sets to the same value would seem unchanged
            set_teams(self.threads + 1)
            wire.post(self.channel, {"ok": True, **witness.effects_of(self.function, args, self.state)})
            set_teams(self.threads)
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})

    def copy(self, message: dict[str, Any], fds: list[int]) -> None:
        """Copy the last outputs, contiguous and in order, into the judge's memory (device tensors)."""
        import torch

        with mmap.mmap(fds[0], message["bytes"]) as target:
            place = 0
            for tensor in self.kept[-1]:
                size = tensor.numel() * tensor.element_size()
                if size and place + size <= message["bytes"]:
                    into = torch.frombuffer(target, dtype=tensor.dtype, count=tensor.numel(), offset=place)
                    into.copy_(tensor.reshape(-1))
                    del into
                place += -(-size // 64) * 64
        os.close(fds[0])
        wire.post(self.channel, {"ok": True})

    def covered(self, message: dict[str, Any], _: list[int]) -> None:
        """Calls whose results are not needed, and then which of the candidate's code ran, in a process that counts."""
        from kernellab.verifier.coverage import inside

        try:
            for one in message["calls"]:
                # on another answer than the checked call's, the counts say what ran until then
                with contextlib.suppress(Exception):
                    inside.call(self.function, self._arguments({**message, **one})[0], one, message["written"])
            inside.write(message["root"], message["compared"])
            wire.post(self.channel, {"ok": True})
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})

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

        try:
            args = self._arguments(message)[0]
            wire.post(self.channel, {"ok": True, **library_report(self.function, args, _synchronizer(self.device))})
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})

    def seal(self, message: dict[str, Any], _: list[int]) -> None:
        """Record a call on two sets of arguments, for a replay without the candidate."""
        from kernellab.verifier.seal import inside

        scratch = Path(message["root"]).parent
        try:
            sets = self._arguments(message)
            answer = inside.seal(self.function, sets, self.parameters, message["dsl"], self.device, scratch)
        except BaseException as error:
            answer = {"ok": False, **explain(error, message["root"])}
        wire.post(self.channel, answer)

    def ghost(self, message: dict[str, Any], _: list[int]) -> None:
        """Watch the candidate's launches from now on, leaving out those named in ``off``; None ends it. Returns the
        names of earlier launches."""
        from kernellab.verifier.worker.ghost import Ghost

        try:
            watch = self._ghost = self._ghost or Ghost(message["root"])
            names = list(watch.seen)
            if message["off"] is None:
                watch.disarm()
            else:
                watch.arm(message["off"])
            wire.post(self.channel, {"ok": True, "seen": [name[:80] for name in names]})
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})

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
                tensor = flat.as_strided(shape, strides)
                if self.device != "cpu":
                    tensor = self._to_device(slot, len(args), flat).as_strided(shape, strides)
                args.append(tensor)
            sets.append(self.load(args))
        if message.get("private"):
            # each arena is unmapped with the last view of it
            self.arenas.clear()
        return sets

    def _to_device(self, slot: int, index: int, flat: Any) -> Any:
        """A device copy, at the same address as long as size and dtype are the same."""
        import torch

        copy = self.on_device.get((slot << 16) + index)
        if copy is None or copy.numel() != flat.numel() or copy.dtype != flat.dtype:
            copy = torch.empty(flat.shape, dtype=flat.dtype, device=self.device)
            self.on_device[(slot << 16) + index] = copy
        copy.copy_(flat)
        return copy


def _shift(draw: random.Random) -> Any:
    """Up to one megabyte of memory that shifts later allocations."""
    import torch

    # a storage, since tensors may be poisoned; nothing reads it
    return torch.UntypedStorage(draw.randrange(1, _SHIFT))  # type: ignore[no-untyped-call]


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
