"""LanceDB without the client of its REST interface, whose import takes longer than a search."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PREFIX = "lance_namespace_urllib3_client.api."


class _Absent(ModuleType):
    """A module of which every name is a class that nobody makes an object of."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, type(name, (), {}))
        made: type = getattr(self, name)
        return made


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.startswith(_PREFIX) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


@contextmanager
def without_rest_client() -> Iterator[None]:
    """LanceDB is imported in half the time within it, for a process that reads tables by their place alone: a command
    of the shell."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
