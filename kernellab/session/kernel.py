"""A verified candidate as a function in this process."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from kernellab.dsls.interpreter import correct_interpreter
from kernellab.errors import KernellabError, SessionError
from kernellab.export.exportable import repeatable
from kernellab.records import Author, Source, Verdict
from kernellab.session.record.standings import Best
from kernellab.target import Backend
from kernellab.task import Arg, Task

#: Sources whose code a person has allowed to run in this process.
_ALLOWED: set[str] = set()


class BestKernel:
    """The fastest candidate that passed. Call it on tensors, in the reference's order (then a Model's state_dict).

    Code that a model wrote runs in this process only after permission: ``best.allow()``, or
    ``best(x, allow_model_code=True)``.
    """

    def __init__(self, best: Best, name: str, backend: Backend | None, task: Callable[[], Task]) -> None:
        self.name = name
        self.turn = best.number
        self.candidate = best.candidate
        self.source = best.candidate.source
        self.sketch = best.candidate.sketch
        self.verdict: Verdict = best.verdict
        self._backend = backend
        self._task = task
        self._table: Any = None

    def __call__(self, *args: Any, allow_model_code: bool = False) -> Any:
        if self._table is not None:
            # only calls that were allowed and checked have a plan
            result = self._table.hit(*args)
            if result is not NotImplemented:
                return result
        if allow_model_code:
            self.allow()
        self.check_allowed()
        check_arguments(self.name, self._task(), args)
        try:
            return self.quick(*args)
        except KernellabError:
            raise
        except Exception as error:
            raise SessionError(
                f"{self.name}'s kernel refused its arguments: {type(error).__name__}: {error}",
                f"It was verified for {self._task().signature}; {self.name}.best.function shows the whole traceback.",
            ) from None

    @property
    def function(self) -> Callable[..., Any]:
        """The kernel's entry function, loaded once per process."""
        return load(self.source, self._backend)

    @property
    def quick(self) -> Callable[..., Any]:
        """The function for many calls: on a GPU, the launches of a Triton kernel are repeated from C
        (:mod:`kernellab.export.runtime.launcher`); otherwise :attr:`function`."""
        if self._table is None and repeatable(self.source, self._backend) and not self._task().module().written:
            self._table = _table(self.source.hash, _ByHash(self.source), self._backend)
        return self._table or self.function

    def check_allowed(self) -> None:
        """Raise SessionError if a model wrote the code and its use in this process was not allowed."""
        if self.source.origin is Author.MODEL and self.source.hash not in _ALLOWED:
            raise SessionError(
                f"{self.name}'s kernel was written by a model and would run in this process, with your rights.",
                "Read .source first; then best.allow(), or pass allow_model_code=True once.",
            )

    def allow(self) -> BestKernel:
        """Allow this process to run the kernel's source. Return the kernel."""
        _ALLOWED.add(self.source.hash)
        return self

    def __repr__(self) -> str:
        verdict = self.verdict
        parts = [c.text for c in verdict.comparisons] or ["" if verdict.time else "not timed"]
        time = f"{verdict.time.median_ms:.3g} ms" if verdict.time else ""
        summary = ", ".join(filter(None, (*parts, time, verdict.trust.value, f"turn {self.turn}")))
        return f"<kernel {self.name}: {'; '.join(filter(None, (summary, verdict.held)))}>"


def load(source: Source, backend: Backend | None = None) -> Callable[..., Any]:
    """Import ``source`` from a private folder of this process and return its entry function.

    Raises:
        SessionError: the module cannot be imported or does not define its entry.
    """
    if backend is Backend.INTERPRETER:
        os.environ.setdefault("TRITON_INTERPRET", "1")
        correct_interpreter()
    return _load(source.hash, _ByHash(source))


@lru_cache(maxsize=64)
def _table(digest: str, cached: _ByHash, backend: Backend | None) -> Any:
    """The launcher's table of a source, one per process: a session's ``best`` is a new object on each access.
    None if calls cannot be launched from C."""
    from kernellab.export.runtime.launcher import Launcher, Unavailable

    function = load(cached.source, backend)
    try:
        launcher = Launcher(lambda *args: launcher.run(function, *args))
    except Unavailable:
        return None
    return launcher.table


class _ByHash:
    """Passes a Source through a cache whose key is only its hash."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByHash)


@lru_cache(maxsize=64)
def _load(digest: str, cached: _ByHash) -> Callable[..., Any]:
    source = cached.source
    folder = _folder() / digest
    for name, text in source.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    name = f"kernellab_kernel_{digest}"
    spec = importlib.util.spec_from_file_location(name, folder / source.entry_file)
    if spec is None or spec.loader is None:
        raise SessionError(f"{source.entry_file} is not a Python module.", "Give an entry file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        function = getattr(module, source.entry)
    except Exception as error:
        del sys.modules[name]
        raise SessionError(
            f"The kernel's module cannot be loaded here: {type(error).__name__}: {error}.",
            "It passed in the verifier's environment; compare `kernellab doctor` here with its verdict.environment.",
        ) from error
    return function  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kernellab-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


# -- arguments ---------------------------------------------------------------------------------------------------------


def check_arguments(name: str, task: Task, args: tuple[Any, ...]) -> None:
    """Check the number, types, dtypes and shapes of ``args`` against the task.

    Raises:
        SessionError: one sentence about the first mismatch; the remedy is the task's signature.
    """
    remedy = f"Call it as {name}.best({', '.join(a.name for a in task.args)}): {task.signature}."
    if len(args) > len(task.args):
        raise SessionError(f"{name} takes {len(task.args)} arguments, and {len(args)} were given.", remedy)
    missing = [a.name for a in task.args[len(args) :] if a.default is None]
    if missing:
        raise SessionError(f"{name} was called without {' and '.join(missing)}.", remedy)
    sizes: dict[str, DimSize] = {}
    for value, arg in zip(args, task.args, strict=False):
        if mismatch := _mismatch(value, arg) or (_size_mismatch(value, arg, sizes) if arg.is_tensor else None):
            raise SessionError(mismatch, remedy)


class DimSize(NamedTuple):
    """The size of a Dim in a call, and the first argument that has it."""

    size: int
    argument: str


def _mismatch(value: Any, arg: Arg) -> str | None:
    """Why one argument's type, dtype or number of dimensions does not fit, in a sentence."""
    import torch

    if not arg.is_tensor:
        return None if isinstance(value, (int, float, bool)) else f"{arg.name} must be a number, not {_kind(value)}."
    if not isinstance(value, torch.Tensor):
        return f"{arg.name} must be a tensor, not {_kind(value)}."
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype != arg.dtype:
        return f"{arg.name} has dtype {dtype}; the task says {arg.dtype}."
    return _wrong_shape(value, arg) if value.dim() != len(arg.shape) else None


def _size_mismatch(value: Any, arg: Arg, sizes: dict[str, DimSize]) -> str | None:
    """Why a tensor's sizes do not fit; the sizes that it sets for Dims are added to ``sizes``."""
    for size, extent in zip(value.shape, arg.shape, strict=True):
        text = str(extent)
        if text.isdigit() and size != int(text):
            return _wrong_shape(value, arg)
        if text.isidentifier():
            first = sizes.setdefault(text, DimSize(size, arg.name))
            if first.size != size:
                return (
                    f"{arg.name} has {text} = {size}, but {first.argument} has {text} = {first.size}; "
                    f"the task says {_shape(arg)}."
                )
    return None


def _wrong_shape(value: Any, arg: Arg) -> str:
    return f"{arg.name} has shape {list(value.shape)}; the task says {_shape(arg)}."


def _shape(arg: Arg) -> str:
    return f"[{', '.join(map(str, arg.shape))}]"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
