"""A worker on a CUDA device: as :mod:`~kernellab.verifier.worker.calls`, with arguments in mapped device memory.

The context is created here, after the sandbox is in place; the fork server never has one. For timed calls the worker
prepares the arguments' places, and a call on their current contents warms the host side (``ready``); the judge then
writes new contents and flushes the L2. At ``go`` the kernel is called on each set of arguments, and the answer follows
a device-wide synchronisation. Either the judge's own kernel occupies the device for a while, and launches hide behind
it as they do behind earlier calls (``led``), or a tiny kernel first switches the device to this process, so that no
launch can hide behind the switch. This module takes what it needs of torch before the candidate is imported: a replaced
``torch.cuda.synchronize`` changes nothing here.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernellab.verifier.cases.device import set_precision
from kernellab.verifier.cuda import driver as cuda_driver
from kernellab.verifier.cuda import pool as cuda_pool
from kernellab.verifier.cuda import trace as cuda_trace
from kernellab.verifier.protocol import wire
from kernellab.verifier.protocol.control import BAD_OUTPUT, DONE, RAISED, READY, span_elements
from kernellab.verifier.worker.calls import Worker, _nothing, _wait
from kernellab.verifier.worker.guards import poisoned
from kernellab.verifier.worker.results import BadOutput, explain, flatten, place
from kernellab.verifier.worker.shared_poison import SharedPoison

#: largest number of descriptors in one message
_AT_ONCE = 8


class DeviceWorker(Worker):
    """A worker whose first build starts CUDA; otherwise started like any other."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.device_pool: cuda_pool.Pool | None = None
        self.mapped: dict[int, cuda_driver.Mapping] = {}
        self.tiny: Any = None
        #: None if the driver does not accept it
        self.shared_poison: SharedPoison | None = None
        self.events: tuple[Any, Any] | None = None
        self.synchronize: Callable[[], Any] = _nothing

    def build(self, message: dict[str, Any], fds: list[int]) -> None:
        try:
            self.start_device(message.get("precision", {}))
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, ""), "type": "DeviceFailure"})
            return
        super().build(message, fds)

    def start_device(self, precision: dict[str, str]) -> None:
        """Create the context, and make torch allocate its memory with the judge's allocator."""
        import torch

        if self.tiny is not None:
            return
        torch.cuda.init()  # type: ignore[no-untyped-call]
        _count_devices()
        set_precision(precision)
        library = os.environ.pop(cuda_pool.VARIABLE, "")
        if library:
            self.device_pool = cuda_pool.Pool(library)
        # both kernels that this module launches are loaded here, outside every clock
        self.tiny = torch.zeros(1, device=self.device)
        self.tiny.add_(1)
        make: Any = torch.cuda.Event
        self.events = make(enable_timing=True), make(enable_timing=True)
        with contextlib.suppress(cuda_driver.DriverError, OSError):
            self.shared_poison = SharedPoison()
        self.synchronize = getattr(torch._C, "_cuda_synchronize", torch.cuda.synchronize)
        self.synchronize()

    # -- memory

    def attach(self, message: dict[str, Any], fds: list[int]) -> None:
        """Map the judge's memory, read-only unless requested otherwise, and send its address."""
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
        mapping = self.mapped.pop(message["slot"], None)
        if mapping is not None:
            mapping.close()
        if not silent:
            wire.post(self.channel, {"ok": True})

    def segments(self, message: dict[str, Any], _: list[int]) -> None:
        """Send descriptors of the allocator's pieces from ``first`` on, and the numbers of freed pieces."""
        table = self.device_pool.segments() if self.device_pool is not None else []
        first = int(message["first"])
        batch = table[first : first + _AT_ONCE]
        live = [s for s in batch if s.live and s.fd >= 0]
        wire.post(
            self.channel,
            {
                "ok": True, "next": first + len(batch), "more": first + len(batch) < len(table),
                "segments": [[first + i, s.address, s.size] for i, s in enumerate(batch) if s.live and s.fd >= 0],
                "dead": [i for i, s in enumerate(table[:first]) if not s.live][-1024:],
            },
            [s.fd for s in live],
        )  # fmt: skip

    def copy(self, message: dict[str, Any], _: list[int]) -> None:
        """Copy the outputs of the last ``calls``, contiguous and in order, into the judge's memory ``slot``."""
        target, place = self.mapped[message["slot"]], 0
        for tensor in (t for outputs in self.last_outputs[-int(message["calls"]) :] for t in outputs):
            size = tensor.numel() * tensor.element_size()
            if size and place + size <= target.size:
                into = cuda_driver.bytes_at(target.address + place, size).view(tensor.dtype)
                into.copy_(tensor.reshape(-1))
            place += -(-size // 256) * 256
        self.synchronize()
        wire.post(self.channel, {"ok": True})

    def _index(self) -> int:
        import torch

        return int(torch.cuda.current_device())

    def _arguments(self, message: dict[str, Any]) -> list[Sequence[Any]]:
        return [self.load(self._tensors(message["args"], self.mapped[slot].address)) for slot in message["slots"]]

    def _calls_arguments(self, message: dict[str, Any]) -> list[Sequence[Any]]:
        """The arguments of ``calls`` calls, whose places are ``stride`` bytes apart in one slot."""
        base, stride = self.mapped[message["slots"][0]].address, message["stride"]
        return [self.load(self._tensors(message["args"], base + i * stride)) for i in range(message["calls"])]

    def _tensors(self, places: Sequence[dict[str, Any]], base: int) -> list[Any]:
        """The arguments at ``places`` of the memory at the address ``base``."""
        import torch

        args: list[Any] = []
        for spec in places:
            if "value" in spec:
                args.append(spec["value"])
                continue
            dtype = getattr(torch, spec["dtype"])
            shape, strides = spec["shape"], spec["strides"]
            if 0 in shape:
                args.append(torch.empty(shape, dtype=dtype, device=self.device))
                continue
            count = span_elements(shape, strides)
            item = torch.empty(0, dtype=dtype).element_size()
            raw = cuda_driver.bytes_at(base + spec["offset"], count * item)
            args.append(raw.view(dtype).as_strided(shape, strides))
        return args

    # -- calls

    def call(self, message: dict[str, Any], _: list[int]) -> None:
        """As on a CPU; nothing is timed."""
        try:
            args = self._arguments(message)
            poison = message.get("poison", False)
            if not poison:
                self.last_outputs = []
            with poisoned(poison, "cuda"):
                self._run(args, self.shared_poison if poison else None)
        except BaseException as error:
            self._failed(error, message)

    def _run(self, args: list[Sequence[Any]], poison: SharedPoison | None) -> None:
        control, done = self.control, self.done
        self.synchronize()
        for number, call_args in enumerate(args):
            last = control.words[0]
            os.eventfd_write(done, READY)
            go = _wait(control.words, last)
            if poison is not None:
                poison(0)
            result = self.function(*call_args)
            self.synchronize()
            outputs = [self._on_device(t) for t in flatten(result, self.role == "candidate")]
            for i, tensor in enumerate(outputs):
                control.write_output(i, *place(tensor))
            control.write_done(len(outputs), 0.0)
            control.answered(go)
            os.eventfd_write(done, DONE)
            self.last_outputs = [*self.last_outputs[-1:], outputs] if number + 1 == len(args) else []
            del result, outputs

    def timed(self, message: dict[str, Any], _: list[int]) -> None:
        """``calls`` calls in one go, each on separate arguments, with all outputs stored. With ``warm``, a call on the
        earlier contents comes first; ``led``: the judge has the device for a while after the go. With ``echo``, the
        same path with one tiny kernel on it, which measures a handshake."""
        try:
            sets = self._calls_arguments(message)
            function, outputs = self.function, iter(self.last_outputs)
            if message["echo"]:
                launch = iter([self.tiny])

                def function(*_: Any) -> Any:
                    for tiny in launch:
                        tiny.add_(1)
                    return tuple(next(outputs, ()))

            else:
                self.last_outputs = []
            warm = message["warm"] and not message["echo"]
            self.last_outputs = self._at_go(sets, function, warm, message["led"])
        except BaseException as error:
            self._failed(error, message)

    def _at_go(self, sets: list[Sequence[Any]], function: Callable[..., Any], warm: bool, led: bool) -> list[list[Any]]:
        assert self.events is not None
        control, words, done, tiny = self.control, self.control.words, self.done, self.tiny
        synchronize, (begin, end), strict = self.synchronize, self.events, self.role == "candidate"
        results: list[Any] = [None] * len(sets)
        synchronize()
        if warm:
            # a process that was halted finds none of its data in the caches
            function(*sets[0])
            synchronize()
        last = words[0]
        os.eventfd_write(done, READY)
        go = _wait(words, last)
        if not led:
            tiny.add_(1)
            synchronize()
        begin.record()
        for i, call_args in enumerate(sets):
            results[i] = function(*call_args)
        end.record()
        synchronize()
        seconds = begin.elapsed_time(end) * 1e-3
        outputs = [[self._on_device(t) for t in flatten(result, strict)] for result in results]
        self._report_places(outputs)
        control.write_done(sum(map(len, outputs)), seconds)
        control.answered(go)
        os.eventfd_write(done, DONE)
        return outputs

    def _report_places(self, outputs: Sequence[Sequence[Any]]) -> None:
        """Report the places of all outputs; quickly, since the clock runs: all calls' are mostly like the first's."""
        control, number = self.control, 0
        first_forms = [(t.shape, t.stride(), t.dtype, t.storage_offset()) for t in outputs[0]]
        for call, call_outputs in enumerate(outputs):
            for i, t in enumerate(call_outputs):
                if (
                    call
                    and i < len(first_forms)
                    and (t.shape, t.stride(), t.dtype, t.storage_offset()) == first_forms[i]
                ):
                    control.write_like(number, i, t.data_ptr())
                else:
                    control.write_output(number, *place(t))
                number += 1

    def _failed(self, error: BaseException, message: dict[str, Any]) -> None:
        status = BAD_OUTPUT if isinstance(error, BadOutput) else RAISED
        self.control.write_error(status, json.dumps(explain(error, message.get("root", ""))))
        os.eventfd_write(self.done, DONE)

    def _on_device(self, tensor: Any) -> Any:
        if tensor.is_cuda or self.role not in ("candidate", "replayer"):
            return tensor
        if not tensor.dim():
            return tensor.to(self.device)
        raise BadOutput(f"kernel returned a tensor on {tensor.device}, not on {self.device}")

    def trace(self, message: dict[str, Any], _: list[int]) -> None:
        """Trace device activity of calls on one set of arguments (:func:`cuda_trace.activity`)."""

        def report() -> Mapping[str, Any]:
            args = self._arguments(message)[0]
            start = time.perf_counter()
            activity = cuda_trace.activity(lambda: self.function(*args), int(message.get("flush", 0)), self.synchronize)
            return {**activity, "seconds": time.perf_counter() - start}

        self._answer(message, report)


def _count_devices() -> None:
    """Make torch get the number of devices from the driver, as usual. If torch queries NVML, as the fork server must,
    it may find none in a sandbox, and then returns None for the current device."""
    import torch

    os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
    count = int(torch._C._cuda_getDeviceCount())
    if count > 0:
        torch.cuda._cached_device_count = count
