"""The DSLs by name; an adapter's module is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module

from kernellab.dsls.base import Adapter
from kernellab.errors import TargetError

#: name -> (module, class); to add a DSL, add a line here
_MODULES = {
    "cpp": ("kernellab.dsls.cpp", "CppAdapter"),
    "triton": ("kernellab.dsls.triton", "TritonAdapter"),
}


class _Adapters(Mapping[str, Adapter]):
    """Name -> adapter, made on first use and then kept."""

    def __init__(self) -> None:
        self._made: dict[str, Adapter] = {}

    def __getitem__(self, name: str) -> Adapter:
        if name not in self._made:
            module, cls = _MODULES[name]
            self._made[name] = getattr(import_module(module), cls)()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


ADAPTERS: Mapping[str, Adapter] = _Adapters()


def get_adapter(name: str) -> Adapter:
    """The adapter of the DSL ``name``.

    Raises:
        TargetError: no DSL has that name; the remedy names the nearest.
    """
    if name in _MODULES:
        return ADAPTERS[name]
    near = get_close_matches(name.lower(), _MODULES, n=1, cutoff=0.4)
    known = ", ".join(_MODULES)
    remedy = f"Did you mean {near[0]!r}? The DSLs are {known}." if near else f"Choose one of {known}."
    raise TargetError(f"There is no DSL named {name!r}.", remedy)


__all__ = ["ADAPTERS", "Adapter", "get_adapter"]
