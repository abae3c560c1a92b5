"""Runs a bundle again: allocates and fills memory, and passes it to the recorded binaries. Runs no candidate Python.

A worker of the role "replayer" calls this in place of a candidate.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernellab.verifier.seal import Unsealable, bundle
from kernellab.verifier.seal.bundle import Bundle, Call, Copy, Fill, Launch, Output, Place, Step, Value

#: receives the addresses of all buffers, then the stream
Act = Callable[[Sequence[int], int], None]


class Replay:
    """The function of the bundle in ``folder``; called with arguments of the recorded shapes.

    Raises Unsealable for a bundle that cannot be read, ValueError for arguments of another shape or layout.
    """

    def __init__(self, folder: Path, device: str) -> None:
        self.bundle, self._binaries = bundle.read(folder)
        self.device = device
        self._make = [_maker(self.bundle, number, device) for number in range(len(self.bundle.buffers))]
        self._alone = [_alone(self.bundle, output) for output in self.bundle.outputs]
        acts: _OnHost | OnDevice
        self._stream: Callable[[], int]
        if device == "cpu":
            acts, self._stream = _OnHost(self.bundle, self._binaries), lambda: 0
        else:
            import torch

            torch.empty(1, device=device)  # makes torch's context current
            acts = OnDevice(self.bundle, self._binaries)
            self._stream = lambda: torch.cuda.current_stream().cuda_stream
        self._acts: list[Act] = [acts.act(step) for step in self.bundle.steps]
        #: registers and local memory of each launch
        self.loaded = acts.loaded

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        self._fits(args)
        memory = [args[b.input] if b.input is not None else make() for b, make in
                  zip(self.bundle.buffers, self._make, strict=True)]  # fmt: skip
        addresses = [m.data_ptr() for m in memory]
        stream = self._stream()
        for act in self._acts:
            act(addresses, stream)
        return tuple(
            memory[output.place.buffer] if alone else _view(memory[output.place.buffer], output)
            for output, alone in zip(self.bundle.outputs, self._alone, strict=True)
        )

    def _fits(self, args: Sequence[Any]) -> None:
        if len(args) != len(self.bundle.inputs):
            raise ValueError(f"the bundle was recorded with {len(self.bundle.inputs)} arguments")
        for value, recorded in zip(args, self.bundle.inputs, strict=True):
            if recorded is not None and (value.shape != recorded.shape or value.stride() != recorded.strides):
                raise ValueError(f"the bundle was recorded with the shape {recorded.shape}")
            if recorded is not None and str(value.dtype) != f"torch.{recorded.dtype}":
                raise ValueError(f"the bundle was recorded with {recorded.dtype}")


def _maker(sealed: Bundle, number: int, device: str) -> Callable[[], Any]:
    """Returns a function that allocates one buffer: as its output if that fills the buffer, otherwise as bytes."""
    import torch

    count = sealed.buffers[number].bytes
    whole = next((o for o in sealed.outputs if o.place.buffer == number and _alone(sealed, o)), None)
    shape, dtype = (whole.shape, getattr(torch, whole.dtype)) if whole else ((count,), torch.uint8)
    # looked up at each call, since a checked call allocates poisoned memory between guards
    return lambda: torch.empty(shape, dtype=dtype, device=device)


def _alone(sealed: Bundle, output: Output) -> bool:
    """Is the output a contiguous tensor that fills a separate buffer?"""
    buffer = sealed.buffers[output.place.buffer]
    contiguous, step = True, 1
    for size, stride in zip(reversed(output.shape), reversed(output.strides), strict=True):
        contiguous, step = contiguous and (size == 1 or stride == step), step * size
    buffer_outputs = [o for o in sealed.outputs if o.place.buffer == output.place.buffer]
    size = step * bundle.SIZES[output.dtype]
    return (
        buffer.input is None
        and contiguous
        and len(buffer_outputs) == 1
        and not output.place.offset
        and size == buffer.bytes
    )


def _view(memory: Any, output: Output) -> Any:
    """An output that is a part of its memory, or an argument."""
    import torch

    dtype = getattr(torch, output.dtype)
    flat = memory.reshape(-1).view(torch.uint8) if memory.is_contiguous() else memory.untyped_storage()
    if not isinstance(flat, torch.Tensor):
        raise Unsealable("its output is a part of an argument that has gaps")
    part = flat[output.place.offset :]
    part = part[: part.numel() // dtype.itemsize * dtype.itemsize]
    return part.view(dtype).as_strided(output.shape, output.strides, part.view(dtype).storage_offset())


class OnDevice:
    """Steps as calls of the CUDA driver, in the calling thread's current context."""

    def __init__(self, sealed: Bundle, binaries: dict[str, bytes]) -> None:
        from kernellab.verifier.seal.driver import Driver

        self.driver = Driver()
        self.modules = [self.driver.load(binaries[b.sha256]) for b in sealed.binaries]
        self.loaded: list[dict[str, int]] = []
        lib = self.driver.lib
        lib.cuLaunchKernelEx.argtypes = [ctypes.c_void_p] * 4
        lib.cuMemcpyDtoDAsync_v2.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
        for width, name in _SETTERS.items():
            kind = {1: ctypes.c_ubyte, 2: ctypes.c_ushort, 4: ctypes.c_uint}[width]
            getattr(lib, name).argtypes = [ctypes.c_uint64, kind, ctypes.c_size_t, ctypes.c_void_p]

    def act(self, step: Step) -> Act:
        if isinstance(step, Launch):
            return self._launch(step)
        do = self.driver.do
        if isinstance(step, Fill):
            name, value, count, place = _SETTERS[step.width], step.value, step.count, step.place
            return lambda at, stream: do(name, at[place.buffer] + place.offset, value, count, stream)
        if isinstance(step, Copy):
            source, target, size = step.source, step.target, step.bytes
            return lambda at, stream: do(
                "cuMemcpyDtoDAsync_v2", at[target.buffer] + target.offset, at[source.buffer] + source.offset, size,
                stream,
            )  # fmt: skip
        raise Unsealable("its bundle calls a host function on a device")

    def _launch(self, step: Launch) -> Act:
        function = self.driver.function(self.modules[step.module], step.name, step.shared)
        registers, local = self.driver.attributes(function)
        self.loaded.append({"registers": registers, "local": local})
        config = self.driver.config(
            step.grid, step.block, step.shared, step.cluster, step.cooperative, step.overlapping
        )  # fmt: skip
        cells = [ctypes.create_string_buffer(bytes.fromhex(a.data), len(a.data) // 2) for a in step.arguments]
        addresses = [
            (ctypes.c_uint64.from_buffer(cell, pointer.at), pointer.place.buffer, pointer.place.offset)
            for cell, argument in zip(cells, step.arguments, strict=True)
            for pointer in argument.pointers
        ]
        parameters = (ctypes.c_void_p * max(len(cells), 1))(*(ctypes.addressof(c) for c in cells))
        where, launch = ctypes.addressof(config), self.driver.lib.cuLaunchKernelEx
        failed = self.driver.do

        def act(at: Sequence[int], stream: int, keep: Any = cells) -> None:
            for cell, buffer, offset in addresses:
                cell.value = at[buffer] + offset
            config.stream = stream
            if launch(where, function, parameters, None):
                failed("cuLaunchKernelEx", where, function, parameters, None)

        return act


_SETTERS = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}


class _OnHost:
    """Steps as calls of shared objects built with tvm-ffi."""

    def __init__(self, sealed: Bundle, binaries: dict[str, bytes]) -> None:
        import tempfile

        import tvm_ffi

        self.loaded: list[dict[str, int]] = []
        self.modules = []
        for binary in sealed.binaries:
            with tempfile.NamedTemporaryFile(suffix=".so") as file:
                file.write(binaries[binary.sha256])
                file.flush()
                self.modules.append(tvm_ffi.load_module(file.name))

    def act(self, step: Step) -> Act:
        if isinstance(step, Call):
            return self._call(step)
        if isinstance(step, Fill):
            return _host_fill(step.place, step.count, step.value.to_bytes(step.width, "little"))
        if isinstance(step, Copy):
            source, target, size = step.source, step.target, step.bytes
            return lambda at, _: _ignore(
                ctypes.memmove(at[target.buffer] + target.offset, at[source.buffer] + source.offset, size)
            )
        raise Unsealable("its bundle launches a device binary on the host")

    def _call(self, step: Call) -> Act:
        function = self.modules[step.module].get_function(step.name)
        values = [v.constant for v in step.arguments]
        placed = [(i, v) for i, v in enumerate(step.arguments) if v.place is not None]

        def act(at: Sequence[int], _: int) -> None:
            for i, value in placed:
                values[i] = _given(value, at)
            function(*values)

        return act


def _given(value: Value, at: Sequence[int]) -> Any:
    assert value.place is not None
    address = at[value.place.buffer] + value.place.offset
    if not value.dtype:
        return address
    import torch

    size = max(bundle.span(value.shape, value.strides, value.dtype), 1)
    memory = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(memory, dtype=getattr(torch, value.dtype)).as_strided(value.shape, value.strides)


def _host_fill(place: Place, count: int, pattern: bytes) -> Act:
    if pattern == pattern[:1] * len(pattern):
        size, byte = count * len(pattern), pattern[0]
        return lambda at, _: _ignore(ctypes.memset(at[place.buffer] + place.offset, byte, size))
    # created once, so that a replay only copies
    content = pattern * count
    return lambda at, _: _ignore(ctypes.memmove(at[place.buffer] + place.offset, content, len(content)))


def _ignore(_: object) -> None: ...
