"""The DSLs by name; an adapter is made at its first use.

Some have code here. Every other is a folder ``knowledge/dsl/<name>`` of this installation or of the workspace:
documents with a ``spec.toml`` and, if these are not enough, an ``adapter.py`` with one subclass of :class:`Adapter`,
which is found by its path and listed nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from kernellab.dsls.base import Adapter
from kernellab.dsls.spec import read_spec, spec_files
from kernellab.errors import KernellabError, TargetError

#: name -> (module, class) of DSLs that documents alone cannot describe
_MODULES = {
    "cuda_c": ("kernellab.dsls.cuda_c", "CudaCAdapter"),
    "cpp": ("kernellab.dsls.cpp", "CppAdapter"),
    "triton": ("kernellab.dsls.triton", "TritonAdapter"),
}
#: the DSLs with code in this package
BUILT_IN = tuple(_MODULES)
#: the file with the code of a DSL in ``knowledge/dsl``
ADAPTER = "adapter.py"


class _Cached(NamedTuple):
    """An adapter, and the path and time of the file that it was made from (None: a class of this package)."""

    version: object
    adapter: Adapter


class _Adapters(Mapping[str, Adapter]):
    """Name -> adapter, made at its first use and cached while its spec.toml is unchanged."""

    def __init__(self) -> None:
        self._cache: dict[str, _Cached] = {}

    def __getitem__(self, name: str) -> Adapter:
        """Raises KeyError for an unknown name, TargetError for a spec.toml or adapter.py that cannot be read."""
        path = None if name in _MODULES else (adapter_files().get(name) or spec_files()[name])
        version = (path, path.stat().st_mtime_ns) if path else None
        cached = self._cache.get(name)
        if cached is None or cached.version != version:
            cached = self._cache[name] = _Cached(version, _make(name, path))
        return cached.adapter

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*_MODULES, *spec_files(), *adapter_files()]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _make(name: str, path: Path | None) -> Adapter:
    if path is None:
        module, class_name = _MODULES[name]
        adapter: Adapter = getattr(import_module(module), class_name)()
        return adapter
    if path.name == ADAPTER:
        return read_adapter(path)
    from kernellab.dsls.documented import DocumentedAdapter

    return DocumentedAdapter(read_spec(path))


def adapter_files() -> dict[str, Path]:
    """Return the adapter.py of each DSL; one of the workspace has precedence."""
    return spec_files(file=ADAPTER)


def imported_file(path: Path, error: type[KernellabError]) -> ModuleType:
    """Return the module of the file at ``path`` in a DSL's folder. Raises ``error``: it cannot be imported."""
    spec = spec_from_file_location(f"kernellab_dsl_{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as fault:
        raise error(f"{path} cannot be imported: {type(fault).__name__}: {fault}.", "Correct it.") from fault
    return module


def read_adapter(path: Path) -> Adapter:
    """Return the adapter that ``path`` defines; its ``name`` defaults to the folder's.

    Raises:
        TargetError: the file does not import, or does not define exactly one subclass of Adapter.
    """
    module = imported_file(path, TargetError)
    kinds = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Adapter)]
    own = [kind for kind in kinds if kind.__module__ == module.__name__]
    if len(own) != 1:
        raise TargetError(f"{path} defines {len(own)} subclasses of Adapter.", "Define one.")
    adapter = own[0]()
    adapter.name = adapter.name or path.parent.name
    if adapter.name != path.parent.name:
        raise TargetError(f"{path} names {adapter.name!r}, and its folder is {path.parent.name!r}.", "Name both alike.")
    return adapter


ADAPTERS: Mapping[str, Adapter] = _Adapters()


def get_adapter(name: str) -> Adapter:
    """Return the adapter of the DSL ``name``.

    Raises:
        TargetError: no DSL has that name (the remedy has the most similar one), or its spec.toml cannot be read.
    """
    names = list(ADAPTERS)
    if name in names:
        return ADAPTERS[name]
    similar = get_close_matches(name.lower(), names, n=1, cutoff=0.4)
    listed = ", ".join(names)
    remedy = f"Did you mean {similar[0]!r}? The DSLs are {listed}." if similar else f"Choose one of {listed}."
    raise TargetError(f"There is no DSL named {name!r}.", remedy)


__all__ = ["ADAPTER", "ADAPTERS", "BUILT_IN", "Adapter", "adapter_files", "get_adapter"]
