"""The DSLs by name; an adapter is made when it is first asked for.

Two have code here. Every other is documents: a folder ``knowledge/dsl/<name>`` with a ``spec.toml``, of this
installation or of the person's workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module

from kernellab.dsls.base import Adapter
from kernellab.dsls.spec import read_spec, spec_files
from kernellab.errors import TargetError

#: name -> (module, class) of those that documents alone cannot describe
_MODULES = {
    "cpp": ("kernellab.dsls.cpp", "CppAdapter"),
    "triton": ("kernellab.dsls.triton", "TritonAdapter"),
}
#: the DSLs that have code here
BUILT_IN = tuple(_MODULES)


class _Adapters(Mapping[str, Adapter]):
    """Name -> adapter, made on first use and kept as long as its spec.toml stays the same."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[object, Adapter]] = {}

    def __getitem__(self, name: str) -> Adapter:
        """Raises KeyError for an unknown name, TargetError for a spec.toml that cannot be read."""
        version: object = None
        if name not in _MODULES:
            path = spec_files()[name]
            version = (path, path.stat().st_mtime_ns)
        held = self._made.get(name)
        if held is None or held[0] != version:
            held = self._made[name] = (version, _make(name))
        return held[1]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*_MODULES, *spec_files()]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _make(name: str) -> Adapter:
    if name in _MODULES:
        module, cls = _MODULES[name]
        made: Adapter = getattr(import_module(module), cls)()
        return made
    from kernellab.dsls.documented import DocumentedAdapter

    return DocumentedAdapter(read_spec(spec_files()[name]))


ADAPTERS: Mapping[str, Adapter] = _Adapters()


def get_adapter(name: str) -> Adapter:
    """The adapter of the DSL ``name``.

    Raises:
        TargetError: no DSL has that name (the remedy names the nearest), or its spec.toml cannot be read.
    """
    names = list(ADAPTERS)
    if name in names:
        return ADAPTERS[name]
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.4)
    known = ", ".join(names)
    remedy = f"Did you mean {near[0]!r}? The DSLs are {known}." if near else f"Choose one of {known}."
    raise TargetError(f"There is no DSL named {name!r}.", remedy)


__all__ = ["ADAPTERS", "BUILT_IN", "Adapter", "get_adapter"]
