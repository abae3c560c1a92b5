"""Records one call of a host function: the tensors that it makes, and its launches of compiled Triton kernels."""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .steps import Container, NewTensor, Output, Patch, Place, Recording, Step

_MAKE = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
_MAKE_FILLED = {"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full"}
_FILL = {"zero_", "fill_"}
_VIEWS = {
    "view", "_unsafe_view", "as_strided", "slice", "select", "unsqueeze", "squeeze", "expand", "permute", "transpose",
    "t", "detach", "alias", "_reshape_alias", "split", "split_with_sizes", "unbind",
}  # fmt: skip
_FORMATS = {
    "i1": "<?", "u1": "<?", "i8": "<b", "u8": "<B", "i16": "<h", "u16": "<H", "i32": "<i", "u32": "<I", "i64": "<q",
    "u64": "<Q", "fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d",
}  # fmt: skip


class Unavailable(Exception):
    """Calls cannot be launched from C here; the message is the reason."""


class Refused(Exception):
    """A call cannot be replayed without its host function; ``final``: later calls cannot be either."""

    def __init__(self, reason: str, final: bool = True) -> None:
        super().__init__(reason)
        self.final = final


#: a buffer's number and its tensor
Buffer = tuple[int, torch.Tensor]


@dataclass
class _Launch:
    """One launch by Triton; ``kernel`` is set when it returns."""

    grid: tuple[int, int, int]
    function: int
    launcher: Any
    args: tuple[Any, ...]
    kernel: Any = None
    #: memory from Triton's allocator for all programs of the kernel
    scratch: Sequence[torch.Tensor] = ()


@dataclass
class _Watch:
    """All events of one call, in order."""

    thread: int = field(default_factory=threading.get_ident)
    made: list[torch.Tensor] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    refusal: Refused | None = None

    def refuse(self, reason: str, final: bool = True) -> None:
        self.refusal = self.refusal or Refused(reason, final)


@dataclass(frozen=True)
class _Fill:
    tensor: torch.Tensor
    value: float


class _Ops(TorchDispatchMode):
    """A mode that records every operator of torch in a call."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self.watch = watch

    def record(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        space, _, name = func._schema.name.partition("::")
        if space == "aten" and name in _MAKE | _MAKE_FILLED:
            self.watch.made.append(result)
            if name in _MAKE_FILLED:
                self.watch.events.append(_Fill(result, _fill_value(name, args, kwargs)))
        elif space == "aten" and name in _FILL:
            if isinstance(args[1] if len(args) > 1 else 0, torch.Tensor):
                self.watch.refuse(f"it calls {func._schema.name} with a tensor")
            else:
                self.watch.events.append(_Fill(args[0], float(args[1]) if name == "fill_" else 0.0))
        elif not (space == "aten" and name in _VIEWS):
            self.watch.refuse(f"it calls {func._schema.name}")
        return result


# set after the class is made: torch wraps one in its body, and the wrap's first call loads torch's compiler (1.3 s)
_Ops.__torch_dispatch__ = _Ops.record  # type: ignore[method-assign, assignment]


def _fill_value(name: str, args: Any, kwargs: Any) -> float:
    if "full" in name:
        place = 2 if name == "new_full" else 1
        return float(args[place] if len(args) > place else kwargs["fill_value"])
    return 1.0 if "ones" in name else 0.0


#: one call is recorded at a time, since Triton's replaced functions belong to the process
_WATCHING = threading.Lock()


@contextmanager
def _launches(watch: _Watch) -> Iterator[None]:
    """While active, each launch by Triton in this thread is recorded and executed."""
    try:
        from triton.runtime import driver  # type: ignore[import-untyped]
        from triton.runtime.jit import JITFunction  # type: ignore[import-untyped]

        launcher: Any = driver.active.launcher_cls
        original, run = launcher.__call__, JITFunction.run
    except (ImportError, AttributeError, RuntimeError) as error:
        raise Unavailable(f"Triton's launcher is not found ({error})") from None

    def call(self: Any, x: int, y: int, z: int, stream: int, function: int, *rest: Any) -> Any:
        if threading.get_ident() == watch.thread:
            # packed and launch metadata, two hooks, then the kernel's arguments
            event = _Launch((int(x), int(y), int(z)), function, self, rest[4:])
            watch.events.append(event)
            before, events = len(watch.made), len(watch.events)
            result = original(self, x, y, z, stream, function, *rest)
            # a fill by the allocator would be replayed after the launch
            event.scratch = watch.made[before:] if len(watch.events) == events else []
            return result
        return original(self, x, y, z, stream, function, *rest)

    def run_recorded(self: Any, *args: Any, **options: Any) -> Any:
        before = len(watch.events)
        kernel = run(self, *args, **options)
        if threading.get_ident() == watch.thread:
            for event in watch.events[before:]:
                if isinstance(event, _Launch) and event.kernel is None:
                    event.kernel = kernel
        return kernel

    launcher.__call__, JITFunction.run = call, run_recorded
    try:
        yield
    finally:
        launcher.__call__, JITFunction.run = original, run


class Watched(NamedTuple):
    """A call's result, its record, and the objects that its launches need."""

    result: Any
    recording: Recording
    kernels: tuple[Any, ...]


def watched(function: Callable[..., Any], args: Sequence[Any]) -> Watched:
    """Call ``function(*args)`` and record it.

    Raises:
        Refused: the call cannot be replayed; it was executed, and the exception's ``result`` is its result.
        Unavailable: Triton's launcher is not a known version.
    """
    watch = _Watch()
    with _WATCHING, _launches(watch), _Ops(watch):
        result = function(*args)
    try:
        if watch.refusal:
            raise watch.refusal
        recording = _recorded(watch, args, result)
    except Refused as refused:
        refused.result = result  # type: ignore[attr-defined]
        raise
    return Watched(result, recording, tuple(e.kernel for e in watch.events if isinstance(e, _Launch)))


def _recorded(watch: _Watch, args: Sequence[Any], result: Any) -> Recording:
    inputs = [(i, a) for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
    buffers: list[Buffer] = [*((len(args) + i, t) for i, t in enumerate(watch.made)), *inputs]
    steps = []
    for event in watch.events:
        if isinstance(event, _Launch):
            if 0 not in event.grid:
                steps.append(_launch_step(event, buffers))
        else:
            steps.append(_fill_step(event, buffers))
    if all(step.fill for step in steps):
        raise Refused("no launch of a compiled Triton kernel was seen")
    outs = [_output(tensor, watch.made) for tensor in listed(result)]
    makes = [NewTensor(tuple(t.size()), tuple(t.stride()), t.dtype) for t in watch.made]
    for i, tensor in enumerate(listed(result)):
        out = outs[i]
        if out.size is None or out.stride is None or sum(other.tensor == out.tensor for other in outs) != 1:
            continue
        whole = watch.made[out.tensor]
        fills = out.offset == 0 and tensor.numel() == whole.numel() and tensor.is_contiguous()
        if fills and whole.is_contiguous():
            # a result that is a new tensor in another shape is made in that shape
            makes[out.tensor] = NewTensor(out.size, out.stride, whole.dtype)
            outs[i] = Output(out.tensor)
    return Recording(tuple(makes), tuple(steps), _container(result), tuple(outs))


def _launch_step(event: _Launch, buffers: list[Buffer]) -> Step:
    kernel = event.kernel
    try:
        meta, types = kernel.metadata, list(kernel.src.signature.values())
        cooperative = bool(getattr(meta, "launch_cooperative_grid", False))
        threads, shared = 32 * int(meta.num_warps), int(meta.shared)
    except AttributeError:
        raise Refused("a kernel is not one that Triton compiled") from None
    if meta.num_ctas != 1 or getattr(meta, "launch_pdl", False):
        raise Refused("a kernel is launched with clusters or ahead of its predecessor")
    if getattr(event.launcher, "profile_scratch_size", 0):
        raise Refused("a kernel is compiled to be profiled")
    scratch_bytes = int(getattr(event.launcher, "global_scratch_size", 0)) * math.prod(event.grid)
    if bool(scratch_bytes) != bool(event.scratch) or len(event.scratch) > 1:
        raise Refused("a kernel's scratch memory is not what Triton's allocator makes by torch.empty")
    if len(event.args) != len(types):  # older ones are called without the constants
        types = [t for t in types if t != "constexpr"]
    data, offsets, patches = b"", [], []
    for kind, value in _flat(types, event.args):
        piece, place = _parameter(kind, value, buffers)
        data += bytes(-len(data) % len(piece))
        offsets.append(len(data))
        if place is not None:
            patches.append(Patch(len(data), *place))
        data += piece
    # two pointers that Triton itself adds, the first to scratch; a kernel without them reads no parameter there
    data += bytes(-len(data) % 8)
    offsets += [len(data), len(data) + 8]
    patches += [Patch(len(data), *_place(t.data_ptr(), buffers)) for t in event.scratch]
    data += bytes(16)
    return Step(
        cooperative=cooperative, function=int(event.function), grid=event.grid, threads=threads, shared=shared,
        data=data, offsets=tuple(offsets), patches=tuple(patches),
    )  # fmt: skip


def _flat(types: Sequence[Any], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each parameter's type and value; constants are compiled in, and a tuple's members are separate
    parameters."""
    if len(types) != len(values):
        raise Refused("a kernel's arguments are not those of its signature")
    for kind, value in zip(types, values, strict=True):
        if isinstance(kind, tuple):
            yield from _flat(kind, value)
        elif kind != "constexpr":
            yield kind, value


def _parameter(kind: str, value: Any, buffers: list[Buffer]) -> tuple[bytes, Place | None]:
    """Return a parameter's bytes, and the buffer that they are to point to."""
    if kind.startswith("*"):
        address = value.data_ptr() if hasattr(value, "data_ptr") else int(value or 0)
        return bytes(8), _place(address, buffers) if address else None
    if kind == "bf16":
        return struct.pack("<H", struct.unpack("<I", struct.pack("<f", value))[0] >> 16), None
    if kind not in _FORMATS:
        raise Refused(f"a kernel takes a {kind[:24]} from the host")
    try:
        return struct.pack(_FORMATS[kind], value), None
    except (struct.error, OverflowError) as error:
        raise Refused(f"a kernel takes {value!r} as {kind} ({error})") from None


def _place(address: int, buffers: list[Buffer]) -> Place:
    """Return the buffer that contains an address, and the offset in bytes."""
    places = [Place(i, address - t.data_ptr()) for i, t in buffers if 0 <= address - t.data_ptr() < _span(t)]
    if not places:
        raise Refused("a kernel reads memory that is neither an input nor made in the call")
    if len(places) > 1:
        raise Refused("two of the call's tensors share their memory", final=False)
    return places[0]


def _span(tensor: torch.Tensor) -> int:
    """Return the bytes from a tensor's first element to the end of its last."""
    if not tensor.numel():
        return 0
    reach = sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))
    return (reach + 1) * tensor.element_size()


def _fill_step(event: _Fill, buffers: list[Buffer]) -> Step:
    tensor = event.tensor
    if not tensor.is_contiguous() or not tensor.numel():
        raise Refused("it fills a tensor that is not contiguous")
    width, items = tensor.element_size(), tensor.numel()
    element = torch.full((1,), event.value, dtype=tensor.dtype).view(torch.uint8).numpy().tobytes()
    if width == 8 and element[:4] == element[4:]:
        width, items = 4, 2 * items
    if width > 4:
        raise Refused(f"it fills a tensor of {tensor.dtype}")
    value = int.from_bytes(element[:width], "little")
    target = Patch(0, *_place(tensor.data_ptr(), buffers))
    return Step(fill=True, patches=(target,), value=value, width=width, items=items)


def listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [] if result is None else [result]


def _container(result: Any) -> Container:
    if result is None:
        return Container.NONE
    return Container.TUPLE if type(result) is tuple else Container.LIST if type(result) is list else Container.TENSOR


def _output(result: Any, made: list[torch.Tensor]) -> Output:
    """Return a result as a new tensor, or as a view of one."""
    if type(result) is not torch.Tensor:
        raise Refused(f"it returns a {type(result).__name__}")
    for i, tensor in enumerate(made):
        if tensor is result:
            return Output(i)
    storage = result.untyped_storage().data_ptr()
    at = next((i for i, t in enumerate(made) if t.untyped_storage().data_ptr() == storage), None)
    if at is None or result.dtype != made[at].dtype:
        raise Refused("its result is not a tensor that it makes")
    return Output(at, tuple(result.size()), tuple(result.stride()), int(result.storage_offset()))


__all__ = ["Refused", "Unavailable", "listed", "watched"]
