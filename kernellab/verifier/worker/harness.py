"""The words in this process through which calls between a go and its answer are made, so that the judge sees changes.

A candidate may replace any function of the process that calls it. The judge reads the pointers through which those
functions are found (a class's methods, a module's names, a function's code) from outside: before the candidate is
imported, and in each timed call before the go and after the answer. They never change in an untouched worker. Works
only on CPython; elsewhere nothing is watched.
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

#: word indices of a dictionary's entry count and keys, and of a function's first pointer; words after its last pointer
_COUNT, _KEYS, _FIRST, _BEYOND = 2, 4, 2, 4
#: names of other modules that the harness uses between a go and its answer
_USED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (os, ("eventfd_write",)), (time, ("perf_counter",)),
    (builtins, ("len", "enumerate", "isinstance", "tuple", "type", "str", "list", "dict", "bool", "int", "float")),
)  # fmt: skip


def addresses(worker: calls.Worker) -> list[int]:
    """Addresses of the words of ``worker``'s process that must not change, before it has imported a candidate."""
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8:
        return []
    kinds = [*type(worker).__mro__[:-1], control.Control]
    fixed = {id(owned) for owned in (worker.control, worker.channel, worker.control.map, worker.control.words)}
    result: list[int] = []
    for owned in (worker, worker.control):
        body = _words(id(owned), type(owned).__basicsize__ // 8)
        result += (id(owned) + 8 * i for i, word in enumerate(body) if i and word in {*fixed, id(type(owned))})
    for kind in kinds:
        # the class exposes only a view of its dictionary
        result += _entries(gc.get_referents(vars(kind))[0])
    for module in {sys.modules[kind.__module__] for kind in kinds} | {results}:
        # a warning issued here makes Python store this name in the module, and create it if it is missing
        vars(module).setdefault("__warningregistry__", {})
        result += _entries(vars(module))
    for module, names in _USED:
        result += _entries(vars(module), names)
    return list(dict.fromkeys(result))


def _entries(held: dict[str, Any], names: tuple[str, ...] = ()) -> Iterator[int]:
    """The words of a dictionary that hold the place of its keys and the objects of some or all names, and the words of
    the functions among them that define what they run."""
    keys = _words(id(held), _KEYS + 1)[_KEYS]
    yield id(held) + 8 * _KEYS
    if not names:
        # an added name may hide a builtin
        yield id(held) + 8 * _COUNT
    table = _words(keys, (held.__sizeof__() - object.__sizeof__(held)) // 8)
    for name in names or tuple(held):
        value = held[name]
        yield from (keys + 8 * i for i, word in enumerate(table) if word == id(value))
        if isinstance(value, FunctionType):
            body = _words(id(value), value.__sizeof__() // 8)
            targets = {id(value.__code__), id(value.__globals__)}
            last = max((i for i, word in enumerate(body) if word in targets), default=0)
            # defaults, keyword defaults and cells are next to these; later words may be written at any time
            yield from (id(value) + 8 * i for i in range(_FIRST, min(last + _BEYOND, len(body)) if last else 0))


def _words(address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}Q", ctypes.string_at(address, 8 * count))
