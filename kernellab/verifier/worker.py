"""The process in which a candidate (or a baseline) runs. It is told what to call; it decides nothing.

Everything after :func:`run` has imported the candidate is the candidate's to change, so nothing that this module says
is believed: the judge reads outputs from this process's memory while it is stopped, compares them with a reference
that never was here, and times with its own clock.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernellab.verifier import sandbox, wire, worker_build
from kernellab.verifier.control import BAD_OUTPUT, RAISED, Control
from kernellab.verifier.worker_results import BadOutput, explain, flatten, place

Socket = Any
_SPIN_SECONDS = 0.05
_SHIFT = 1 << 20


def run(request: dict[str, Any], fds: dict[str, int], namespaces: str) -> None:
    """The worker's life: confine, report, then obey until the judge closes the channel. Does not return normally."""
    import socket

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(fds["log"], 1)
    os.dup2(fds["log"], 2)
    keep = {0, 1, 2, fds["packets"], fds["control"], fds["done"]}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor is already closed
                os.close(int(name))
    scratch = request["scratch"]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(os.path.join(scratch, "work"))
    import tempfile

    tempfile.tempdir = None
    held = [namespaces] if namespaces else []
    open_to_it = scratch, request.get("devices", ()), request.get("writable", ())
    held += [*sandbox.other_user(*open_to_it), *sandbox.confine(*open_to_it)]
    channel = socket.socket(fileno=fds["packets"])
    wire.post(channel, {"sandbox": held or ["process"]})
    kind: type[Worker] = Worker
    if request.get("device", "cpu") != "cpu":
        from kernellab.verifier.cuda_worker import DeviceWorker

        kind = DeviceWorker
    kind(channel, Control(fds["control"]), fds["done"], request).obey()


class Worker:
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
        #: outputs of the last two calls, so that a kernel that reuses one buffer shows
        self.kept: list[list[Any]] = []
        self.load: Callable[[Sequence[Any]], Sequence[Any]] = lambda args: args
        self._ghost: Any = None
        self.random = random.Random()
        #: the tensors that ``load`` puts a model's last arguments into
        self.parameters: list[Any] = []

    def handlers(self) -> dict[str, Callable[[dict[str, Any], list[int]], None]]:
        """What the judge may ask, by name."""
        return {
            "build": self.build,
            "arena": self.arena,
            "call": self.call,
            "trace": self.trace,
            "ghost": self.ghost,
            "copy": self.copy,
            "echo": self.echo,
            "seal": self.seal,
        }

    def obey(self) -> None:
        handlers = self.handlers()
        while True:
            message, fds = wire.take(self.channel)
            if message is None:
                return
            handlers[message["op"]](message, fds)

    # -- build

    def build(self, message: dict[str, Any], _: list[int]) -> None:
        try:
            import torch

            torch.set_num_threads(self.threads)
            if self.role == "candidate":
                if "seal" in message:
                    from kernellab.verifier.seal import inside

                    inside.watch(message["seal"], self.device)
                self._take(worker_build.candidate(message, self.device))
            elif self.role == "replayer":
                from kernellab.verifier.seal import inside

                self.function = inside.load(Path(message["bundle"]), self.device)
            else:
                self._take(worker_build.baseline(message, self.role, self.device))
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})
            return
        wire.post(self.channel, {"ok": True})

    def _take(self, built: worker_build.Built) -> None:
        self.function, self.load, self.parameters = built.function, built.load, built.parameters

    # -- calls

    def arena(self, message: dict[str, Any], fds: list[int]) -> None:
        # its pages are in place before the first call: finding them is no part of a kernel
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        self.arenas[message["slot"]] = mmap.mmap(fds[0], message["bytes"], flags=flags)
        os.close(fds[0])

    def call(self, message: dict[str, Any], _: list[int]) -> None:
        """Prepares the arguments, says so, waits for go, calls, reports where the outputs lie."""
        sequence = message["sequence"]
        try:
            args = self._arguments(message)
            if not message.get("poison", False):
                # a loop of a user's program frees a result before the next call, and so reuses its pages
                self.kept = self.kept if message["op"] == "echo" else []
            with _poisoned(message.get("poison", False)):
                self._timed(sequence, args, message.get("copies", 1))
        except BaseException as error:
            status = BAD_OUTPUT if isinstance(error, BadOutput) else RAISED
            self.control.write_error(status, json.dumps(explain(error, message.get("root", ""))))
            os.eventfd_write(self.done, 1 << 32)

    def _timed(self, sequence: int, args: Sequence[Any], copies: int) -> None:
        function, control, words, done = self.function, self.control, self.control.words, self.done
        synchronize = _synchronizer(self.device)
        synchronize()
        for warm in range(copies):
            # results lie elsewhere in each call: how fast a place is for its neighbours in the caches is luck, and
            # shall not be that of one process for as long as it lives
            shift = _shift(self.random)
            os.eventfd_write(done, 1)
            _wait(words, sequence + warm)
            start = time.perf_counter()
            result = function(*args[warm])
            synchronize()
            seconds = time.perf_counter() - start
            outputs = flatten(result, self.role == "candidate")
            for i, tensor in enumerate(outputs):
                control.write_output(i, *place(tensor))
            control.write_done(len(outputs), seconds)
            os.eventfd_write(done, 1 << 32)
            self.kept = [*self.kept[-1:], outputs] if warm + 1 == copies else []
            del result, outputs, shift

    def echo(self, message: dict[str, Any], _: list[int]) -> None:
        """The same road with nothing to compute: what the judge's clock sees of a call that takes no time."""
        outputs = self.kept[-1] if self.kept else []
        function, self.function = self.function, lambda *_: tuple(outputs)
        try:
            self.call(message, [])
        finally:
            self.function = function

    def copy(self, message: dict[str, Any], fds: list[int]) -> None:
        """Copies the last outputs, contiguous and in order, into the judge's memory (device tensors)."""
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

    def trace(self, message: dict[str, Any], _: list[int]) -> None:
        """One call under a dispatch mode: seconds inside the framework's compute operators, by name."""
        from kernellab.verifier.dispatch import library_seconds

        try:
            args = self._arguments(message)[0]
            total, by_name = library_seconds(self.function, args, _synchronizer(self.device))
            top = dict(sorted(by_name.items(), key=lambda kv: -kv[1])[:16])
            wire.post(self.channel, {"ok": True, "total": total, "library": top})
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})

    def seal(self, message: dict[str, Any], _: list[int]) -> None:
        """Records what a call does on two sets of arguments, for a replay without the candidate."""
        from kernellab.verifier.seal import inside

        scratch = Path(message["root"]).parent
        try:
            sets = self._arguments(message)
            answer = inside.seal(self.function, sets, self.parameters, message["dsl"], self.device, scratch)
        except BaseException as error:
            answer = {"ok": False, **explain(error, message["root"])}
        wire.post(self.channel, answer)

    def ghost(self, message: dict[str, Any], _: list[int]) -> None:
        """Watches the candidate's launches from now on, leaving out those named in ``off``; None ends it. Answers with
        the names of those that were seen before."""
        from kernellab.verifier.ghost import Ghost

        try:
            watch = self._ghost = self._ghost or Ghost(message["root"])
            seen = list(watch.seen)
            if message["off"] is None:
                watch.disarm()
            else:
                watch.arm(message["off"])
            wire.post(self.channel, {"ok": True, "seen": [name[:80] for name in seen]})
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
                span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
                if span:
                    flat = torch.frombuffer(self.arenas[slot], dtype=dtype, count=span, offset=spec["offset"])
                else:
                    flat = torch.empty(0, dtype=dtype)
                tensor = flat.as_strided(shape, strides)
                if self.device != "cpu":
                    tensor = self._to_device(slot, len(args), flat).as_strided(shape, strides)
                args.append(tensor)
            sets.append(self.load(args))
        return sets

    def _to_device(self, slot: int, index: int, flat: Any) -> Any:
        """A device copy at the same address as long as size and dtype are the same."""
        import torch

        held = self.on_device.get((slot << 16) + index)
        if held is None or held.numel() != flat.numel() or held.dtype != flat.dtype:
            held = torch.empty(flat.shape, dtype=flat.dtype, device=self.device)
            self.on_device[(slot << 16) + index] = held
        held.copy_(flat)
        return held


def _shift(draw: random.Random) -> Any:
    """Memory, up to a megabyte, that moves what is allocated after it."""
    import torch

    # a storage, not a tensor, which would be poisoned where tensors are: nobody looks at it
    return torch.UntypedStorage(draw.randrange(1, _SHIFT))  # type: ignore[no-untyped-call]


def _wait(words: memoryview, sequence: int) -> None:
    """Spins for the judge's go (a wake-up would cost more than a small kernel), then sleeps in small steps."""
    limit = time.perf_counter() + _SPIN_SECONDS
    while words[0] != sequence:
        if time.perf_counter() > limit:
            time.sleep(1e-4)


def _synchronizer(device: str) -> Callable[[], None]:
    if device == "cpu":
        return _nothing
    import torch

    return torch.cuda.synchronize


@contextlib.contextmanager
def _poisoned(on: bool, device: str = "cpu") -> Iterator[None]:
    """Fresh tensors hold NaN between guards, so that a place never written, or one written beyond, shows."""
    if not on:
        yield
        return
    import torch

    from kernellab.verifier.guards import guarded

    # the public function imports the whole of inductor (0.8 s)
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        with guarded(device):
            yield
    finally:
        torch._C._set_deterministic_algorithms(False)


def _missing(*_: Any) -> Any:
    raise RuntimeError("nothing was built")


def _nothing() -> None: ...
