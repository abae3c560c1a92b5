"""Where this process keeps what stands between a go and its answer, so that the judge sees it replaced.

A candidate may replace any function of the process that calls it. The judge reads the pointers by which those functions
are found (a class's methods, a module's names, a function's code) from outside: before the candidate is imported, and
in each timed call before the go and after the answer. They never change in a worker that is left alone. CPython alone;
elsewhere nothing is watched.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import os
import struct
import sys
import time
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from kernellab.verifier.protocol import control
from kernellab.verifier.worker import calls, results

#: the places of a dictionary's number of entries and of its keys among its words, and of a function's first pointer
_COUNT, _KEYS, _FIRST, _BEYOND = 2, 4, 2, 4
#: names of modules that are not the harness's, which it calls between a go and its answer
_USED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (os, ("eventfd_write",)), (time, ("perf_counter",)),
    (builtins, ("len", "enumerate", "isinstance", "tuple", "type", "str", "list", "dict", "bool", "int", "float")),
)  # fmt: skip


def addresses(worker: calls.Worker) -> list[int]:
    """Addresses of the words of ``worker``'s process that are not to change, before it has imported a candidate."""
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8:
        return []
    kinds = [*type(worker).__mro__[:-1], control.Control]
    fixed = {id(held) for held in (worker.control, worker.channel, worker.control.map, worker.control.words)}
    found: list[int] = []
    for held in (worker, worker.control):
        body = _words(id(held), type(held).__basicsize__ // 8)
        found += (id(held) + 8 * i for i, word in enumerate(body) if i and word in {*fixed, id(type(held))})
    for kind in kinds:
        # the class shows a view of its dictionary alone
        found += _entries(gc.get_referents(vars(kind))[0])
    for module in {sys.modules[kind.__module__] for kind in kinds} | {results}:
        # where a warning's level leads here, Python keeps it in this name, and makes that where there is none
        vars(module).setdefault("__warningregistry__", {})
        found += _entries(vars(module))
    for module, names in _USED:
        found += _entries(vars(module), names)
    return list(dict.fromkeys(found))


def _entries(held: dict[str, Any], names: tuple[str, ...] = ()) -> Iterator[int]:
    """The words of a dictionary that say where its keys lie, which object some or all names mean, and those of the
    functions among them that say what they run."""
    keys = _words(id(held), _KEYS + 1)[_KEYS]
    yield id(held) + 8 * _KEYS
    if not names:
        # a name that is added may hide one of Python's own
        yield id(held) + 8 * _COUNT
    table = _words(keys, (held.__sizeof__() - object.__sizeof__(held)) // 8)
    for name in names or tuple(held):
        value = held[name]
        yield from (keys + 8 * i for i, word in enumerate(table) if word == id(value))
        if isinstance(value, FunctionType):
            body = _words(id(value), value.__sizeof__() // 8)
            known = {id(value.__code__), id(value.__globals__)}
            last = max((i for i, word in enumerate(body) if word in known), default=0)
            # defaults, keyword defaults and cells are next to these; what follows may be written late
            yield from (id(value) + 8 * i for i in range(_FIRST, min(last + _BEYOND, len(body)) if last else 0))


def _words(address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}Q", ctypes.string_at(address, 8 * count))
