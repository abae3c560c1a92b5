"""The values of one call of a reference: those that a kernel takes, and those that are fixed as the task gives them.

Tensors, NumPy arrays and numbers are a kernel's arguments. ``None``, words, dtypes and lists of sizes are not: they are
fixed. A list, tuple or dict that holds tensors gives one argument for each of them and is put together again for the
call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from kernellab.errors import TaskError
from kernellab.task.dtypes import unusable

#: what is done about a tensor that no kernel takes
DENSE = "Give dense tensors of plain dtypes: values and indices, or bytes and scales, as separate tensors."


@dataclass(frozen=True)
class Hole:
    """A place that a kernel's argument fills; ``name`` is what tells it from others of its list ("_0")."""

    name: str = ""


@dataclass(frozen=True)
class Fixed:
    """A value that every call gets as it is."""

    value: Any


@dataclass(frozen=True)
class Several:
    """A list, tuple or dict with tensors in it; ``keys`` are a dict's."""

    kind: type
    slots: tuple[Slot, ...]
    keys: tuple[Any, ...] = ()

    def values(self, container: Any) -> list[Any]:
        """What ``container`` holds, in the slots' order."""
        return [container[key] for key in self.keys] if self.kind is dict else list(container)

    def together(self, values: list[Any]) -> Any:
        """The container of ``values``."""
        return dict(zip(self.keys, values, strict=True)) if self.kind is dict else self.kind(values)


Slot = Union[Hole, Fixed, Several]


def is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_argument(value: Any) -> bool:
    """Can a kernel take ``value``?"""
    return is_array(value) or isinstance(value, (bool, int, float))


def slots_of(values: Sequence[Any], what: str) -> tuple[Slot, ...]:
    """The places of the values that ``what`` gives.

    Raises:
        TaskError: a value is of a kind that a reference can be called with, but no kernel.
    """
    return tuple(_slot(value, f"{what}() gives", f" as value {i}") for i, value in enumerate(values, 1))


def _slot(value: Any, type_text: str, place: str, name: str = "") -> Slot:
    if kind := unusable(value):
        raise TaskError(f"{type_text} {kind}{place}, which no kernel argument can be.", DENSE)
    if is_argument(value):
        return Hole(name)
    if isinstance(value, (list, tuple)) and any(unusable(v) or _has_array(v) for v in value):
        inner = tuple(_slot(v, type_text, place, f"{name}_{i}") for i, v in enumerate(value))
        return Several(list if isinstance(value, list) else tuple, inner)
    if isinstance(value, dict) and any(unusable(v) or _has_array(v) for v in value.values()):
        named = [str(k) if str(k).isidentifier() else str(i) for i, k in enumerate(value)]
        inner = tuple(_slot(v, type_text, place, f"{name}_{k}") for k, v in zip(named, value.values(), strict=True))
        return Several(dict, inner, tuple(value))
    if not _is_plain(value):
        raise TaskError(
            f"{type_text} a {type(value).__name__}{place}, which no kernel argument can be.",
            "Give tensors, NumPy arrays, numbers, None, words, and lists or dicts of them.",
        )
    return Fixed(value)


def _has_array(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_array(v) for v in value.values())
    return is_array(value) or (isinstance(value, (list, tuple)) and any(_has_array(v) for v in value))


def _is_plain(value: Any) -> bool:
    """None, a word, a number, a dtype or device of torch, or a container of such."""
    if isinstance(value, Mapping):
        return all(_is_plain(v) for pair in value.items() for v in pair)
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(_is_plain(v) for v in value)
    if value is None or isinstance(value, (str, bytes, bool, int, float, complex)):
        return True
    return type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device", "layout", "memory_format")


def arguments(values: Sequence[Any], slots: Sequence[Slot]) -> list[Any]:
    """The kernel's arguments among ``values``, in order."""
    result: list[Any] = []
    for value, slot in zip(values, slots, strict=True):
        if isinstance(slot, Hole):
            result.append(value)
        elif isinstance(slot, Several):
            result.extend(arguments(slot.values(value), slot.slots))
    return result


def filled(slots: Sequence[Slot], args: Iterator[Any]) -> list[Any]:
    """A call's values: ``slots`` with the next of ``args`` in their holes."""
    values: list[Any] = []
    for slot in slots:
        if isinstance(slot, Hole):
            values.append(next(args))
        elif isinstance(slot, Several):
            values.append(slot.together(filled(slot.slots, args)))
        else:
            values.append(slot.value)
    return values


def holes(slots: Sequence[Slot], names: Sequence[str]) -> list[str]:
    """The names of the kernel's arguments; ``names`` are the call's, one a slot."""
    result: list[str] = []
    for slot, name in zip(slots, names, strict=True):
        if isinstance(slot, Hole):
            result.append(f"{name}{slot.name}")
        elif isinstance(slot, Several):
            result.extend(holes(slot.slots, [name] * len(slot.slots)))
    return result
