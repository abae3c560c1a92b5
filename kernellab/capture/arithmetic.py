"""Arithmetic on sizes in a traced reference: ``math.sqrt(d)``, ``float(d)``, ``min(n, 64)`` remain expressions.

Python's own functions would turn a symbolic size into a plain number, and the trace would hold only at that size.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce, wraps
from typing import Any

import torch

from .loops.trace import Walked


@contextmanager
def symbolic_sizes(
    namespace: dict[str, Any], text: str, steps: Callable[..., Any] = range, plain: Callable[..., Any] = range
) -> Iterator[None]:
    """Make functions of numbers that the module of ``text`` calls accept symbolic sizes while the context is active.

    ``steps`` replaces ``range`` for symbolic sizes, ``plain`` for others.
    """
    functions = {getattr(math, name): _taking(getattr(math, name), made) for name, made in _functions().items()}
    replacements: dict[str, Any] = {
        name: functions[value] for name, value in namespace.items() if callable(value) and _among(value, functions)
    }
    called = _only_called(text)
    of_numbers = ((float, _as_float), (int, _as_int), (min, _extreme("sym_min")), (max, _extreme("sym_max")))
    for builtin, made in (*of_numbers, (range, steps)):
        if builtin.__name__ in called and builtin.__name__ not in namespace:
            replacements[builtin.__name__] = _taking(plain if builtin is range else builtin, made)
    if "len" in called and "len" not in namespace:
        replacements["len"] = _length
    originals = {name: namespace.get(name) for name in replacements}
    namespace.update(replacements)
    for function, replacement in functions.items():
        setattr(math, function.__name__, replacement)
    try:
        yield
    finally:
        for function in functions:
            setattr(math, function.__name__, function)
        for name, value in originals.items():
            if value is None:
                namespace.pop(name, None)
            else:
                namespace[name] = value


def _among(value: Any, functions: dict[Any, Any]) -> bool:
    return any(value is function for function in functions)


def _only_called(text: str) -> frozenset[str]:
    """Return the names that ``text`` only calls, and does not use otherwise, such as as a class in ``dtype=float``."""
    tree = ast.parse(text)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    callees = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    otherwise = {node.id for node in names if id(node) not in callees}
    return frozenset(node.id for node in names) - otherwise


def _taking(plain: Callable[..., Any], symbolic: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``symbolic`` if an argument is a symbolic number, else ``plain``."""

    @wraps(plain)
    def either(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and any(isinstance(a, (torch.SymInt, torch.SymFloat)) for a in args):
            return symbolic(*args)
        return plain(*args, **kwargs)

    return either


def _functions() -> dict[str, Callable[..., Any]]:
    """Return functions of ``math`` on symbolic numbers. Functions that a trace supports only for tensors use a 0-d
    float64 tensor, which changes no other operand's dtype."""

    def tensor(x: Any) -> Any:
        return torch.full((), _as_float(x), dtype=torch.float64)

    def log(x: Any, base: float = math.e) -> Any:
        natural = torch.log(tensor(x))
        return natural if base == math.e else natural / math.log(base)

    return {
        "sqrt": torch.sym_sqrt,
        "log": log,
        "log2": lambda x: log(x, 2.0),
        "log10": lambda x: log(x, 10.0),
        "log1p": lambda x: log(x + 1),
        "exp": lambda x: torch.exp(tensor(x)),
        "pow": lambda a, b: _as_float(a) ** b,
    }


def _length(x: Any) -> Any:
    if isinstance(x, Walked):
        return x.count
    return x.shape[0] if isinstance(x, torch.Tensor) and x.dim() else len(x)


def _as_float(x: Any) -> Any:
    return torch.sym_float(x)  # type: ignore[no-untyped-call]


def _as_int(x: Any) -> Any:
    return torch.sym_int(x)  # type: ignore[no-untyped-call]


def _extreme(name: str) -> Callable[..., Any]:
    def made(*args: Any) -> Any:
        return reduce(getattr(torch, name), args)

    return made
