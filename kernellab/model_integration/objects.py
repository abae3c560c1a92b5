"""Objects that a model gives back and that torch's trees do not know, such as a cache of keys and values.

Their tensors are outputs like others. The object is made again over the tensors of another call: an instance of the
same class with the same attributes, so that a rewritten call gives back what the model's own call does.
"""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

#: values whose contents are not in their attributes, or which are no results
_CLOSED = (
    torch.Tensor, torch.nn.Module, type, Enum, str, bytes, int, float, complex, list, tuple, dict, set, frozenset,
)  # fmt: skip


class Unopened(ValueError):
    """An object's attributes do not form a tree, or it is held by the model or its arguments too."""


@dataclass(frozen=True)
class Form:
    """A nest without its tensors: ``leaves`` holds, in order, TENSOR, an :class:`Object`, or a constant."""

    spec: TreeSpec
    leaves: tuple[Any, ...]

    def made(self, tensors: Iterator[Any]) -> Any:
        """The nest over other tensors, which are taken in order."""
        return tree_unflatten([_made(leaf, tensors) for leaf in self.leaves], self.spec)


@dataclass(frozen=True)
class Object:
    """An instance of ``kind``, by the form of its attributes."""

    kind: type
    attributes: Form


TENSOR = object()


def taken_apart(value: Any, held: Collection[int] = ()) -> tuple[list[torch.Tensor], Form]:
    """All tensors of a nest, also those in attributes of objects, and the nest's form; ``held``: ids of objects that
    outlive the call.

    Raises:
        Unopened: an object with tensors is met twice, or is among those held.
    """
    tensors: list[torch.Tensor] = []
    met: set[int] = set()

    def form(nest: Any) -> Form:
        leaves, spec = tree_flatten(nest)
        return Form(spec, tuple(leaf(value) for value in leaves))

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return TENSOR
        if not _opens(value):
            if _hides(value):
                raise Unopened(f"a {type(value).__name__} holds tensors in it")
            return value
        if id(value) in met:
            raise Unopened(f"a {type(value).__name__} is in it twice")
        met.add(id(value))
        before = len(tensors)
        attributes = form(dict(vars(value)))
        if len(tensors) == before:
            met.remove(id(value))  # one that holds no tensors may be shared
            return value
        if id(value) in held:
            raise Unopened(f"a {type(value).__name__} of it outlives the call")
        return Object(type(value), attributes)

    return tensors, form(value)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor of a nest of tuples, lists, mappings, dataclasses and other objects, in order."""
    try:
        return taken_apart(value)[0]
    except Unopened:
        return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


@contextmanager
def plain_outputs(module: torch.nn.Module) -> Iterator[Callable[[], Form | None]]:
    """While this lasts, ``module`` gives back a tuple of its tensors where its outputs hold such an object; the call
    says their form, None where they hold none or it cannot be opened."""
    own = module.forward
    forms: list[Form | None] = []
    held = {id(leaf) for part in module.modules() for leaf in tree_leaves(list(vars(part).values()))}

    @functools.wraps(own)
    def forward(*args: Any, **kwargs: Any) -> Any:
        outputs = own(*args, **kwargs)
        forms.append(None)
        try:
            tensors, form = taken_apart(outputs, held | {id(value) for value in tree_leaves((args, kwargs))})
        except Unopened:
            return outputs
        if not any(isinstance(leaf, Object) for leaf in form.leaves):
            return outputs
        forms[-1] = form
        return tuple(tensors)

    forward.__dict__["__signature__"] = inspect.signature(own)
    before = module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield lambda: forms[-1] if forms else None
    finally:
        if before is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = before


def _opens(value: Any) -> bool:
    if isinstance(value, _CLOSED) or inspect.isroutine(value) or not hasattr(value, "__dict__"):
        return False
    # what lies in slots, or in the memory of a type of C, is not among the attributes
    kinds = [vars(kind) for kind in type(value).__mro__ if kind is not object]
    return not any(
        kind.get("__slots__") or ("__new__" in kind and not isinstance(kind["__new__"], staticmethod)) for kind in kinds
    )


def _hides(value: Any) -> bool:
    """Does a value that is not opened hold tensors, in slots or as elements?"""
    if isinstance(value, (list, tuple, dict, set, frozenset, deque)):
        return _has_tensors(list(value.values() if isinstance(value, dict) else value))
    if isinstance(value, _CLOSED) or inspect.isroutine(value):
        return False
    slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    names = [name for part in slots for name in ((part,) if isinstance(part, str) else part)]
    held = [getattr(value, name, None) for name in names if not name.startswith("__")]
    return _has_tensors([*held, *getattr(value, "__dict__", {}).values()])


def _has_tensors(values: list[Any]) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(values))


def _made(leaf: Any, tensors: Iterator[Any]) -> Any:
    if leaf is TENSOR:
        return next(tensors)
    if not isinstance(leaf, Object):
        return leaf
    value: Any = object.__new__(leaf.kind)
    value.__dict__.update(leaf.attributes.made(tensors))
    return value


__all__ = ["Form", "Object", "Unopened", "plain_outputs", "taken_apart", "tensors_in"]
