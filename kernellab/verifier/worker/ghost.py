"""Inside the worker: replace a candidate's own kernels by no-ops, to see whether its results depend on them.

Launches are intercepted where they are bound: Triton's launchers; functions and modules of tvm-ffi, ctypes and
extension modules in the candidate's own namespaces; launch functions of cuda-core and cupy. Nothing reported from here
is trusted: a kernel counts as used only if the judge, which has the reference, sees the outputs go wrong without it
and right with it, under the same wrappers.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

#: disables every kernel
ALL = "*"
_MOST_OBJECTS = 4000
_MOST_NAMES = 64
_DEPTH = 4
_FOREIGN: Any = ctypes.__dict__["_CFuncPtr"]


class _Search:
    """Limits of one search: namespaces that were searched, and objects that may still be looked at."""

    def __init__(self) -> None:
        self._searched: set[int] = set()
        self.objects_left = _MOST_OBJECTS

    def begins(self, space: dict[Any, Any]) -> bool:
        """Should a namespace be searched?"""
        if id(space) in self._searched or self.objects_left <= 0:
            return False
        self._searched.add(id(space))
        return True


class Ghost:
    """While armed, records each launch by name and skips those whose names are in ``off``."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.off: frozenset[str] = frozenset()
        self.seen: dict[str, None] = {}
        self._undo: list[Callable[[], None]] = []

    def arm(self, off: list[str]) -> None:
        """Start to watch launches, skipping those named in ``off``."""
        self.disarm()
        self.off, self.seen = frozenset(off), {}
        self._triton()
        self._bindings()

    def disarm(self) -> None:
        """Restore everything that was replaced."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []

    def runs(self, name: str) -> bool:
        """Record a launch. Returns whether it should run."""
        if len(self.seen) < _MOST_NAMES:
            self.seen.setdefault(name)
        return ALL not in self.off and name not in self.off

    # -- Triton

    def _triton(self) -> None:
        if "triton" not in sys.modules:
            return
        from triton.compiler.compiler import CompiledKernel  # type: ignore[import-untyped]
        from triton.runtime.interpreter import InterpretedFunction  # type: ignore[import-untyped]
        from triton.runtime.jit import JITFunction  # type: ignore[import-untyped]

        for owner in (JITFunction, InterpretedFunction):
            self._patch(owner, "run", self._run(owner.run))
        ghost, original = self, CompiledKernel.__getitem__

        def item(kernel: Any, grid: Any) -> Any:
            launch = original(kernel, grid)
            return ghost.wrap(str(getattr(kernel, "name", "kernel")), launch)

        self._patch(CompiledKernel, "__getitem__", item)

    def _run(self, original: Callable[..., Any]) -> Callable[..., Any]:
        ghost = self

        def run(function: Any, *args: Any, **keywords: Any) -> Any:
            name = str(getattr(getattr(function, "fn", function), "__name__", "kernel"))
            if keywords.get("warmup") or ghost.runs(name):
                return original(function, *args, **keywords)
            return None

        return run

    def _patch(self, owner: Any, name: str, value: Any) -> None:
        before = owner.__dict__[name]
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, before))

    # -- bindings

    def _bindings(self) -> None:
        search = _Search()
        for module in list(sys.modules.values()):
            if _is_own(module, self.root) and not _is_extension(module):
                self._space(vars(module), search, 0)

    def _space(self, space: dict[Any, Any], search: _Search, depth: int) -> None:
        """Replace what launches in a namespace, and search the candidate's own objects in it."""
        if not search.begins(space):
            return
        for name, value in list(space.items()):
            search.objects_left -= 1
            if isinstance(name, str) and name.startswith("__"):
                continue
            replacement = self._replacement(str(name), value)
            if replacement is not None:
                space[name] = replacement
                self._undo.append(functools.partial(space.__setitem__, name, value))
            elif depth < _DEPTH:
                self._inside(value, search, depth)

    def _inside(self, value: Any, search: _Search, depth: int) -> None:
        if isinstance(value, dict):
            self._space(value, search, depth + 1)
        elif isinstance(value, types.FunctionType):
            for cell in value.__closure__ or ():
                self._cell(cell, search, depth)
        elif isinstance(value, type):
            if _is_candidates(value.__module__, self.root):
                for method in vars(value).values():
                    if isinstance(method, types.FunctionType):
                        self._inside(method, search, depth + 1)
        elif _is_candidates(type(value).__module__, self.root) and hasattr(value, "__dict__"):
            self._space(vars(value), search, depth + 1)

    def _cell(self, cell: Any, search: _Search, depth: int) -> None:
        try:
            value = cell.cell_contents
        except ValueError:
            return
        replacement = self._replacement("kernel", value)
        if replacement is not None:
            cell.cell_contents = replacement
            self._undo.append(lambda: setattr(cell, "cell_contents", value))
        elif depth < _DEPTH:
            self._inside(value, search, depth + 1)

    def _replacement(self, name: str, value: Any) -> Any:
        """A stand-in for a launcher or a holder of launchers; None for anything else."""
        kind = type(value)
        if isinstance(value, functools._lru_cache_wrapper):
            return _Loader(self, value) if _is_candidates(value.__module__, self.root) else None
        if isinstance(value, ctypes.CDLL) or (isinstance(value, types.ModuleType) and _is_extension(value)):
            own = isinstance(value, ctypes.CDLL) or _is_own(value, self.root)
            return _Holder(self, value) if own else None
        if kind.__module__.startswith("tvm_ffi"):
            if kind.__name__ == "Module":
                return _Holder(self, value)
            return self.wrap(name, value) if kind.__name__ == "Function" else None
        if isinstance(value, _FOREIGN):
            return self.wrap(str(getattr(value, "__name__", name)), value)
        module = str(getattr(value, "__module__", "") or "")
        if isinstance(value, types.BuiltinFunctionType) and _is_own(sys.modules.get(module), self.root):
            return self.wrap(value.__name__, value)
        if module.startswith(("cuda.core", "cupy")) and (name == "launch" or kind.__name__ == "RawKernel"):
            return _Launch(self, value, name)
        return None

    def wrap(self, name: str, function: Any) -> Any:
        return _Launch(self, function, name)


class _Launch:
    """A launcher that can be skipped; otherwise it behaves like the original."""

    def __init__(self, ghost: Ghost, function: Any, name: str) -> None:
        object.__setattr__(self, "_parts", (ghost, function, name))

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        ghost, function, name = self._parts
        return function(*args, **keywords) if ghost.runs(name) else None

    @property
    def _as_parameter_(self) -> Any:
        """The function itself, for callers that pass its address on (ctypes reads this attribute)."""
        return self._parts[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parts[1], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._parts[1], name, value)


class _Holder:
    """A stand-in for a library or module whose functions launch."""

    def __init__(self, ghost: Ghost, held: Any) -> None:
        object.__setattr__(self, "_parts", (ghost, held))

    def __getattr__(self, name: str) -> Any:
        ghost, held = self._parts
        value = getattr(held, name)
        return ghost.wrap(name, value) if callable(value) and not isinstance(value, type) else value

    def __getitem__(self, name: Any) -> Any:
        ghost, held = self._parts
        return ghost.wrap(str(name), held[name])

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._parts[1], name, value)


class _Loader:
    """A stand-in for a cached function that returns a library, which is replaced too."""

    def __init__(self, ghost: Ghost, function: Any) -> None:
        self._parts = (ghost, function)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        ghost, function = self._parts
        value = function(*args, **keywords)
        replacement = ghost._replacement("kernel", value)
        return value if replacement is None else replacement

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parts[1], name)


def _is_own(module: Any, root: str) -> bool:
    """Does a module come from the candidate's folders (its sources, or its build products)?"""
    if getattr(module, "__name__", "") == "kernel_source":
        return True
    scratch = root.rsplit("/src", 1)[0]
    return str(getattr(module, "__file__", "") or "").startswith(scratch + "/")


def _is_candidates(module: str | None, root: str) -> bool:
    return _is_own(sys.modules.get(module or ""), root)


def _is_extension(module: Any) -> bool:
    return str(getattr(module, "__file__", "") or "").endswith((".so", ".dylib"))
