"""The values of one call of a reference: those that a kernel takes, and those that the task fixes.

Tensors, NumPy arrays and numbers are a kernel's arguments. ``None``, words, dtypes and lists of sizes are not: they are
fixed. Each tensor in a list, tuple or dict is one argument; the container is rebuilt for the call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Union

from kernellab.errors import TaskError
from kernellab.task.dtypes import unusable

#: the remedy for a tensor that no kernel takes
DENSE = "Give dense tensors of plain dtypes: values and indices, or bytes and scales, as separate tensors."


@dataclass(frozen=True)
class Hole:
    """A place for a kernel's argument; ``name`` distinguishes it from others of its list ("_0")."""

    name: str = ""


@dataclass(frozen=True)
class Fixed:
    """A value that is the same in every call."""

    value: Any


@dataclass(frozen=True)
class Several:
    """A list, tuple, named tuple or dict with tensors in it; ``keys`` are a dict's, or the fields of a named tuple."""

    # a task's own class is another one each time that its text is run
    kind: type = field(compare=False)
    slots: tuple[Slot, ...]
    keys: tuple[Any, ...] = ()
    name: str = field(init=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.kind.__qualname__)

    def values(self, container: Any) -> list[Any]:
        """Return the items of ``container``, in the slots' order."""
        return [container[key] for key in self.keys] if self.kind is dict else list(container)

    def together(self, values: list[Any]) -> Any:
        """Return the container with ``values``."""
        if self.kind is dict:
            return dict(zip(self.keys, values, strict=True))
        return self.kind(*values) if self.keys else self.kind(values)


Slot = Union[Hole, Fixed, Several]


def is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_argument(value: Any) -> bool:
    """Can a kernel take ``value``?"""
    return is_array(value) or isinstance(value, (bool, int, float))


def slots_of(values: Sequence[Any], what: str) -> tuple[Slot, ...]:
    """Return the places of the values that ``what`` returns.

    Raises:
        TaskError: a value is of a kind that a kernel cannot take.
    """
    return tuple(_slot(value, f"{what}() gives", f" as value {i}") for i, value in enumerate(values, 1))


def _slot(value: Any, type_text: str, place: str, name: str = "") -> Slot:
    if kind := unusable(value):
        raise TaskError(f"{type_text} {kind}{place}, which no kernel argument can be.", DENSE)
    if is_argument(value):
        return Hole(name)
    if isinstance(value, (list, tuple)) and any(unusable(v) or _has_array(v) for v in value):
        fields = _fields(value)
        inner = tuple(_slot(v, type_text, place, f"{name}_{k}") for k, v in zip(fields or count(), value, strict=False))
        if fields:
            return Several(type(value), inner, fields)
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


def _fields(value: Any) -> tuple[str, ...]:
    """Return the fields of a named tuple; none for another value."""
    return tuple(getattr(value, "_fields", ())) if isinstance(value, tuple) else ()


def within(slots: Sequence[Slot], namespace: Mapping[str, Any]) -> tuple[Slot, ...]:
    """Return ``slots`` with the named tuples of ``namespace``, a task's module, in the place of another module's."""

    def placed(slot: Slot) -> Slot:
        if not isinstance(slot, Several):
            return slot
        own = namespace.get(slot.name)
        if not isinstance(own, type) or not slot.keys or getattr(own, "_fields", ()) != slot.keys:
            own = slot.kind
        return replace(slot, kind=own, slots=within(slot.slots, namespace))

    return tuple(map(placed, slots))


def _has_array(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_array(v) for v in value.values())
    return is_array(value) or (isinstance(value, (list, tuple)) and any(_has_array(v) for v in value))


def _is_plain(value: Any) -> bool:
    """Is it None, a word, a number, a dtype or device of torch, or a container of these?"""
    if isinstance(value, Mapping):
        return all(_is_plain(v) for pair in value.items() for v in pair)
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(_is_plain(v) for v in value)
    if value is None or isinstance(value, (str, bytes, bool, int, float, complex)):
        return True
    return type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device", "layout", "memory_format")


def arguments(values: Sequence[Any], slots: Sequence[Slot]) -> list[Any]:
    """Return the kernel's arguments among ``values``, in order."""
    result: list[Any] = []
    for value, slot in zip(values, slots, strict=True):
        if isinstance(slot, Hole):
            result.append(value)
        elif isinstance(slot, Several):
            result.extend(arguments(slot.values(value), slot.slots))
    return result


def filled(slots: Sequence[Slot], args: Iterator[Any]) -> list[Any]:
    """Return a call's values: ``slots`` with their holes filled from ``args``, in order."""
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
    """Return the names of the kernel's arguments; ``names`` are those of the call, one for each slot."""
    result: list[str] = []
    for slot, name in zip(slots, names, strict=True):
        if isinstance(slot, Hole):
            result.append(f"{name}{slot.name}")
        elif isinstance(slot, Several):
            result.extend(holes(slot.slots, [name] * len(slot.slots)))
    return result
