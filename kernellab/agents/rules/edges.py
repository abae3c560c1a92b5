"""Advice for numbers that are wrong where the last tile of a dimension is not a full one.

The dimension comes from the first wrong element and from the sketch's loads and stores (:class:`Access`): of X[M, N] in
tiles of 64 columns, an error at column 990 of 1000 is in the last tile of N. The advice then names what to mask. If the
sketch has no partial tile along that dimension, or no dimension fits, it names what else loses an end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernellab.agents.briefs import RouteBrief
from kernellab.agents.rules.coder import is_verbatim
from kernellab.agents.rules.contrast import joined, multiple, multiples
from kernellab.errors import KernellabError
from kernellab.records import Evidence
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Kernel, Load, Program, Range, Store
from kernellab.sketch.program.walk import statements

#: Share of wrong elements above which the errors are not confined to one place.
_MOSTLY = 0.5
#: An error of nearly all elements this small relative to the output's norm is not caused by a tail.
_LITTLE = 1e-3

_LOST_DIGITS = (
    "Nearly all of it is wrong, and by little: look for digits that are lost, as in a difference of near numbers or a "
    "sum in another order."
)
_NO_NUMBERS = (
    "No element has a number. Look for stores of whole tiles alone, which store nothing where a size is less than a "
    "tile, and for memory that is read before anything is stored to it."
)
_SPOILED = (
    "of the elements are wrong. Look for a loop that takes a step too many or too few, as over a reduced dimension, "
    "whose missing end spoils every result of it; and for an index that is wrong."
)


@dataclass(frozen=True)
class Access:
    """A load or store of the sketch: ``words`` such as "the load of X at N", its line, and the extents of the
    dimensions of which it takes a range."""

    words: str
    line: int
    extents: tuple[str, ...]


@dataclass(frozen=True)
class _Dimension:
    """A dimension by its Dim's name; one of a fixed size has the name "the dimension of 64"."""

    name: str
    size: int

    @property
    def has_dim(self) -> bool:
        return self.name.isidentifier()

    @property
    def extent(self) -> str:
        """As the sketch writes it."""
        return self.name if self.has_dim else str(self.size)

    @property
    def size_text(self) -> str:
        """The size as `` (N=1000)``; empty if the name contains it."""
        return f" ({self.name}={self.size})" if self.has_dim else ""


def about_edge(brief: RouteBrief, evidence: Evidence) -> str:
    """Name the dimension whose last tile is wrong, its size, and the loads that need the mask; "" if the sizes that
    were tried identify another dimension."""
    share = evidence.wrong_fraction or 0.0
    if share > _MOSTLY and (evidence.rel_frobenius or 1.0) < _LITTLE:
        return _LOST_DIGITS
    dimension, dims_by_step = _edge_dimension(brief, evidence), multiples(evidence)
    if dimension is None:
        return _without_tail(brief, evidence, "the output")
    if dims_by_step and not any(dimension.name in dims for dims in dims_by_step.values()):
        return ""
    if reason := _why_no_tail(brief, dimension):
        return _without_tail(brief, evidence, f"{dimension.name}{dimension.size_text}, {reason}")
    return _mask(brief, evidence, dimension)


def _mask(brief: RouteBrief, evidence: Evidence, dimension: _Dimension) -> str:
    """Advice to mask the accesses of a dimension's last tile."""
    found = accesses(brief, dimension.name)
    # a sum over the masked dimension shows its error at other places than the load's, so the loads come first
    names = list(dict.fromkeys(access.words for access in found)) or [f"each load and store at {dimension.name}"]
    lines = _code_lines(brief, found)
    positions = f" ({', '.join(lines)})" if lines else ""
    tile, size_text, share = f"the last tile of {dimension.name}", dimension.size_text, evidence.wrong_fraction or 0.0
    if share > _MOSTLY:
        # values read beyond the end of a reduced dimension make every result wrong
        where = f"{_percent(share)} of the elements are wrong where {tile} is not a full one{size_text}"
        return f"Mask {joined(names)}{positions}: {where}, and none at whole tiles."
    if not _lies_at_end(evidence):
        return f"Mask {joined(names)}{positions}: it is wrong where {tile} is not a full one{size_text}."
    return f"Mask {joined(names)}{positions}: errors lie only in {tile}{size_text}."


def _without_tail(brief: RouteBrief, evidence: Evidence, where: str) -> str:
    """Advice for errors ``where`` the sketch has no partial tile; "" if the sizes that were tried say more."""
    share = evidence.wrong_fraction or 0.0
    if share <= _MOSTLY:
        return _about_the_end(where, is_verbatim(brief), _lies_at_end(evidence))
    if evidence.error_map and all(set(row) == {"n"} for row in evidence.error_map) and share == 1.0:
        return _NO_NUMBERS
    return "" if multiple(evidence) else f"{_percent(share)} {_SPOILED}"


def _about_the_end(where: str, verbatim: bool, at_end: bool) -> str:
    """Advice for errors at the end of a dimension without a partial tile in the sketch: code that follows the sketch
    verbatim needs no mask there; other code may take other steps. For errors elsewhere, a reduced dimension may have
    lost its end."""
    if not at_end:
        step = "" if verbatim else "a step of the code's own that does not divide a dimension, "
        return f"Look for {step}a loop that ends early, as over a reduced dimension, or an index that is wrong."
    step = "no mask is missing. Look" if verbatim else "look for a step of the code's own that does not divide it, or"
    return (
        f"The wrong elements lie at the end of {where}: {step} for a loop that ends early, an array shorter than the "
        "loop over it, or an index that is wrong from some place on."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _lies_at_end(evidence: Evidence) -> bool:
    """Whether the map shows wrong elements only in the last half of its rows or columns. True without any."""
    rows = [row for row, line in enumerate(evidence.error_map) if line.strip(".")]
    columns = [n for line in evidence.error_map for n, mark in enumerate(line) if mark != "."]
    if not rows:
        return True
    height, width = len(evidence.error_map), len(evidence.error_map[0])
    return (height > 1 and 2 * rows[0] >= height) or (width > 1 and 2 * min(columns) >= width)


# -- the dimension -----------------------------------------------------------------------------------------------------


def _edge_dimension(brief: RouteBrief, evidence: Evidence) -> _Dimension | None:
    """The dimension whose last tile is wrong.

    This is the dimension in which the first error is furthest towards the end, if the sketch takes tiles of it. An
    error in a sum over the masked dimension appears in every column of the row; then it is the ragged tiled dimension.
    """
    tiled = {extent for access in accesses(brief) for extent in access.extents}
    furthest = _furthest_dimension(brief, evidence)
    if furthest is not None and (not tiled or furthest.extent in tiled):
        return furthest
    return _ragged_dimension(brief, evidence, tiled)


def _furthest_dimension(brief: RouteBrief, evidence: Evidence) -> _Dimension | None:
    """The output's dimension in which the first wrong element is furthest towards the end."""
    outputs, number = brief.task.outputs, evidence.output or 0
    shape = outputs[number].shape if number < len(outputs) else ()
    if not evidence.first_wrong or len(evidence.first_wrong) != len(shape):
        return None
    furthest, furthest_share = None, 0.0
    for position, extent in zip(evidence.first_wrong, shape, strict=True):
        size = extent if isinstance(extent, int) else evidence.sizes.get(str(extent))
        if size and size > 1 and position / size > furthest_share:
            name = f"the dimension of {size}" if isinstance(extent, int) else str(extent)
            furthest, furthest_share = _Dimension(name, size), position / size
    return furthest


def _ragged_dimension(brief: RouteBrief, evidence: Evidence, tiled: set[str]) -> _Dimension | None:
    """The Dim that a tile does not divide, of those of which the sketch takes tiles; of all, if it takes none."""
    constexpr = brief.candidate.constexpr if brief.candidate else {}
    tiles = [value for value in constexpr.values() if isinstance(value, int) and value > 1]
    for name, size in evidence.sizes.items():
        if (not tiled or name in tiled) and any(size % tile for tile in tiles):
            return _Dimension(name, size)
    return None


def _why_no_tail(brief: RouteBrief, dimension: _Dimension) -> str:
    """Why no tile along the dimension is partial: each divides its size, or there are none; else empty."""
    program = program_of(brief)
    if program is None or not dimension.has_dim:
        return ""
    constexpr = brief.candidate.constexpr if brief.candidate else {}
    values = {c.name: c.value for c in program.constexprs if isinstance(c.value, int)}
    values |= {name: value for name, value in constexpr.items() if isinstance(value, int)}
    values[dimension.name] = dimension.size
    tiles = [extent for kernel in program.kernels for extent in _tile_extents(kernel, dimension.name)]
    if not tiles:
        return "along which the sketch has no tiles"
    sizes = [tile.evaluate(values) for tile in tiles if tile.names() <= values.keys()]
    all_divide = len(sizes) == len(tiles) and all(tile > 0 and dimension.size % tile == 0 for tile in sizes)
    return "which the sketch's tiles divide" if all_divide else ""


# -- the sketch's loads and stores -------------------------------------------------------------------------------------


def program_of(brief: RouteBrief) -> Program | None:
    """The brief's sketch as a program; None if there is none, or it is invalid."""
    if brief.sketch is None:
        return None
    from kernellab.sketch.check import load_program

    try:
        return load_program(brief.sketch)
    except KernellabError:
        return None


def accesses(brief: RouteBrief, dimension: str = "") -> list[Access]:
    """The loads and stores of the sketch that take a range of ``dimension`` (of any, if empty), in order."""
    program = program_of(brief)
    return [] if program is None else [a for kernel in program.kernels for a in _accesses(kernel, dimension)]


def _accesses(kernel: Kernel, dimension: str) -> Iterator[Access]:
    for statement in _loads_and_stores(kernel):
        region = statement.region
        ranges = zip(region.index, region.tensor.shape, strict=True)
        extents = tuple(str(extent) for index, extent in ranges if isinstance(index, Range))
        if extents and (not dimension or dimension in extents):
            kind = "store to" if isinstance(statement, Store) else "load of"
            words = f"the {kind} {region.tensor.name} at {dimension or extents[-1]}"
            yield Access(words, statement.span.line, extents)


def _tile_extents(kernel: Kernel, dimension: str) -> Iterator[IntExpr]:
    for statement in _loads_and_stores(kernel):
        region = statement.region
        for index, extent in zip(region.index, region.tensor.shape, strict=True):
            if isinstance(index, Range) and str(extent) == dimension:
                yield index.extent


def _loads_and_stores(kernel: Kernel) -> Iterator[Load | Store]:
    return (statement for statement in statements(kernel.body) if isinstance(statement, (Load, Store)))


def _code_lines(brief: RouteBrief, found: Sequence[Access]) -> list[str]:
    """The first line of each code file that was made from these accesses, if it still has its line map."""
    if brief.candidate is None:
        return []
    sketch_lines = {access.line for access in found}
    positions = []
    for file, lines in brief.candidate.source.line_map.items():
        numbers = sorted(code for code, sketch in lines.items() if sketch in sketch_lines)
        if numbers:
            positions.append(f"{file}:{numbers[0]}")
    return positions
