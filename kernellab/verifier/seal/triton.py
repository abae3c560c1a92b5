"""Observes every kernel that Triton launches: binary, grid, warps, shared memory, parameters.

Triton calls its launcher class for each launch with the grid, the stream, the function's handle and the arguments, also
for autotuned kernels, with the chosen configuration. Checked with Triton 3.2 to 3.9.
"""

from __future__ import annotations

import contextlib
import gc
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernellab.verifier.seal.bundle import Argument, Launch, Relocation
from kernellab.verifier.seal.driver import Driver
from kernellab.verifier.seal.record import Recorder

_WARP = 32
_FORMATS = {
    "i1": "<?", "u1": "<?", "i8": "<b", "u8": "<B", "i16": "<h", "u16": "<H", "i32": "<i", "u32": "<I", "i64": "<q",
    "u64": "<Q", "fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d",
}  # fmt: skip


@contextlib.contextmanager
def launches(recorder: Recorder) -> Iterator[None]:
    """While entered, record each launch in ``recorder``, and run it."""
    from triton.runtime import driver  # type: ignore[import-untyped]

    launcher: Any = driver.active.launcher_cls
    original = launcher.__call__
    recorded = _Launches(recorder)

    def call(
        self: Any, x: int, y: int, z: int, stream: int, function: int, packed: Any, data: Any, enter: Any, leave: Any,
        *args: Any,
    ) -> Any:  # fmt: skip
        if not recorder.inside:
            recorded.note(self, (x, y, z), stream, function, args)
        return original(self, x, y, z, stream, function, packed, data, enter, leave, *args)

    launcher.__call__ = call
    try:
        with through_triton():
            yield
    finally:
        launcher.__call__ = original


@contextlib.contextmanager
def through_triton() -> Iterator[None]:
    """Have generated files launch through Triton's launcher, which they do where its launches are watched: under Triton
    3.6 they otherwise call what it wraps."""
    import triton  # type: ignore[import-untyped]

    hook = triton.knobs.runtime.launch_enter_hook
    hook.add(_watch)
    try:
        yield
    finally:
        hook.remove(_watch)


def _watch(_: Any) -> None:
    """A hook of Triton's that is there to be seen."""


class _Launches:
    def __init__(self, recorder: Recorder) -> None:
        import torch

        self.recorder = recorder
        self.stream = torch.cuda.current_stream().cuda_stream
        self.driver = Driver()
        self.kernels: dict[int, Any] = {}

    def note(self, launcher: Any, grid: tuple[int, int, int], stream: int, handle: int, args: Sequence[Any]) -> None:
        if 0 in grid:
            return
        kernel = self._kernel(handle)
        if kernel is None:
            return self.recorder.refuse("a kernel that it launches is not one that Triton compiled")
        if stream != self.stream:
            self.recorder.refuse("it launches on a private stream")
        meta = kernel.metadata
        arguments = self._arguments(kernel, args)
        for size in (getattr(launcher, "global_scratch_size", 0), getattr(launcher, "profile_scratch_size", 0)):
            # two pointers that Triton itself adds; a kernel without them reads no parameter there
            arguments.append(self._scratch((size or 0) * grid[0] * grid[1] * grid[2] * meta.num_ctas))
        ctas = meta.num_ctas
        self.recorder.add(
            Launch(
                module=self.recorder.binary(bytes(kernel.asm["cubin"]), "cubin"),
                name=meta.name,
                grid=(grid[0] * ctas, grid[1], grid[2]),
                block=(meta.num_warps * _WARP, 1, 1),
                shared=meta.shared,
                cluster=(ctas, 1, 1) if ctas > 1 else None,
                cooperative=bool(getattr(meta, "launch_cooperative_grid", False)),
                overlapping=bool(getattr(meta, "launch_pdl", False)),
                arguments=tuple(arguments),
            )
        )

    def _kernel(self, handle: int) -> Any:
        if handle not in self.kernels:
            for candidate in gc.get_objects():
                if type(candidate).__name__ == "CompiledKernel" and getattr(candidate, "function", None) is not None:
                    self.kernels[candidate.function] = candidate
        return self.kernels.get(handle)

    def _arguments(self, kernel: Any, args: Sequence[Any]) -> list[Argument]:
        types = list(kernel.src.signature.values())
        if len(args) != len(types):  # older versions pass no constants
            types = [t for t in types if t != "constexpr"]
        maps = iter(getattr(kernel.metadata, "tensordesc_meta", None) or ())
        arguments: list[Argument] = []
        for kind, value in _flat(types, args):
            if kind.startswith("tensordesc"):
                arguments += self._descriptor(value, next(maps, None))
            else:
                arguments.append(self._argument(kind, value))
        return arguments

    def _descriptor(self, value: Any, meta: Mapping[str, Any] | None) -> list[Argument]:
        """The parameters that Triton makes of a tensor descriptor: the copy engine's map, sizes (i32), strides (i64).

        ``meta`` is what Triton compiled for it; None if the kernel decomposes the descriptor.
        """
        if meta is None or meta.get("is_im2col"):
            self.recorder.refuse("it passes a tensor descriptor that is not the copy engine's map of tiles")
            return []
        from triton.backends.nvidia import driver as nvidia  # type: ignore[import-untyped]

        shape, strides, item = list(value.shape), list(value.strides), meta["elem_size"]
        kind = nvidia.TMA_DTYPE_DEVICE_TO_HOST[meta["elem_type"]]
        if getattr(value, "round_f32_to_tf32", False):
            kind = nvidia.TMA_TF32
        packed = [*shape[:-1], 2 * shape[-1]] if meta["fp4_padded"] else shape
        data = self.driver.tensor_map(
            value.base.data_ptr(), kind, meta["swizzle"], packed, [item * s for s in strides[:-1]], meta["block_size"],
            value.padding == "nan",
        )  # fmt: skip
        # its first eight bytes are the tensor's address, which otherwise would make two records of a call differ
        return [
            self.recorder.argument(data, self.driver.is_address),
            *(Argument(data=struct.pack("<i", n).hex()) for n in shape),
            *(Argument(data=struct.pack("<q", s).hex()) for s in strides),
        ]

    def _argument(self, kind: str, value: Any) -> Argument:
        if kind.startswith("*"):
            address = value.data_ptr() if hasattr(value, "data_ptr") else int(value or 0)
            return self.recorder.argument(struct.pack("<Q", address), self.driver.is_address)
        if kind == "bf16":
            (bits,) = struct.unpack("<I", struct.pack("<f", value))
            return Argument(data=((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).to_bytes(2, "little").hex())
        if kind not in _FORMATS:
            self.recorder.refuse(f"it passes a {kind[:24]} from the host")
            return Argument(data="")
        data = struct.pack(_FORMATS[kind], value)
        if kind in ("i64", "u64"):
            return self.recorder.argument(data, self.driver.is_address)
        return Argument(data=data.hex())

    def _scratch(self, count: int) -> Argument:
        if not count:
            return Argument(data=bytes(8).hex())
        return Argument(data=bytes(8).hex(), pointers=(Relocation(at=0, place=self.recorder.memory(count)),))


def _flat(types: Sequence[Any], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Each parameter's type and value: constants are compiled in, and a tuple expands to its members."""
    for kind, value in zip(types, values, strict=True):
        if isinstance(kind, tuple):
            yield from _flat(kind, value)
        elif kind != "constexpr":
            yield kind, value
