"""How a launch's axes run: the result of a tile rule, and the constexprs that it names."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernellab.designer.ir.expr import Axis, Tap


@dataclass
class Consts:
    """Constexprs of one file: name -> (default, choices), in insertion order."""

    values: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def add(self, name: str, default: int, choices: tuple[int, ...] = ()) -> str:
        """Return the name of a constexpr with this default and these choices; a number is appended if ``name``
        differs."""
        base, k = name, 2
        while name in self.values and self.values[name] != (default, choices):
            name, k = f"{base}{k}", k + 1
        self.values[name] = (default, choices)
        return name

    def default(self, name: str) -> int:
        return self.values[name][0]

    def choices(self, name: str) -> tuple[int, ...]:
        return self.values[name][1]

    @property
    def defaults(self) -> dict[str, int]:
        return {name: default for name, (default, _) in self.values.items()}


@dataclass(frozen=True)
class Tiling:
    """How the axes of one launch run. An axis in neither map is a loop over single elements.

    ``blocks``: axis -> name of the constexpr of its tile size; ``whole``: axes with one tile of their full extent;
    ``exact``: blocked axes whose extent is divisible by every choice of the block; ``why``: the schedule in sentences.

    The other fields are options of the launch kinds under whose headings they stand; their defaults leave them out.
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

    # pointwise
    #: stored axes that are loops inside a tile: values that do not vary along them are computed once
    inside: tuple[Axis, ...] = ()

    # reductions
    #: partial results stay in a tile's lanes until its loop ends
    lanes: bool = False
    #: rows that no tile holds: a row of narrow floats is read once, for its largest element and for the sum of the
    #: exponentials below that
    once: bool = False
    #: elements of a tile of such a row for each lane of its block, which share an exponential
    parts: int = 1
    #: elements of a vector, at whose multiples a loop over rows of any length begins; 0: it begins with the row
    vector: int = 0
    #: a row stays in the cache, and gets one pass per reduction of narrow elements
    cached: bool = False

    # products
    #: how factors are multiplied (``tf32x3``); "": as their dtype is
    precision: str = ""
    #: tiles of the grid that are visited as one group, so that neighbours share a cache; 0: in order
    swizzle: int = 0
    #: whether its loop loads through tensor descriptors by default; None: it cannot
    descriptors: bool | None = None
    #: groups of warps that multiply tiles loaded by one more warp through the copy engine; 0: every warp does both
    groups: int = 0
    #: the groups alternate on whole tiles
    in_turn: bool = False

    # windows, which are products too
    #: a block of channels holds all of them
    whole_channels: bool = False
    #: the tap whose places are, with their channels, the depth of one product; None: each is a product
    deep: Tap | None = None
    #: that depth: lanes along the sum
    depth: int = 0
    #: positions are the rows of a window's product
    positions_first: bool = False
    #: name of the constexpr with the number of tiles of positions that one program computes with the same weights
    run: str = ""
    #: rows of outputs that one program computes from the same loads, if its windows have stride 1
    shared_rows: int = 0
