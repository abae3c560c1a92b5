"""A worker on a CUDA device: what :mod:`~kernellab.verifier.worker` does, with arguments in mapped device memory.

The context is made here, after the sandbox stands; the fork server never has one. For a timed call the arguments'
places are prepared, and a call on what lies there warms the host's side (``ready``); the judge then writes contents
that nobody has seen, and flushes the L2; at ``go`` the kernel is called, and the answer given after a device-wide
synchronisation.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import Any

from kernellab.verifier import cuda_driver, cuda_pool, wire
from kernellab.verifier.control import BAD_OUTPUT, RAISED
from kernellab.verifier.device import set_precision
from kernellab.verifier.worker import BadOutput, Worker, _place, _poisoned, _wait, explain, flatten

_DONE = 1 << 32
#: descriptors that one message may carry
_AT_ONCE = 8


class DeviceWorker(Worker):
    """Started like any worker; its first build starts CUDA."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.device_pool: cuda_pool.Pool | None = None
        self.mapped: dict[int, cuda_driver.Mapping] = {}
        self.tiny: Any = None
        self.events: tuple[Any, Any] | None = None

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "attach": self.attach, "detach": self.detach, "segments": self.segments}

    def build(self, message: dict[str, Any], fds: list[int]) -> None:
        try:
            self.start_device(message.get("precision", {}))
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, ""), "type": "DeviceFailure"})
            return
        super().build(message, fds)

    def start_device(self, precision: dict[str, str]) -> None:
        """Makes the context, and lets torch take its memory from the judge's allocator."""
        import torch

        if self.tiny is not None:
            return
        torch.cuda.init()  # type: ignore[no-untyped-call]
        set_precision(precision)
        library = os.environ.pop(cuda_pool.VARIABLE, "")
        if library:
            self.device_pool = cuda_pool.Pool(library)
        # both kernels that this module launches itself are loaded here, outside every clock
        self.tiny = torch.zeros(1, device=self.device)
        self.tiny.add_(1)
        make: Any = torch.cuda.Event
        self.events = make(enable_timing=True), make(enable_timing=True)
        torch.cuda.synchronize()

    # -- memory

    def attach(self, message: dict[str, Any], fds: list[int]) -> None:
        """Maps the judge's memory, for reading only unless told otherwise, and says at what address."""
        self.detach(message, [], silent=True)
        access = cuda_driver.READ_WRITE if message.get("write") else cuda_driver.READ
        try:
            mapping = cuda_driver.attach(fds[0], message["bytes"], self._index(), access)
        except cuda_driver.DriverError as error:
            wire.post(self.channel, {"ok": False, "type": "DeviceFailure", "message": str(error)})
            return
        finally:
            os.close(fds[0])
        self.mapped[message["slot"]] = mapping
        wire.post(self.channel, {"ok": True, "base": mapping.address})

    def detach(self, message: dict[str, Any], _: list[int], silent: bool = False) -> None:
        held = self.mapped.pop(message["slot"], None)
        if held is not None:
            held.close()
        if not silent:
            wire.post(self.channel, {"ok": True})

    def segments(self, message: dict[str, Any], _: list[int]) -> None:
        """Sends descriptors of the allocator's pieces from ``first`` on, and which pieces are in use no more."""
        table = self.device_pool.segments() if self.device_pool is not None else []
        first = int(message["first"])
        batch = table[first : first + _AT_ONCE]
        given = [s for s in batch if s.live and s.fd >= 0]
        wire.post(
            self.channel,
            {
                "ok": True, "next": first + len(batch), "more": first + len(batch) < len(table),
                "segments": [[first + i, s.address, s.size] for i, s in enumerate(batch) if s.live and s.fd >= 0],
                "dead": [i for i, s in enumerate(table[:first]) if not s.live][-1024:],
            },
            [s.fd for s in given],
        )  # fmt: skip

    def copy(self, message: dict[str, Any], _: list[int]) -> None:
        """Copies the last outputs, contiguous and in order, into the judge's memory ``slot``."""
        import torch

        target, place = self.mapped[message["slot"]], 0
        for tensor in self.kept[-1]:
            size = tensor.numel() * tensor.element_size()
            if size and place + size <= target.size:
                into = cuda_driver.bytes_at(target.address + place, size).view(tensor.dtype)
                into.copy_(tensor.reshape(-1))
            place += -(-size // 256) * 256
        torch.cuda.synchronize()
        wire.post(self.channel, {"ok": True})

    def _index(self) -> int:
        import torch

        return int(torch.cuda.current_device())

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
                if 0 in shape:
                    args.append(torch.empty(shape, dtype=dtype, device=self.device))
                    continue
                count = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
                item = torch.empty(0, dtype=dtype).element_size()
                raw = cuda_driver.bytes_at(self.mapped[slot].address + spec["offset"], count * item)
                args.append(raw.view(dtype).as_strided(shape, strides))
            sets.append(self.load(args))
        return sets

    # -- calls

    def call(self, message: dict[str, Any], _: list[int]) -> None:
        """As on a CPU; with ``warm`` a call on the contents of the call before comes first."""
        try:
            args = self._arguments(message)
            if not message.get("poison", False):
                self.kept = self.kept if message["op"] == "echo" else []
            with _poisoned(message.get("poison", False), "cuda"):
                self._run(message["sequence"], args, message.get("warm", False))
        except BaseException as error:
            status = BAD_OUTPUT if isinstance(error, BadOutput) else RAISED
            self.control.write_error(status, json.dumps(explain(error, message.get("root", ""))))
            os.eventfd_write(self.done, _DONE)

    def _run(self, sequence: int, args: list[Sequence[Any]], warm: bool) -> None:
        import torch

        assert self.events is not None
        function, control, words, done = self.function, self.control, self.control.words, self.done
        synchronize, (begin, end) = torch.cuda.synchronize, self.events
        synchronize()
        if warm:
            # on what the last call left there: a process that was halted finds nothing of its own in the caches
            function(*args[0])
            synchronize()
        for number, given in enumerate(args):
            os.eventfd_write(done, 1)
            _wait(words, sequence + number)
            begin.record()
            result = function(*given)
            end.record()
            synchronize()
            seconds = begin.elapsed_time(end) * 1e-3
            outputs = [self._on_device(t) for t in flatten(result, self.role == "candidate")]
            for i, tensor in enumerate(outputs):
                control.write_output(i, *_place(tensor))
            control.write_done(len(outputs), seconds)
            os.eventfd_write(done, _DONE)
            self.kept = [*self.kept[-1:], outputs] if number + 1 == len(args) else []
            del result, outputs

    def _on_device(self, tensor: Any) -> Any:
        if tensor.device.type == "cuda" or self.role not in ("candidate", "replayer"):
            return tensor
        if not tensor.dim():
            return tensor.to(self.device)
        raise BadOutput(f"kernel returned a tensor on {tensor.device}, not on {self.device}")

    def echo(self, message: dict[str, Any], _: list[int]) -> None:
        """The same road with one tiny kernel: what the judge's clock sees of a launch that takes no time."""
        outputs, tiny = self.kept[-1] if self.kept else [], self.tiny

        def call(*_: Any) -> tuple[Any, ...]:
            tiny.add_(1)
            return tuple(outputs)

        function, self.function = self.function, call
        try:
            self.call(message, [])
        finally:
            self.function = function

    def trace(self, message: dict[str, Any], _: list[int]) -> None:
        """Seconds of one call on the device, those of the framework's kernels by name, and the span of all."""
        from kernellab.verifier.cuda_trace import activity

        try:
            args = self._arguments(message)[0]
            start = time.perf_counter()
            found = activity(lambda: self.function(*args), int(message.get("flush", 0)))
            wire.post(self.channel, {"ok": True, **found, "seconds": time.perf_counter() - start})
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})
