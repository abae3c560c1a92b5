"""How a launch's axes run: the record that a tile rule returns, and the constexprs that it names."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernellab.designer.ir.expr import Axis


@dataclass
class Consts:
    """Constexprs of one file: name -> (default, choices), in the order in which they were added."""

    values: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def add(self, name: str, default: int, choices: tuple[int, ...] = ()) -> str:
        """The name of a constexpr with this default and these choices; a number follows where ``name`` is another."""
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

    ``blocks``: axis -> name of the constexpr that is its tile size; ``whole``: axes that are one tile of their full
    extent; ``exact``: blocked axes whose extent every choice of the block divides; ``why``: the schedule in sentences.
    """

    order: tuple[Axis, ...]
    blocks: dict[Axis, str] = field(default_factory=dict)
    whole: frozenset[Axis] = frozenset()
    exact: frozenset[Axis] = frozenset()
    why: tuple[str, ...] = ()
    #: stored axes that are loops inside a tile: what does not vary along them is computed once for all (pointwise)
    inside: tuple[Axis, ...] = ()
    core: str = "grididx"
    #: partial results stay in a tile's lanes until its loop has ended
    lanes: bool = False
    precision: str = ""
    swizzle: int = 0
    #: launch options of a product, 0 where the tiles decide
    warps: int = 0
    stages: int = 0
    #: its loop may load through tensor descriptors: whether it does by default
    descriptors: bool | None = None
    #: the largest element of a row of narrow floats and the exponentials below it are found in one read
    once: bool = False
    #: rows of lanes, each as long as its block says, that a tile of that row is
    parts: int = 1
    #: a row that lies in the cache has a pass for each reduction, of narrow elements
    cached: bool = False
    #: groups of warps that multiply what one more warp loads through the chip's copy engine; 0: every warp does both
    groups: int = 0
    #: those groups compute whole tiles in turn
    in_turn: bool = False
    #: a block of channels holds all of them (windows)
    whole_channels: bool = False
    #: positions are the rows of a window's product
    positions_first: bool = False
    #: name of the constexpr that says how many tiles of positions one program computes with the same weights (windows)
    run: str = ""
    #: rows of outputs that one program joins from the same loads, where its windows move by one (windows)
    shared_rows: int = 0
