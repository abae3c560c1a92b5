"""The record of one call, as a program for launcher.c.

The call's tensors are its buffers: those of the arguments by their position, then the new ones. Each parameter of a
launch is bytes; where they are an address, a :class:`Patch` says of which buffer, so that a replay puts in that of its
tensors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import torch


class Place(NamedTuple):
    """A buffer, and an offset in it in bytes."""

    buffer: int
    offset: int


class Patch(NamedTuple):
    """The address in a launch's parameters at byte ``at`` (of a fill: 0) is that of a buffer, plus an offset in
    bytes."""

    at: int
    buffer: int
    offset: int


class NewTensor(NamedTuple):
    """A tensor that the call makes."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class Output(NamedTuple):
    """A result: the new tensor of that number, or (with a size) a view of it."""

    tensor: int
    size: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    offset: int | None = None


@dataclass(frozen=True)
class Step:
    """A kernel's launch, or a fill of memory."""

    fill: bool = False
    #: a cooperative launch: its programs wait for each other
    cooperative: bool = False
    function: int = 0
    grid: tuple[int, int, int] = (0, 0, 0)
    threads: int = 0
    shared: int = 0
    data: bytes = b""
    offsets: tuple[int, ...] = ()
    patches: tuple[Patch, ...] = ()
    value: int = 0
    width: int = 0
    items: int = 0

    def as_tuple(self) -> tuple[Any, ...]:
        """Return the step in the form of launcher.c (``take_step``)."""
        return (
            self.fill, self.cooperative, self.function, *self.grid, self.threads, self.shared, self.data, self.offsets,
            self.patches, self.value, self.width, self.items,
        )  # fmt: skip


@dataclass(frozen=True)
class Recording:
    """The record of one call; ``container``: how it returns its results, see :class:`Container`."""

    makes: tuple[NewTensor, ...]
    steps: tuple[Step, ...]
    container: int
    outs: tuple[Output, ...]


class Container(IntEnum):
    """What a call returns, by launcher.c's numbers."""

    TENSOR = 0
    TUPLE = 1
    LIST = 2
    NONE = 3


__all__ = ["Container", "NewTensor", "Output", "Patch", "Place", "Recording", "Step"]
