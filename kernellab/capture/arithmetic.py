"""Arithmetic on sizes in a traced reference: ``math.sqrt(d)``, ``float(d)``, ``min(n, 64)`` remain expressions.

Python's own functions would turn a symbolic size into a plain number, and the trace would hold only at that size.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce, wraps
from types import ModuleType
from typing import Any

import torch

from kernellab import python_tree

from .loops.trace import Walked


@contextmanager
def symbolic_sizes(
    namespace: dict[str, Any], text: str, steps: Callable[..., Any] = range, plain: Callable[..., Any] = range
) -> Iterator[None]:
    """Make functions of numbers that the module of ``text`` calls accept symbolic sizes while the context is active.

    ``steps`` replaces ``range`` for symbolic sizes, ``plain`` for others.
    """
    functions = {getattr(math, name): _taking(getattr(math, name), made) for name, made in _functions().items()}
    # torch checks a trace with math's own floor, ceil and trunc, so these are replaced for the module alone
    own = functions | {getattr(math, name): _whole(getattr(math, name), rounded) for name, rounded in _WHOLE.items()}
    replacements: dict[str, Any] = {
        name: own[value] for name, value in namespace.items() if callable(value) and _among(value, own)
    }
    replacements |= {name: _module(own) for name, value in namespace.items() if value is math}
    called = _only_called(text)
    of_numbers: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (float, _as_float), (int, _as_int), (min, _extreme("sym_min")), (max, _extreme("sym_max")),
        (divmod, lambda a, b: (a // b, a % b)), (range, steps),
    ]  # fmt: skip
    for builtin, made in of_numbers:
        if builtin.__name__ in called and builtin.__name__ not in namespace:
            replacements[builtin.__name__] = _taking(plain if builtin is range else builtin, made)
    for plain_whole, rounded in ((int, torch.trunc), (round, torch.round)):
        name = plain_whole.__name__
        if name in called and name not in namespace:
            replacements[name] = _whole(replacements.get(name, plain_whole), rounded)
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


def _module(own: Mapping[Any, Any]) -> ModuleType:
    """Return a copy of ``math`` that has the functions ``own`` instead."""
    module = ModuleType(math.__name__)
    vars(module).update({name: own[value] if _among(value, own) else value for name, value in vars(math).items()})
    return module


def _among(value: Any, functions: Mapping[Any, Any]) -> bool:
    return any(value is function for function in functions)


def _only_called(text: str) -> frozenset[str]:
    """Return the names that ``text`` only calls, and does not use otherwise, such as as a class in ``dtype=float``."""
    tree = python_tree.parse(text)
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

    def log(x: Any, base: float = math.e) -> Any:
        natural = torch.log(_tensor(x))
        return natural if base == math.e else natural / math.log(base)

    return {
        "sqrt": torch.sym_sqrt,
        "isqrt": lambda x: _as_int(torch.sym_sqrt(x)),
        "log": log,
        "log2": lambda x: torch.log2(_tensor(x)),
        "log10": lambda x: log(x, 10.0),
        "log1p": lambda x: log(x + 1),
        "pow": lambda a, b: _as_float(a) ** b,
        **{name: _of_tensor(function) for name, function in _OF_TENSORS.items()},
    }


#: function of ``math`` that makes a whole number -> that of tensors
_WHOLE: dict[str, Callable[..., Any]] = {"floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc}
#: function of ``math`` -> that of tensors
_OF_TENSORS: dict[str, Callable[..., Any]] = {
    "exp": torch.exp, "expm1": torch.expm1, "lgamma": torch.lgamma, "erf": torch.erf, "tanh": torch.tanh,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
}  # fmt: skip


def _of_tensor(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: function(_tensor(x))


def _tensor(x: Any) -> Any:
    """Return a size or a fraction of one as a 0-d float64 tensor."""
    return torch.full((), _as_float(x), dtype=torch.float64)


def _is_fraction(x: Any) -> bool:
    """Return whether ``x`` is what a function above makes of a size."""
    return isinstance(x, torch.Tensor) and x.dim() == 0 and x.dtype == torch.float64


def _whole(plain: Callable[..., Any], rounded: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``plain``, such as ``math.floor``, which rounds a logarithm of a size without reading its value."""

    @wraps(plain)
    def whole(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and _is_fraction(args[0]):
            return rounded(args[0]).to(torch.int64)
        return plain(*args, **kwargs)

    return whole


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
