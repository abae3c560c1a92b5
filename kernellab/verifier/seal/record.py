"""Records one call: the memory that it allocates, its fills and launches, and the places of its results.

Runs in the candidate's worker, around a call of the candidate. Torch's dispatcher reports memory; the hooks of
:mod:`triton`, :mod:`cupti` and :mod:`native` in this package report launches.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernellab.task.meta.operators import watching
from kernellab.verifier.protocol.control import span_elements
from kernellab.verifier.seal import Unsealable
from kernellab.verifier.seal.bundle import (
    SIZES,
    Argument,
    Binary,
    Buffer,
    Bundle,
    Copy,
    Fill,
    Input,
    Launch,
    Output,
    Place,
    Relocation,
    Step,
    write,
)

#: folder of a record below a worker's scratch folder
FOLDER = "sealed"
_EMPTY = {"empty", "empty_strided", "empty_like", "empty_permuted", "new_empty", "new_empty_strided"}
_FILLED = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
_READS = {"item", "_local_scalar_dense", "is_nonzero", "equal", "nonzero"}
_VIEWS = {"_unsafe_view", "_reshape_alias", "detach", "lift_fresh", "record_stream", "is_same_size", "sym_size"}

#: receives the recorder; while entered, reports the candidate's launches to it
Hook = Callable[["Recorder"], contextlib.AbstractContextManager[None]]


class Recorder:
    """The steps of one call, with every address as a place in a buffer."""

    def __init__(self, args: Sequence[Any], device: str) -> None:
        self.device = device
        self.steps: list[Step] = []
        self.buffers: list[Buffer] = []
        self.binaries: dict[str, Binary] = {}
        self.contents: dict[str, bytes] = {}
        #: the first thing that cannot be sealed; the call continues, so that it behaves as usual
        self.reason = ""
        #: true while torch performs a recorded fill or copy, whose own launches are not the candidate's
        self.inside = False
        self._ranges: list[tuple[int, int, int]] = []
        # addresses must not change until the call is over
        self._alive: list[Any] = []
        self.inputs: list[Input | None] = [self._argument(number, value) for number, value in enumerate(args)]

    # -- calls from hooks

    def refuse(self, reason: str) -> None:
        """Record the first reason why the call cannot be sealed."""
        self.reason = self.reason or reason

    def place(self, address: int) -> Place | None:
        """The place of an address; None for memory that the call neither received nor allocated."""
        for low, high, buffer in reversed(self._ranges):
            if low <= address < high:
                return Place(buffer=buffer, offset=address - low)
        return None

    def memory(self, count: int) -> Place:
        """A buffer of the call without a known address."""
        self.buffers.append(Buffer(bytes=count))
        return Place(buffer=len(self.buffers) - 1)

    def binary(self, content: bytes, kind: str) -> int:
        """The index of a binary, which is added if it is new."""
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self.binaries:
            self.binaries[digest] = Binary.model_validate({"sha256": digest, "kind": kind})
            self.contents[digest] = content
        return list(self.binaries).index(digest)

    def argument(self, data: bytes, is_address: Callable[[int], bool]) -> Argument:
        """A kernel's parameter from its bytes; ``is_address`` says whether an eight-byte value is an address."""
        blank, pointers = bytearray(data), []
        for at in range(0, len(data) - 7, 8):
            (word,) = struct.unpack_from("<Q", data, at)
            place = self.place(word) if word else None
            if place is not None:
                blank[at : at + 8] = bytes(8)
                pointers.append(Relocation(at=at, place=place))
            elif word and is_address(word):
                self.refuse("it uses device memory that was made before the call (a cache or a constant)")
        return Argument(data=blank.hex(), pointers=tuple(pointers))

    def add(self, step: Step) -> None:
        self.steps.append(step)

    # -- torch

    def operator(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run one operator and record it, or why it cannot be sealed."""
        name = func.overloadpacket.__name__
        tensors = [a for a in (*args, *kwargs.values()) if hasattr(a, "data_ptr")]
        self.inside = True
        try:
            result = func(*args, **kwargs)
        finally:
            self.inside = False
        created = [t for t in (result if isinstance(result, (tuple, list)) else (result,)) if hasattr(t, "data_ptr")]
        if name in _READS and any(self._ours(t) for t in tensors):
            self.refuse("its host code reads values from the device")
        elif self.device != "cpu" and not any(map(self._ours, (*tensors, *created))):
            pass  # host arithmetic: its result is a constant of a launch, or differs in the second record
        elif name in _EMPTY:
            self._made(created[0])
        elif name in _FILLED or name in ("full", "full_like", "new_full", "fill", "fill_", "zero_"):
            self._filled(name, created[0], args, kwargs, fresh=name not in ("fill_", "zero_"))
        elif name in ("clone", "copy_", "_to_copy", "contiguous"):
            self._copied(name, tensors, created[0], fresh=name != "copy_")
        elif not (name in _VIEWS or getattr(func, "is_view", False)):
            self.refuse(f"it calls the library operator {func.namespace}.{name}")
        return result

    def _ours(self, tensor: Any) -> bool:
        return str(tensor.device.type) == self.device.split(":")[0]

    def _made(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        self._alive.append(storage)
        self.buffers.append(Buffer(bytes=storage.nbytes()))
        low = storage.data_ptr()
        if low:
            self._ranges.append((low, low + storage.nbytes(), len(self.buffers) - 1))

    def _filled(self, name: str, tensor: Any, args: Sequence[Any], kwargs: dict[str, Any], fresh: bool) -> None:
        import torch

        if fresh:
            self._made(tensor)
        value = _FILLED.get(name, 0)
        if "full" in name or "fill" in name:
            value = kwargs.get("fill_value", kwargs.get("value", args[1] if len(args) > 1 else 0))
        if hasattr(value, "data_ptr"):
            return self.refuse("it fills memory with a tensor's value")
        pattern = torch.full((1,), value, dtype=tensor.dtype).view(torch.uint8).numpy().tobytes()
        width = next((w for w in (1, 2, 4) if pattern == pattern[:w] * (len(pattern) // w)), 0)
        if not tensor.numel():
            return None
        place = self.place(tensor.data_ptr())
        if place is None:
            self.refuse("it fills memory that was made before the call")
        elif not width or not _dense(tensor):
            self.refuse(f"it fills memory by the library operator aten.{name} in a way that no memset does")
        else:
            count = tensor.numel() * tensor.element_size() // width
            value = int.from_bytes(pattern[:width], "little")
            self.add(Fill.model_validate({"place": place, "count": count, "width": width, "value": value}))

    def _copied(self, name: str, tensors: Sequence[Any], made: Any, fresh: bool) -> None:
        target, source = (made, tensors[0]) if fresh else (tensors[0], tensors[-1])
        if not self._ours(target) or not self._ours(source):
            return self.refuse(
                "its host code reads values from the device" if self._ours(source) else "it copies from the host"
            )
        if target.untyped_storage().data_ptr() == source.untyped_storage().data_ptr() and fresh:
            return None
        if fresh:
            self._made(target)
        if not target.numel():
            return None
        same = target.dtype == source.dtype and target.shape == source.shape and target.stride() == source.stride()
        if not same or not _dense(source):
            return self.refuse(f"it {'converts' if target.dtype != source.dtype else 'copies layouts'} in torch")
        a, b = self.place(source.data_ptr()), self.place(target.data_ptr())
        if a is None or b is None:
            return self.refuse("it copies memory that was made before the call")
        self.add(Copy(source=a, target=b, bytes=target.numel() * target.element_size()))

    # -- inputs and outputs

    def _argument(self, number: int, value: Any) -> Input | None:
        if not hasattr(value, "data_ptr"):
            return None
        shape, strides = tuple(value.shape), tuple(value.stride())
        item = value.element_size()
        count = span_elements(shape, strides) * item
        self.buffers.append(Buffer(bytes=count, input=number))
        if count:
            self._ranges.append((value.data_ptr(), value.data_ptr() + count, len(self.buffers) - 1))
        return Input(dtype=str(value.dtype).removeprefix("torch."), shape=shape, strides=strides)

    def bundle(self, results: Sequence[Any]) -> Bundle:
        """The bundle of a call that returned ``results``. Raises Unsealable."""
        outputs = []
        for i, tensor in enumerate(results):
            dtype = str(tensor.dtype).removeprefix("torch.")
            if not self._ours(tensor) or dtype not in SIZES:
                self.refuse(f"its output {i} is made on the host")
            place = self.place(tensor.data_ptr()) if tensor.numel() else Place(buffer=self.memory(0).buffer)
            if place is None:
                self.refuse(f"its output {i} lies in memory that was made before the call")
                place = Place(buffer=0)
            outputs.append(Output(place=place, dtype=dtype, shape=tuple(tensor.shape), strides=tuple(tensor.stride())))
        if not self.reason and not any(step.kind in ("launch", "call") for step in self.steps):
            self.refuse("no launch was seen in its call")
        if self.reason:
            raise Unsealable(self.reason)
        return Bundle(
            inputs=tuple(self.inputs), outputs=tuple(outputs), buffers=tuple(self.buffers), steps=tuple(self.steps),
            binaries=tuple(self.binaries.values()),
        )  # fmt: skip


def record(function: Callable[..., Any], args: Sequence[Any], named: Sequence[Any], device: str, hook: Hook) -> tuple[
    Bundle, dict[str, bytes]
]:  # fmt: skip
    """The bundle of ``function(*args)``, and its binaries. ``named`` are the tensors and numbers in the place of the
    arguments of the judge's call, in order. Raises Unsealable."""
    from kernellab.verifier.worker.results import flatten

    recorder = Recorder(named, device)
    with watching(recorder.operator), hook(recorder):
        result = function(*args)
        _synchronize(device)
    return recorder.bundle(flatten(result, True)), recorder.contents


def seal(
    function: Callable[..., Any], sets: Sequence[Sequence[Any]], named: Sequence[Sequence[Any]], device: str,
    folder: Path, hook: Hook,
) -> None:  # fmt: skip
    """Record a call on each of ``sets`` (equal shapes, other contents and addresses) and write the common bundle.

    Raises Unsealable: something cannot be replayed, or the steps depend on the contents.
    """
    # one-time work (tuning, compiling, loading) is not part of a call
    function(*sets[0])
    _synchronize(device)
    first, binaries = record(function, sets[0], named[0], device, hook)
    for args, names in zip(sets[1:], named[1:], strict=True):
        again, _ = record(function, args, names, device, hook)
        if again != first:
            raise Unsealable(difference(first, again))
    first.check()
    write(folder, first, binaries)


def difference(one: Bundle, two: Bundle) -> str:
    """Describe how two records of one candidate differ."""
    kinds = [[s.name if isinstance(s, Launch) else s.kind for s in b.steps] for b in (one, two)]
    if kinds[0] != kinds[1]:
        return "what it launches changes from call to call"
    for i, (a, b) in enumerate(zip(one.steps, two.steps, strict=True)):
        if isinstance(a, Launch) and isinstance(b, Launch) and a != b:
            for what in ("grid", "block", "shared", "module"):
                if getattr(a, what) != getattr(b, what):
                    return f"the {what} of {a.name} changes with its inputs' contents"
            changed = [k for k, pair in enumerate(zip(a.arguments, b.arguments, strict=False)) if pair[0] != pair[1]]
            return f"argument {changed[0] if changed else '?'} of {a.name} changes from call to call"
        if a != b:
            return f"step {i} ({a.kind}) changes from call to call"
    return "its memory or its outputs change from call to call"


def _synchronize(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def _dense(tensor: Any) -> bool:
    """Does it fill its memory without gaps, in any order of its dimensions?"""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


@contextlib.contextmanager
def nothing(_: Recorder) -> Iterator[None]:
    """A hook for a candidate whose launches cannot be observed."""
    yield
