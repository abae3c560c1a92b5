"""Replays the launches of a host function without running it.

The first calls with new shapes run the host function as it is, and watch what it does: which tensors it makes and which
compiled Triton kernels it launches with which parameters. Where two calls did the same, and a replay gave the same
result, later calls that look alike (dtypes, shapes, strides, alignment, numbers) make the tensors and launch the
kernels from C. All others go to the host function, as before; :attr:`Launcher.notes` says why where that stays so.

It needs launcher.c, recording.py, torch and a C compiler, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from .recording import Refused, Unavailable, listed, watched
from .steps import Recording

#: most shapes with plans in one launcher
MOST_PLANS = 512
#: most recorded calls with one shape before it is given up
MOST_TRIES = 4
#: relative Frobenius error up to which a replay is equal: atomics sum in another order
_SAME = 1e-2

# -- the C half --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def extension() -> Any:
    """Return launcher.c as a module, compiled once for this Python and stored in the user's cache.

    Raises:
        Unavailable: there is no C compiler, no Python.h, or the compiler fails.
    """
    source = Path(__file__).with_name("launcher.c")
    text = source.read_text(encoding="utf-8")
    tag = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    digest = hashlib.sha256(f"{text}\0{tag}\0{sys.version}".encode()).hexdigest()[:16]
    name = f"kernel_launcher-{digest}.so"
    with contextlib.suppress(ImportError):  # missing, or for another libc
        return _loaded(source.with_name(name))
    built = _cache() / name
    with contextlib.suppress(ImportError):
        return _loaded(built)
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise Unavailable("no C compiler is found to build the launcher")
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch) / name
        include = sysconfig.get_paths()["include"]
        command = [compiler, "-O2", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library), "-ldl"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"the C compiler does not run ({error})") from None
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
            raise Unavailable(f"the launcher does not compile ({first})")
        scratch_copy = built.with_name(f"{name}.{os.getpid()}")
        shutil.copy(library, scratch_copy)
        scratch_copy.replace(built)
    try:
        return _loaded(built)
    except ImportError as error:
        raise Unavailable(f"the launcher cannot be loaded ({error})") from None


def _loaded(built: Path) -> Any:
    """Return the module of the file. Raises ImportError: there is no such file, or this process cannot load it."""
    loader = importlib.machinery.ExtensionFileLoader("kernel_launcher", str(built))
    spec = importlib.util.spec_from_file_location("kernel_launcher", built, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _cache() -> Path:
    """Return this user's folder for compiled files."""
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


def quiet() -> tuple[Callable[[], Any], ...]:
    """What is false while nothing watches torch's calls: dispatch modes, and transforms such as vmap.

    Raises:
        Unavailable: this torch has no such questions.
    """
    try:
        return (torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack)
    except AttributeError as error:
        raise Unavailable(f"this torch ({torch.__version__}) does not say what watches its calls ({error})") from None


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
        #: by the key of a call: how often it was recorded, and its last recording
        self._tries: dict[bytes, tuple[int, Recording | None]] = {}
        types = (torch.Tensor, torch.nn.Parameter)
        grad = torch.is_grad_enabled if differentiable else None
        empty = _empty_on(torch.device(device))
        try:
            self.table = extension().Table(capsule, library, slow, types, empty, torch.as_strided, grad, quiet(), graph)
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
            result, recording, kernels = watched(function, args)
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
            steps = tuple(step.as_tuple() for step in recording.steps)
            try:
                self.table.add(key, recording.makes, steps, recording.container, recording.outs, kernels)
            except ValueError as error:  # more than a plan holds
                self.notes[function] = str(error)
                return result
            with torch.no_grad():
                replayed = self.table.hit(*args)
            if not _alike(replayed, result):
                self.table.clear()
                self.notes[function] = "a replay gave another result"
        return result


def _here(args: Sequence[Any]) -> bool:
    """Are there no other modes, no capture, and all tensors on the current device?"""
    devices = {a.device for a in args if isinstance(a, torch.Tensor)}
    if len(devices) != 1 or any(ask() for ask in quiet()):
        return False
    device = devices.pop()
    if device.type != "cuda":
        return True
    return device.index == torch.cuda.current_device() and not torch.cuda.is_current_stream_capturing()


def _alike(one: Any, other: Any) -> bool:
    """Are two results equal except for the order of sums?"""
    if one is NotImplemented:
        return False
    for a, b in zip(listed(one), listed(other), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype or a.stride() != b.stride():
            return False
        if torch.equal(a, b):
            continue
        x, y = a.double().nan_to_num(0.0, 0.0, 0.0), b.double().nan_to_num(0.0, 0.0, 0.0)
        if not bool((a.isfinite() == b.isfinite()).all()) or float((x - y).norm()) > _SAME * float(y.norm()):
            return False
    return True


def quick(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return ``function`` with launches replayed from C if possible; else itself, with one warning.

    A function that writes into its arguments is never replayed: the comparison would write twice."""
    try:
        launcher = Launcher(lambda *args: launcher.run(function, *args), **options)
    except Unavailable as error:
        said(f"Kernels are launched the ordinary way: {error}.")
        return function
    return launcher.table  # type: ignore[no-any-return]


_SAID: set[str] = set()


def said(message: str, key: str = "") -> None:
    """Warn once in each process for each ``key``."""
    if (key or message) not in _SAID:
        _SAID.add(key or message)
        warnings.warn(message, RuntimeWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """How far up the line of a person's own code is: past this package, a module that holds it, and torch."""
    inside = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.path.dirname(torch.__file__))
    frame, level = sys._getframe(2), 2
    while frame.f_back is not None and (frame.f_code.co_filename.startswith(inside) or "_FILES" in frame.f_globals):
        frame, level = frame.f_back, level + 1
    return level


__all__ = ["Launcher", "Unavailable", "extension", "quick", "said"]
