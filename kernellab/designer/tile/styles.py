"""Schedules for a chip: the numbers in which they differ."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.target import Target


@dataclass(frozen=True)
class Style:
    """The parameters of one schedule."""

    title: str
    why: str
    #: a row is one tile if it has at most this many elements
    whole_row: int = 0
    #: pointwise tile
    flat: int = 16384
    #: tile along a reduced row that is not whole
    row_block: int = 4096
    #: tile along the columns of a strided reduction, and down its rows
    columns: int = 512
    down: int = 0
    #: strided reductions of at most this many elements hold them all
    whole_column: int = 64
    matmul: tuple[int, int, int] = (64, 64, 64)
    split: bool = True
    #: elements of a tile of several rows, and of one over columns that are held whole (GPU)
    row_tile: int = 2048
    column_tile: int = 2048
    #: programs per SM that a split reduction aims at (GPU)
    waves: int = 8
    #: elements per thread: of tiles that are read once, of streamed ones, of pointwise ones (GPU)
    per_thread: int = 32
    streaming: int = 8
    pointwise: int = 16
    #: the tile of a product is chosen by its extents, as measured; else it is ``matmul`` (GPU)
    measured: bool = False
    #: output positions are the rows of a window's product, not its columns (None: except over a copy); and their
    #: largest number (GPU)
    positions_first: bool | None = None
    positions: int = 128
    #: windows read a copy of their input, channels last: "gain" if it pays, "always", "never" (GPU)
    copied: str = "gain"
    #: rows and keys of a tile of attention; (): chosen by the factors
    attention: tuple[int, ...] = ()
    #: attention is one launch, and its scores are not stored
    fused: bool = False
    #: products and convolutions are calls of the framework's library
    library: bool = False
    #: sums of a product are computed from its factors' sums if nothing else of it is used
    algebra: bool = True
    #: a scatter may write to a place several times: the last write wins
    repeats: bool = False


def styles(target: Target) -> list[Style]:
    """Return the schedules for a chip, best first."""
    if target.chip.kind == "gpu":
        # the numbers of the first one are the best of 600 timed on an H200, at the tasks' own sizes and 1 GiB
        return [
            Style("rows in registers", "Each row is read once and stays in registers.", whole_row=16384, flat=1024,
                  row_block=4096, columns=64, down=64, whole_column=1024, measured=True),
            Style("blocked rows", "Rows stream through in blocks; reductions take a pass each.", whole_row=0, flat=2048,
                  row_block=2048, columns=64, down=16, whole_column=0, matmul=(64, 64, 32), per_thread=8,
                  positions_first=True, copied="never"),
            Style("small tiles", "Small tiles: more programs, fewer registers each.", whole_row=4096, flat=512,
                  row_block=1024, columns=32, down=32, whole_column=64, matmul=(32, 64, 32),
                  per_thread=8, pointwise=8, positions=64, copied="always"),
        ]  # fmt: skip
    return [
        Style("rows in cache", "Each core takes whole rows; a row stays in its L2 between passes.", whole_row=1 << 17,
              flat=16384, columns=512, whole_column=256, matmul=(512, 256, 256), attention=(64, 256)),
        Style("blocked rows", "Rows stream through in blocks that fit L1; each reduction takes a pass.", whole_row=0,
              flat=4096, row_block=2048, columns=1024, down=8, whole_column=0, matmul=(128, 128, 256),
              attention=(128, 512)),
        Style("small tiles", "Small tiles: more parallel work for short inputs.", whole_row=8192, flat=2048,
              row_block=1024, columns=128, whole_column=32, matmul=(32, 32, 64), split=False,
              attention=(32, 128)),
    ]  # fmt: skip
