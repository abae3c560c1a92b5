"""Observes every kernel that reaches the driver, from any launcher: cuda.core, or nvcc's CUDA runtime in C++.

CUPTI's callbacks (part of the CUDA toolkit, and shipped with torch) report each launch before it happens, and each
device binary when it is loaded; the numbers are those of ``cupti_driver_cbid.h`` and ``cupti_callbacks.h``.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernellab.verifier.seal import Unsealable
from kernellab.verifier.seal.bundle import Argument, Copy, Fill, Launch
from kernellab.verifier.seal.driver import Driver, LaunchConfig
from kernellab.verifier.seal.record import Recorder

_DRIVER, _RESOURCE, _MODULE_LOADED, _ENTER = 1, 3, 6, 0
#: functions by callback number, including their variants for per-thread streams
_LAUNCH, _LAUNCH_EX, _COOPERATIVE = {307, 442}, {652, 653}, {477, 478}
_MEMSET = {216: 1, 428: 1, 218: 2, 429: 2, 220: 4, 430: 4}
_MEMCPY = {64, 281, 423, 306, 418}
_GRAPH, _HOST = {514, 515}, {527, 528, 831, 832}
_WATCHED = _LAUNCH | _LAUNCH_EX | _COOPERATIVE | set(_MEMSET) | _MEMCPY | _GRAPH | _HOST
_CLUSTER, _IS_COOPERATIVE, _SPREAD, _OVERLAPPING = 4, 2, 5, 6
#: largest total size of stored images
_MOST = 256 << 20


class _Call(ctypes.Structure):
    _fields_ = [
        ("site", ctypes.c_int), ("function", ctypes.c_char_p), ("parameters", ctypes.c_void_p),
        ("returned", ctypes.c_void_p), ("symbol", ctypes.c_char_p),
    ]  # fmt: skip


class _Resource(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("handle", ctypes.c_void_p), ("descriptor", ctypes.c_void_p)]


class _Module(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint32), ("size", ctypes.c_size_t), ("image", ctypes.c_void_p)]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p), ("parameters", ctypes.POINTER(ctypes.c_void_p)),
    ]  # fmt: skip


class _LaunchEx(ctypes.Structure):
    _fields_ = [
        ("config", ctypes.POINTER(LaunchConfig)), ("function", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(ctypes.c_void_p)),
    ]  # fmt: skip


class _Transfer(ctypes.Structure):
    """A memset's target, pattern and count; or a copy's target, source and bytes."""

    _fields_ = [("target", ctypes.c_uint64), ("source", ctypes.c_uint64), ("count", ctypes.c_size_t)]


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)


class _Watch:
    """The only subscription of this process."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL(_library())
        self.driver = Driver()
        self.images: list[bytes] = []
        self.recorder: Recorder | None = None
        self.stream = 0
        self.called = _Callback(self._called)
        self.subscriber = ctypes.c_void_p()
        self._do("cuptiSubscribe", ctypes.byref(self.subscriber), self.called, None)
        self._enable(_RESOURCE, _MODULE_LOADED, True)

    @contextlib.contextmanager
    def recording(self, recorder: Recorder) -> Iterator[None]:
        import torch

        self.recorder, self.stream = recorder, torch.cuda.current_stream().cuda_stream
        try:
            for number in _WATCHED:
                # an older CUPTI does not know the newest functions, which nothing can then call
                with contextlib.suppress(Unsealable):
                    self._enable(_DRIVER, number, True)
            yield
        finally:
            self.recorder = None
            for number in _WATCHED:
                with contextlib.suppress(Unsealable):
                    self._enable(_DRIVER, number, False)

    def _enable(self, domain: int, number: int, on: bool) -> None:
        self._do("cuptiEnableCallback", ctypes.c_uint32(on), self.subscriber, domain, ctypes.c_uint32(number))

    def _do(self, name: str, *args: Any) -> None:
        code = getattr(self.lib, name)(*args)
        if code:
            raise Unsealable(f"CUPTI does not let its launches be seen ({name}: {code})")

    def _called(self, _: Any, domain: int, number: int, data: int) -> None:
        if domain == _RESOURCE:
            resource = _Resource.from_address(data)
            module = _Module.from_address(resource.descriptor)
            if module.image and sum(map(len, self.images)) + module.size <= _MOST:
                self.images.append(ctypes.string_at(module.image, module.size))
            return
        recorder, call = self.recorder, _Call.from_address(data)
        if recorder is None or recorder.inside or call.site != _ENTER:
            return
        try:
            self._note(recorder, number, call)
        except Exception as error:  # an exception would be lost in C
            recorder.refuse(f"a launch could not be read ({type(error).__name__}: {error})")

    def _note(self, recorder: Recorder, number: int, call: _Call) -> None:
        if number in _LAUNCH or number in _COOPERATIVE:
            launch = _Launch.from_address(call.parameters)
            self._launch(recorder, call.symbol, launch, launch.function, launch.parameters, [(_IS_COOPERATIVE, [1])]
                         if number in _COOPERATIVE else [])  # fmt: skip
        elif number in _LAUNCH_EX:
            extended = _LaunchEx.from_address(call.parameters)
            config = extended.config.contents
            attributes = [(a.id, list(a.value)) for a in config.attributes[: config.count]] if config.count else []
            self._launch(recorder, call.symbol, config, extended.function, extended.parameters, attributes)
        elif number in _GRAPH:
            recorder.refuse("it launches a CUDA graph")
        elif number in _HOST:
            recorder.refuse("it queues host code on the device's stream")
        else:
            self._transfer(recorder, number, _Transfer.from_address(call.parameters))

    def _transfer(self, recorder: Recorder, number: int, given: _Transfer) -> None:
        target = recorder.place(given.target)
        if number in _MEMSET:
            width = _MEMSET[number]
            if target is None:
                return recorder.refuse("it fills memory that was made before the call")
            pattern = given.source & ((1 << 8 * width) - 1)
            return recorder.add(
                Fill.model_validate({"place": target, "count": given.count, "width": width, "value": pattern})
            )
        source = recorder.place(given.source)
        if target is None or source is None:
            return recorder.refuse("it copies memory that was made before the call, or the host's")
        recorder.add(Copy(source=source, target=target, bytes=given.count))

    def _launch(
        self, recorder: Recorder, symbol: bytes, given: Any, function: int, parameters: Any,
        attributes: list[tuple[int, list[int]]],
    ) -> None:  # fmt: skip
        images = {i for i in self.images if b"\0" + symbol + b"\0" in i}
        if len(images) != 1:
            which = (
                f"{len(images)} binaries have a kernel named" if images else "no binary was seen with a kernel named"
            )
            return recorder.refuse(f"{which} {symbol.decode()}")
        (image,) = images
        if (given.stream or 0) != self.stream:
            recorder.refuse("it launches on a private stream")
        cluster = next(((v[0], v[1], v[2]) for n, v in attributes if n == _CLUSTER), None)
        known_attributes = {_CLUSTER, _IS_COOPERATIVE, _SPREAD, _OVERLAPPING, 0}
        strange = [n for n, _ in attributes if n not in known_attributes]
        if strange:
            recorder.refuse(f"it launches with the attribute {strange[0]}")
        on = {n for n, v in attributes if v[0]}
        recorder.add(
            Launch(
                module=recorder.binary(image, "cubin"),
                name=symbol.decode(),
                grid=tuple(given.grid),
                block=tuple(given.block),
                shared=given.shared,
                cluster=cluster,
                cooperative=_IS_COOPERATIVE in on,
                overlapping=_OVERLAPPING in on,
                arguments=tuple(self._arguments(recorder, function, parameters)),
            )
        )

    def _arguments(self, recorder: Recorder, function: int, parameters: Any) -> Iterator[Argument]:
        sizes = self._sizes(function)
        if sizes and not parameters:
            return recorder.refuse("it passes its arguments as one block")
        for number, size in enumerate(sizes):
            yield recorder.argument(ctypes.string_at(parameters[number], size), self.driver.is_address)

    def _sizes(self, function: int) -> list[int]:
        """Bytes of each parameter; a handle may be a function's or a kernel's."""
        offset, size, sizes = ctypes.c_size_t(), ctypes.c_size_t(), list[int]()
        for name in ("cuFuncGetParamInfo", "cuKernelGetParamInfo"):
            query, handle = getattr(self.driver.lib, name), ctypes.c_void_p(function)
            while not query(handle, ctypes.c_size_t(len(sizes)), ctypes.byref(offset), ctypes.byref(size)):
                sizes.append(size.value)
            if sizes:
                break
        return sizes


_watch: list[_Watch] = []


def remember() -> None:
    """Store every device binary loaded from now on. Raises Unsealable if CUPTI is not available."""
    if not _watch:
        _watch.append(_Watch())


def launches(recorder: Recorder) -> contextlib.AbstractContextManager[None]:
    """A hook that records each launch; requires :func:`remember` before the binaries are loaded."""
    if not _watch:
        raise Unsealable("its launches were not watched from the start")
    return _watch[0].recording(recorder)


def _library() -> str:
    """The CUPTI library that torch has loaded, otherwise the system's."""
    maps = Path("/proc/self/maps").read_text("utf-8", "surrogateescape")
    for line in maps.splitlines():
        if "libcupti.so" in line:
            return line.split(None, 5)[-1]
    for version in (13, 12):
        with contextlib.suppress(OSError):
            ctypes.CDLL(f"libcupti.so.{version}")
            return f"libcupti.so.{version}"
    raise Unsealable("CUPTI is not installed, so its launches cannot be seen")
