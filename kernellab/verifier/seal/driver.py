"""The few functions of the CUDA driver that a replay needs, through ctypes: every machine with a GPU has libcuda."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from kernellab.errors import VerifierError

_SHARED_MAX, _REGISTERS, _LOCAL = 8, 4, 3
_PREFER_SHARED = 1
_CLUSTER, _COOPERATIVE, _SPREAD, _OVERLAPPING = 4, 2, 5, 6
#: a kernel needs an explicit setting to use more shared memory than this
_DEFAULT_SHARED = 48 * 1024
#: size of a CUtensorMap in bytes, and the alignment of its address
_MAP_BYTES, _MAP_ALIGNED = 128, 64
#: CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_NOT_INTERLEAVED, _PROMOTED = 0, 2


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16)]


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(LaunchAttribute)), ("count", ctypes.c_uint),
    ]  # fmt: skip


class CudaError(VerifierError):
    """A driver call failed."""


class Driver:
    """Works in the calling thread's current context, which the caller has created."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")

    def do(self, name: str, *args: Any) -> None:
        """Call a function of the driver by name. Raises CudaError."""
        code = getattr(self.lib, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(code, ctypes.byref(text))
            raise CudaError(f"{name} failed: {(text.value or b'error').decode()} ({code}).", "")

    def load(self, image: bytes) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        self.do("cuModuleLoadData", ctypes.byref(module), image)
        return module

    def function(self, module: ctypes.c_void_p, name: str, shared: int) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self.do("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared > _DEFAULT_SHARED:
            self.do("cuFuncSetCacheConfig", function, _PREFER_SHARED)
            self.do("cuFuncSetAttribute", function, _SHARED_MAX, shared)
        return function

    def attributes(self, function: ctypes.c_void_p) -> tuple[int, int]:
        """Registers per thread, and bytes of local memory per thread (spills)."""
        values = []
        for attribute in (_REGISTERS, _LOCAL):
            value = ctypes.c_int()
            self.do("cuFuncGetAttribute", ctypes.byref(value), attribute, function)
            values.append(value.value)
        return values[0], values[1]

    def config(
        self, grid: Sequence[int], block: Sequence[int], shared: int, cluster: Sequence[int] | None, cooperative: bool,
        overlapping: bool,
    ) -> LaunchConfig:  # fmt: skip
        """The argument of cuLaunchKernelEx; the stream is set at the call."""
        settings: list[tuple[int, Sequence[int]]] = []
        if cluster is not None:
            settings += [(_CLUSTER, cluster), (_SPREAD, (1,))]
        settings += [(_COOPERATIVE, (1,))] if cooperative else []
        settings += [(_OVERLAPPING, (1,))] if overlapping else []
        attributes = (LaunchAttribute * max(len(settings), 1))()
        for attribute, (number, values) in zip(attributes, settings, strict=False):
            attribute.id = number
            for i, value in enumerate(values):
                attribute.value[i] = value
        config = LaunchConfig((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), shared)
        config.attributes, config.count = ctypes.cast(attributes, ctypes.POINTER(LaunchAttribute)), len(settings)
        config.keep = attributes
        return config

    def tensor_map(
        self, address: int, kind: int, swizzle: int, shape: Sequence[int], strides: Sequence[int], box: Sequence[int],
        nan: bool,
    ) -> bytes:  # fmt: skip
        """The copy engine's map (CUtensorMap) of a tensor in device memory, read in boxes.

        Args:
            kind, swizzle: CUtensorMapDataType and CUtensorMapSwizzle.
            shape, box: in elements, the last dimension first in memory.
            strides: in bytes, of all dimensions but the last.
            nan: are elements outside the tensor read as NaN? Otherwise as 0.
        """
        rank = len(shape)
        sizes, steps = (ctypes.c_uint64 * rank)(*reversed(shape)), (ctypes.c_uint64 * rank)(*reversed(strides))
        boxes, ones = (ctypes.c_uint32 * rank)(*reversed(box)), (ctypes.c_uint32 * rank)(*[1] * rank)
        memory = ctypes.create_string_buffer(_MAP_BYTES + _MAP_ALIGNED)
        at = -(-ctypes.addressof(memory) // _MAP_ALIGNED) * _MAP_ALIGNED
        self.do(
            "cuTensorMapEncodeTiled", ctypes.c_void_p(at), kind, rank, ctypes.c_void_p(address), sizes, steps, boxes,
            ones, _NOT_INTERLEAVED, swizzle, _PROMOTED, int(nan),
        )  # fmt: skip
        return ctypes.string_at(at, _MAP_BYTES)

    def is_address(self, word: int) -> bool:
        """Is it an address of memory known to CUDA?"""
        kind = ctypes.c_uint()
        code = self.lib.cuPointerGetAttribute(ctypes.byref(kind), 2, ctypes.c_uint64(word))
        return code == 0 and kind.value != 0
