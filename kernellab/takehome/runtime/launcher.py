"""Launches what a host function launched before, without running it again.

The first calls with new shapes run the host function as it is, and watch what it does: which tensors it makes and which
compiled Triton kernels it launches with which parameters. Where two calls did the same, and a replay gave the same
result, later calls that look alike (dtypes, shapes, strides, alignment, numbers) make the tensors and launch the
kernels from C. All others go to the host function, as before; :attr:`Launcher.notes` says why where that stays so.

This file and launcher.c need torch and a C compiler, and nothing else.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: shapes that one launcher keeps plans for
MOST_PLANS = 512
#: calls with one shape that are watched before it is given up
MOST_TRIES = 4
#: relative Frobenius error up to which a replay is the same: sums by atomics come in another order
_SAME = 1e-2

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
    """Why calls cannot be launched from C here, in a sentence."""


class Refused(Exception):
    """Why a call's work cannot be repeated without its host function; ``final``: nor can any later call's."""

    def __init__(self, reason: str, final: bool = True) -> None:
        super().__init__(reason)
        self.final = final


# -- the C half --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def extension() -> Any:
    """launcher.c as a module, compiled once for this Python and kept in the user's cache.

    Raises:
        Unavailable: there is no C compiler, no Python.h, or the compiler fails.
    """
    source = Path(__file__).with_name("launcher.c")
    text = source.read_text(encoding="utf-8")
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise Unavailable("no C compiler is found to build the launcher")
    tag = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    digest = hashlib.sha256(f"{text}\0{tag}\0{sys.version}".encode()).hexdigest()[:16]
    name = f"kernel_launcher-{digest}.so"
    built = _cache() / name
    if not built.exists():
        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / name
            include = sysconfig.get_paths()["include"]
            command = [compiler, "-O2", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(made), "-ldl"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Unavailable(f"the C compiler does not run ({error})") from None
            if done.returncode:
                first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
                raise Unavailable(f"the launcher does not compile ({first})")
            kept = built.with_name(f"{name}.{os.getpid()}")
            shutil.copy(made, kept)
            kept.replace(built)
    loader = importlib.machinery.ExtensionFileLoader("kernel_launcher", str(built))
    spec = importlib.util.spec_from_file_location("kernel_launcher", built, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _cache() -> Path:
    """A folder of this user's own for compiled files."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="kernels-"))


def _empty_on(device: torch.device) -> Callable[[Any, Any, Any], torch.Tensor]:
    """``(size, stride, dtype)`` to a tensor on the current device of that type; torch's own quick way where it is."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, f"_empty_strided_{device.type}", None)
    if quick is not None:
        return quick  # type: ignore[no-any-return]
    return lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device=device.type)


def _quiet() -> tuple[Callable[[], Any], ...]:
    """What is false while nothing watches torch's calls: dispatch modes, and transforms such as vmap.

    Raises:
        Unavailable: this torch has no such questions.
    """
    try:
        return (torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack)
    except AttributeError as error:
        raise Unavailable(f"this torch ({torch.__version__}) does not say what watches its calls ({error})") from None


# -- watching a call ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A kernel's launch, or a fill of memory. ``patches``: (place in the parameters, buffer, shift in bytes)."""

    fill: bool = False
    function: int = 0
    grid: tuple[int, int, int] = (0, 0, 0)
    threads: int = 0
    shared: int = 0
    data: bytes = b""
    offsets: tuple[int, ...] = ()
    patches: tuple[tuple[int, int, int], ...] = ()
    value: int = 0
    width: int = 0
    items: int = 0

    @property
    def given(self) -> tuple[Any, ...]:
        """As the C half takes it."""
        return (
            self.fill, self.function, *self.grid, self.threads, self.shared, self.data, self.offsets, self.patches,
            self.value, self.width, self.items,
        )  # fmt: skip


@dataclass(frozen=True)
class Recording:
    """What one call did: tensors made (size, stride, dtype), steps, and results as (made, size, stride, offset)."""

    makes: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    steps: tuple[Step, ...]
    container: int
    outs: tuple[tuple[int, Any, Any, Any], ...]


@dataclass
class _Launch:
    """One launch as Triton makes it; ``kernel`` is known when it returns."""

    grid: tuple[int, int, int]
    function: int
    launcher: Any
    args: tuple[Any, ...]
    kernel: Any = None
    #: how many tensors and fills were seen before it
    at: int = 0


@dataclass
class _Watch:
    """Everything seen of one call, in order."""

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
    """Sees every operator of torch that a call uses."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        space, _, name = func._schema.name.partition("::")
        if space == "aten" and name in _MAKE | _MAKE_FILLED:
            self.watch.made.append(result)
            if name in _MAKE_FILLED:
                self.watch.events.append(_Fill(result, _value(name, args, kwargs)))
        elif space == "aten" and name in _FILL:
            if isinstance(args[1] if len(args) > 1 else 0, torch.Tensor):
                self.watch.refuse(f"it calls {func._schema.name} with a tensor")
            else:
                self.watch.events.append(_Fill(args[0], float(args[1]) if name == "fill_" else 0.0))
        elif not (space == "aten" and name in _VIEWS):
            self.watch.refuse(f"it calls {func._schema.name}")
        return result


def _value(name: str, args: Any, kwargs: Any) -> float:
    if "full" in name:
        place = 2 if name == "new_full" else 1
        return float(args[place] if len(args) > place else kwargs["fill_value"])
    return 1.0 if "ones" in name else 0.0


#: one call is watched at a time: what is put in Triton's place is the process's
_WATCHING = threading.Lock()


@contextmanager
def _launches(watch: _Watch) -> Iterator[None]:
    """While it holds, each launch by Triton in this thread is noted, and done."""
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
            watch.events.append(_Launch((int(x), int(y), int(z)), function, self, rest[4:]))
        return original(self, x, y, z, stream, function, *rest)

    def noted(self: Any, *args: Any, **options: Any) -> Any:
        before = len(watch.events)
        kernel = run(self, *args, **options)
        if threading.get_ident() == watch.thread:
            for event in watch.events[before:]:
                if isinstance(event, _Launch) and event.kernel is None:
                    event.kernel = kernel
        return kernel

    launcher.__call__, JITFunction.run = call, noted
    try:
        yield
    finally:
        launcher.__call__, JITFunction.run = original, run


def watched(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, Recording, tuple[Any, ...]]:
    """The result of ``function(*args)``, what it did, and what must live while its kernels are launched.

    Raises:
        Refused: it did what cannot be repeated without it; the call was done all the same, and its result is the
            exception's ``result``.
        Unavailable: Triton's launcher is not as it is known.
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
    return result, recording, tuple(e.kernel for e in watch.events if isinstance(e, _Launch))


def _recorded(watch: _Watch, args: Sequence[Any], result: Any) -> Recording:
    buffers = [(i, a) for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
    made = [(len(args) + i, t) for i, t in enumerate(watch.made)]
    steps = []
    for event in watch.events:
        if isinstance(event, _Launch):
            if 0 not in event.grid:
                steps.append(_launch_step(event, buffers, made))
        else:
            steps.append(_fill_step(event, buffers, made))
    if not any(not s.fill for s in steps):
        raise Refused("no launch of a compiled Triton kernel was seen")
    container, outs = _outs(result, watch.made)
    makes = [(tuple(t.size()), tuple(t.stride()), t.dtype) for t in watch.made]
    for i, (at, size, stride, offset) in enumerate(outs):
        whole = watch.made[at]
        out = _listed(result)[i]
        same = out.dtype == whole.dtype and offset == 0 and out.numel() == whole.numel() and out.is_contiguous()
        if size is not None and same and whole.is_contiguous() and sum(o[0] == at for o in outs) == 1:
            # a result that is its tensor under another shape is made under that shape
            makes[at] = (size, stride, whole.dtype)
            outs[i] = (at, None, None, None)
    return Recording(tuple(makes), tuple(steps), container, tuple(outs))


def _launch_step(event: _Launch, inputs: list[tuple[int, Any]], made: list[tuple[int, Any]]) -> Step:
    kernel = event.kernel
    try:
        meta, types = kernel.metadata, list(kernel.src.signature.values())
        plain = meta.num_ctas == 1 and not getattr(meta, "launch_cooperative_grid", False)
        threads, shared = 32 * int(meta.num_warps), int(meta.shared)
    except AttributeError:
        raise Refused("a kernel is not one that Triton compiled") from None
    if not plain or getattr(meta, "launch_pdl", False):
        raise Refused("a kernel is launched with clusters, cooperatively or ahead of its predecessor")
    if any(getattr(event.launcher, f"{kind}_scratch_size", 0) for kind in ("global", "profile")):
        raise Refused("a kernel needs scratch memory of Triton's")
    if len(event.args) != len(types):  # older ones are called without the constants
        types = [t for t in types if t != "constexpr"]
    data, offsets, patches = b"", [], []
    for kind, value in _flat(types, event.args):
        piece, place = _parameter(kind, value, inputs, made)
        data += bytes(-len(data) % len(piece))
        offsets.append(len(data))
        if place is not None:
            patches.append((len(data), *place))
        data += piece
    # two pointers that Triton itself adds; a kernel without them reads no parameter there
    data += bytes(-len(data) % 8)
    offsets += [len(data), len(data) + 8]
    data += bytes(16)
    return Step(
        function=int(event.function), grid=event.grid, threads=threads, shared=shared, data=data,
        offsets=tuple(offsets), patches=tuple(patches),
    )  # fmt: skip


def _flat(types: Sequence[Any], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Each parameter's type and value: constants are compiled in, a tuple is as many as it has members."""
    if len(types) != len(values):
        raise Refused("a kernel's arguments are not those of its signature")
    for kind, value in zip(types, values, strict=True):
        if isinstance(kind, tuple):
            yield from _flat(kind, value)
        elif kind != "constexpr":
            yield kind, value


def _parameter(
    kind: str, value: Any, inputs: list[tuple[int, Any]], made: list[tuple[int, Any]]
) -> tuple[bytes, tuple[int, int] | None]:
    if kind.startswith("*"):
        address = value.data_ptr() if hasattr(value, "data_ptr") else int(value or 0)
        return bytes(8), _place(address, inputs, made) if address else None
    if kind == "bf16":
        return struct.pack("<H", struct.unpack("<I", struct.pack("<f", value))[0] >> 16), None
    if kind not in _FORMATS:
        raise Refused(f"a kernel takes a {kind[:24]} from the host")
    try:
        return struct.pack(_FORMATS[kind], value), None
    except (struct.error, OverflowError) as error:
        raise Refused(f"a kernel takes {value!r} as {kind} ({error})") from None


def _place(address: int, inputs: list[tuple[int, Any]], made: list[tuple[int, Any]]) -> tuple[int, int]:
    """The buffer that an address lies in, and how many bytes behind its beginning."""
    found = [(i, address - t.data_ptr()) for i, t in (*made, *inputs) if 0 <= address - t.data_ptr() < _span(t)]
    if not found:
        raise Refused("a kernel reads memory that is neither an input nor made in the call")
    if len(found) > 1:
        raise Refused("two of the call's tensors share their memory", final=False)
    return found[0]


def _span(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first element to behind its last."""
    if not tensor.numel():
        return 0
    reach = sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))
    return (reach + 1) * tensor.element_size()


def _fill_step(event: _Fill, inputs: list[tuple[int, Any]], made: list[tuple[int, Any]]) -> Step:
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
    return Step(
        fill=True, patches=((0, *_place(tensor.data_ptr(), inputs, made)),), value=value, width=width, items=items
    )


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [] if result is None else [result]


def _outs(result: Any, made: list[torch.Tensor]) -> tuple[int, list[tuple[int, Any, Any, Any]]]:
    """The result's container (0 a tensor, 1 a tuple, 2 a list, 3 None) and its tensors as parts of those made."""
    container = 3 if result is None else 1 if type(result) is tuple else 2 if type(result) is list else 0
    outs: list[tuple[int, Any, Any, Any]] = []
    for out in _listed(result):
        if type(out) is not torch.Tensor:
            raise Refused(f"it returns a {type(out).__name__}")
        at = next((i for i, t in enumerate(made) if t is out), None)
        if at is not None:
            outs.append((at, None, None, None))
            continue
        storage = out.untyped_storage().data_ptr()
        at = next((i for i, t in enumerate(made) if t.untyped_storage().data_ptr() == storage), None)
        if at is None or out.dtype != made[at].dtype:
            raise Refused("its result is not a tensor that it makes")
        outs.append((at, tuple(out.size()), tuple(out.stride()), out.storage_offset()))
    return container, outs


# -- the launcher ------------------------------------------------------------------------------------------------------


class Launcher:
    """Calls by plans where there are any; others go to ``slow``. ``table(*args)`` is the quick way in.

    ``differentiable``: a call whose gradient is wanted goes to ``slow`` as well. ``graph``: several kernels of one call
    go as one CUDA graph.

    Raises:
        Unavailable: calls cannot be launched from C here.
    """

    def __init__(
        self, slow: Callable[..., Any], *, differentiable: bool = False, graph: bool = False, device: str = "cuda",
        library: str = "libcuda.so.1",
    ) -> None:  # fmt: skip
        capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
        if capsule is None:
            raise Unavailable(f"this torch ({torch.__version__}) has no DLPack exchange table")
        #: why a function's calls are launched the ordinary way
        self.notes: dict[Callable[..., Any], str] = {}
        self._tries: dict[bytes, tuple[int, Recording | None]] = {}
        types = (torch.Tensor, torch.nn.Parameter)
        grad = torch.is_grad_enabled if differentiable else None
        empty = _empty_on(torch.device(device))
        try:
            self.table = extension().Table(
                capsule, library, slow, types, empty, torch.as_strided, grad, _quiet(), graph
            )
        except (OSError, ValueError) as error:
            raise Unavailable(str(error)) from None

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)``, which is the call of these ``args``, watched where a plan may come of it."""
        if function in self.notes or self.table.plans >= MOST_PLANS or not _here(args):
            return function(*args)
        key = self.table.key(*args)
        tries, before = self._tries.get(key, (0, None)) if key else (MOST_TRIES, None)
        if tries >= MOST_TRIES:
            return function(*args)
        try:
            result, recording, kept = watched(function, args)
        except Unavailable as error:
            self.notes[function] = str(error)
            return function(*args)
        except Refused as refused:
            if refused.final:
                self.notes[function] = str(refused)
            self._tries[key] = tries + 1, None
            return refused.result  # type: ignore[attr-defined]
        self._tries[key] = tries + 1, recording
        if recording == before:
            self._tries[key] = MOST_TRIES, None
            steps = tuple(step.given for step in recording.steps)
            self.table.add(key, recording.makes, steps, recording.container, recording.outs, kept)
            with torch.no_grad():
                replayed = self.table.hit(*args)
            if not _alike(replayed, result):
                self.table.clear()
                self.notes[function] = "a replay gave another result"
        return result


def _here(args: Sequence[Any]) -> bool:
    """Does nothing else watch, is nothing captured, and do the tensors lie on the current device?"""
    devices = {a.device for a in args if isinstance(a, torch.Tensor)}
    if len(devices) != 1 or any(ask() for ask in _quiet()):
        return False
    device = devices.pop()
    if device.type != "cuda":
        return True
    return device.index == torch.cuda.current_device() and not torch.cuda.is_current_stream_capturing()


def _alike(one: Any, other: Any) -> bool:
    """Are two results the same, but for the order of sums?"""
    if one is NotImplemented:
        return False
    for a, b in zip(_listed(one), _listed(other), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype or a.stride() != b.stride():
            return False
        if torch.equal(a, b):
            continue
        x, y = a.double().nan_to_num(0.0, 0.0, 0.0), b.double().nan_to_num(0.0, 0.0, 0.0)
        if not bool((a.isfinite() == b.isfinite()).all()) or float((x - y).norm()) > _SAME * float(y.norm()):
            return False
    return True


def quick(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``function`` with its launches repeated from C where that can be; itself, said once, where it cannot.

    Never for a function that writes into its arguments: a replay that is compared would write twice.
    """
    try:
        launcher = Launcher(lambda *args: launcher.run(function, *args), **options)
    except Unavailable as error:
        said(f"Kernels are launched the ordinary way: {error}.")
        return function
    return launcher.table  # type: ignore[no-any-return]


_SAID: set[str] = set()


def said(message: str, key: str = "") -> None:
    """A warning, once a process for each ``key``."""
    if (key or message) not in _SAID:
        _SAID.add(key or message)
        warnings.warn(message, RuntimeWarning, stacklevel=3)


__all__ = ["Launcher", "Recording", "Refused", "Step", "Unavailable", "extension", "quick", "said", "watched"]
