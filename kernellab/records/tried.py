"""Cases that are tried after a failure: at public sizes, or with constant contents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field

from kernellab.records.base import Record

#: the largest and the smallest of the usual tiles
_TILE, _SMALL_TILE = 64, 8


class Tried(Record):
    """The sizes of its Dims, its input family, and whether it was right; for constant contents also the first error."""

    sizes: dict[str, int]
    family: str = ""
    right: bool
    #: tensors with constant contents
    contents: dict[str, float] = Field(default_factory=dict)
    #: the first wrong index of output ``output``, and both sides' values; None without a result
    output: int | None = None
    first_wrong: list[int] | None = None
    got: float | str | None = None
    want: float | str | None = None

    @property
    def words(self) -> str:
        """``M=33, x all 0: wrong, first at [0, 3]: got nan, want 0``."""
        at = ", ".join(
            [*(f"{name}={size}" for name, size in self.sizes.items()), *filter(None, [filled(self.contents)])]
        )
        if self.first_wrong is not None:
            which = f"output {self.output}, " if self.output else ""
            return (
                f"{at}: wrong, {which}first at {self.first_wrong}: got {_number(self.got)}, want {_number(self.want)}"
            )
        if self.contents and not self.right and self.output is None:
            return f"{at}: wrong: no result of the reference's form"
        return f"{at}: {'right' if self.right else 'wrong'}"


def fails_at_whole_tiles(tried: Iterable[Tried]) -> bool:
    """Was the task's own input wrong where each size is a multiple of the usual tiles?"""
    return any(not case.right and all(size % _TILE == 0 for size in case.sizes.values()) for case in _own(tried))


def right_at_ragged_sizes(tried: Iterable[Tried]) -> bool:
    """Was the task's own input right where no size is a multiple of a small tile, and each is larger than one? The last
    tile is not a full one there, so that a missing mask would show."""
    sizes = [case.sizes.values() for case in _own(tried) if case.right]
    return any(all(size > _SMALL_TILE and size % _SMALL_TILE for size in each) for each in sizes)


def _own(tried: Iterable[Tried]) -> list[Tried]:
    return [case for case in tried if case.family in ("", "inputs") and case.sizes and not case.contents]


def filled(contents: Mapping[str, float]) -> str:
    """``x all 0, w all 1``."""
    return ", ".join(f"{name} all {value:g}" for name, value in contents.items())


def _number(value: float | str | None) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
