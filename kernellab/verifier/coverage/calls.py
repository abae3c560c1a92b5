"""The calls that the stages made, kept so that a process that counts makes them once more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernellab.verifier.coverage.limits import COVERAGE
from kernellab.verifier.protocol.memory import Layout

#: calls that are not made once more: they repeat the contents of others
_REPEATED = ("burst", "held", "later", "again", "echo", "dry")


@dataclass(frozen=True)
class Made:
    """One call of a stage: its operation, places and arguments."""

    op: str
    layout: Layout
    args: tuple[Any, ...]
    is_large: bool = False


class Calls:
    """The calls that the stages made, with copies of their arguments as far as memory allows."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        #: number of calls that could not be kept
        self.dropped = 0
        #: bytes of the copies, by whether a call is large
        self._bytes = {False: 0, True: 0}
        self._forms = set[tuple[Any, ...]]()
        #: large arguments by their shapes and dtypes
        self._contents: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def saw(self, layout: Layout, args: Sequence[Any], op: str) -> None:
        """Keep a call. Of large ones only the first of each form is kept, with the contents of an earlier one where
        memory does not suffice."""
        if op in _REPEATED:
            return
        size = sum(a.numel() * a.element_size() for a in args if isinstance(a, torch.Tensor))
        form = tuple((p.shape, p.strides, p.dtype, repr(p.value)) for p in layout.places)
        is_large = size > COVERAGE.small_bytes
        if is_large and (op, form) in self._forms:
            return
        shapes = tuple((p.shape, p.dtype, repr(p.value)) for p in layout.places)
        kept: tuple[Any, ...] | None
        if self._bytes[is_large] + size > COVERAGE.kept_bytes or (
            not is_large and len(self.made) >= COVERAGE.kept_calls
        ):
            kept = self._contents.get(shapes) if is_large else None
        else:
            self._bytes[is_large] += size
            kept = tuple(a.contiguous().clone() if isinstance(a, torch.Tensor) else a for a in args)
        if kept is None:
            self.dropped += (op, form) not in self._forms
            return
        self._forms.add((op, form))
        if is_large:
            self._contents[shapes] = kept
        self.made.append(Made(op, replace(layout, fences=(), sealed=False), kept, is_large))

    def in_order(self) -> list[Made]:
        """Return the calls, the small ones first."""
        return sorted(self.made, key=lambda made: made.is_large)


def together(calls: Sequence[Made]) -> Iterator[Made]:
    """Yield the first of ``calls`` that are made at once."""
    size = 0
    for number, made in enumerate(calls):
        size += made.layout.size
        if number and (number >= COVERAGE.calls_per_look or size > COVERAGE.together_bytes):
            return
        yield made
