"""How a launch's axes run: the result of a tile rule, and the constexprs that it names.

A tile rule (``designer/tile``) maps a launch to a :class:`Tiling`; the emitters (``designer/emit``) write its loops. An
axis is a loop over blocks, one whole tile, or a loop over single elements. What only one kind of launch needs is in a
record of that kind: :class:`RowStream` (reductions), :class:`Multiplication` (all products) and :class:`WindowTiles`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kernellab.designer.ir.axes import Axis, Tap


class Constexpr(NamedTuple):
    """A tile size that a tuner may change."""

    default: int
    choices: tuple[int, ...]


@dataclass
class Consts:
    """The constexprs of one file by name, in insertion order."""

    values: dict[str, Constexpr] = field(default_factory=dict)

    def add(self, name: str, default: int, choices: tuple[int, ...] = ()) -> str:
        """Return the name of a constexpr with this default and these choices: ``name``, with a number if another one
        has that name."""
        const = Constexpr(default, choices)
        free_name, number = name, 2
        while self.values.setdefault(free_name, const) != const:
            free_name, number = f"{name}{number}", number + 1
        return free_name

    def default(self, name: str) -> int:
        return self.values[name].default

    def choices(self, name: str) -> tuple[int, ...]:
        return self.values[name].choices

    @property
    def defaults(self) -> dict[str, int]:
        return {name: const.default for name, const in self.values.items()}


@dataclass(frozen=True)
class RowStream:
    """How a reduced row that no tile holds is read."""

    #: one read gives the largest element of a row of narrow floats, and the sum of the exponentials relative to it
    softmax_in_one_read: bool = False
    #: elements of a tile for each lane of its block, which share an exponential
    elements_per_lane: int = 1
    #: elements of a vector, at whose multiples the loop begins; 0: it begins with the row
    vector: int = 0
    #: a row stays in the cache, so that each reduction of narrow elements reads it again
    from_cache: bool = False


@dataclass(frozen=True)
class WarpRoles:
    """One warp loads tiles through the copy engine; ``groups`` of other warps multiply them."""

    groups: int
    #: the groups alternate on whole tiles; else they share each tile
    in_turn: bool = False


@dataclass(frozen=True)
class Multiplication:
    """How a launch multiplies tiles of two factors."""

    #: the precision of a product of two tiles (``tf32x3``); "": that of the factors' dtype
    precision: str = ""
    #: tiles of the grid that are visited as one group, so that neighbours share a cache; 0: in order
    swizzle: int = 0
    #: whether its loop loads through tensor descriptors by default; None: it cannot
    descriptors: bool | None = None
    #: None: every warp loads and multiplies
    roles: WarpRoles | None = None


@dataclass(frozen=True)
class WindowTiles:
    """The tile of a window operator, in addition to its blocks."""

    #: a block of channels holds all of them
    whole_channels: bool = False
    #: the tap whose places are, with their channels, the summed lanes of one product; None: one product for each tap
    merged_tap: Tap | None = None
    #: the number of these lanes
    merged_lanes: int = 0
    #: positions are the rows of the product, and channels its columns
    positions_first: bool = False
    #: the constexpr with the number of tiles of positions that one program computes with the same weights; "": one
    tiles_per_program: str = ""
    #: rows of outputs that one program computes from the same loads, if its windows have stride 1; 0: it does not
    shared_rows: int = 0


@dataclass(frozen=True)
class Tiling:
    """How the axes of one launch run. An axis in neither ``blocks`` nor ``whole`` is a loop over single elements.

    ``blocks``: axis -> name of the constexpr of its tile size; ``whole``: axes with one tile of their full extent;
    ``exact``: blocked axes whose extent is divisible by every choice of the block; ``why``: the schedule in sentences.
    """

    order: tuple[Axis, ...]
    blocks: dict[Axis, str] = field(default_factory=dict)
    whole: frozenset[Axis] = frozenset()
    exact: frozenset[Axis] = frozenset()
    why: tuple[str, ...] = ()
    #: the hint of the parallel loops: ``grididx`` (a GPU's programs) or ``coreidx`` (a CPU's cores)
    core: str = "grididx"
    #: launch options; 0: the tiles determine them
    warps: int = 0
    stages: int = 0
    #: stored axes that are loops inside a tile: values that do not vary along them are computed once
    inner_loops: tuple[Axis, ...] = ()
    #: partial results of a reduction stay in a tile's lanes until its loop ends
    partials_in_lanes: bool = False
    #: the constexpr with the number of rows that a program of a scatter adds before it writes; "": one
    added_rows: str = ""
    stream: RowStream = RowStream()
    product: Multiplication = Multiplication()
    window: WindowTiles = WindowTiles()

    @property
    def multiplying_groups(self) -> int:
        """The groups of warps that only multiply; 0 if every warp loads and multiplies."""
        return self.product.roles.groups if self.product.roles is not None else 0
