"""What may differ between two calls of a kernel, as factors with a few levels each: the sizes, and the contents, layout
and place of each argument, its scalars, one tensor given twice, threads. A row of levels is a case and its layout.

A level is a class of values, for example ``long N`` or ``NaN in x``; level 0 of each factor is the usual one. A row
``(0, 2, 0, 1)`` of the covering array takes level 2 of the second factor and level 1 of the fourth; a value is drawn
for each (:class:`Combination`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from kernellab.conditions import AlignmentLimit, Condition, DrawnLimit, Mark, ScalarLimit, StridesLimit
from kernellab.task import ArgKind
from kernellab.task.dtypes import computable
from kernellab.task.sample.draw import Family
from kernellab.task.sample.sizes import input_bytes, runs_at
from kernellab.verifier.boundary_checks import layouts
from kernellab.verifier.boundary_checks.covering import Array, Partial, Row
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.changes import changed
from kernellab.verifier.cases.extents import Sizes
from kernellab.verifier.protocol.memory import Layout
from kernellab.verifier.protocol.rules import COMBINED
from kernellab.verifier.survey.proposals import Grade, pattern_at

if TYPE_CHECKING:
    from kernellab.verifier.survey.survey import Drawn

_DRAW = secrets.SystemRandom()
#: End of a condition in words.
_NOT = " not handled"


class Kind(Enum):
    SIZE = "size"
    CONTENTS = "contents"
    SCALAR = "scalar"
    LAYOUT = "layout"
    TWICE = "twice"
    THREADS = "threads"


@dataclass(frozen=True)
class Level:
    """A class of values of one factor, in words, and what draws one of them."""

    words: str = ""
    draw: Callable[[], Any] = lambda: None
    #: The verdict's condition if they are the cause of a wrong answer; None if that is a failure.
    condition: Condition | None = None
    #: Of sizes, the largest one.
    most: int = 0
    #: Whether a fault of other levels may not show next to this one.
    masks: bool = False


#: The level that all earlier cases had.
_USUAL = Level()


@dataclass(frozen=True)
class Factor:
    """What may differ, with the levels that it has."""

    kind: Kind
    #: The name of a Dim, the position of an argument or, of one tensor given twice, two positions.
    target: Any
    levels: tuple[Level, ...]


class Chosen(NamedTuple):
    """A factor away from its usual level, and the value drawn for that."""

    factor: Factor
    level: Level
    value: Any


@dataclass(frozen=True)
class Combination:
    """A case that differs from the usual one in the factors that are ``chosen``."""

    seed: int
    chosen: tuple[Chosen, ...]

    def of_kind(self, kind: Kind) -> list[Chosen]:
        """Return the chosen factors of a kind."""
        return [chosen for chosen in self.chosen if chosen.factor.kind is kind]

    def without(self, usual: Chosen) -> Combination:
        """Return the combination with one factor as usual."""
        return Combination(self.seed, tuple(chosen for chosen in self.chosen if chosen is not usual))

    @property
    def words(self) -> str:
        """The classes of its values: ``NaN in x with long N``. They tell no drawn value."""
        return " with ".join(chosen.level.words for chosen in self.chosen)


class LaidOut(NamedTuple):
    """A case, and where its arguments lie."""

    case: Case
    layout: Layout


class Factors:
    """The factors of a task. ``base``: a small case; ``known``: the verdict's conditions, which are not met again."""

    def __init__(self, base: Case, known: Sequence[Condition]) -> None:
        self.task, self.base, self._known = base.task, base, list(known)
        self.all: list[Factor] = []
        small = {d.name: max(d.min, min(d.max, COMBINED.usual_size)) for d in self.task.dims}
        #: Sizes where no factor has another one.
        self.sizes = small if runs_at(self.task, tuple(small.items())) else dict(base.sizes)
        #: Bytes there.
        self.bytes = input_bytes(self.task, self.sizes)

    def _add(self, kind: Kind, target: Any, levels: Sequence[Level]) -> None:
        untried = tuple(level for level in levels if not self._is_known(level.condition))
        if untried:
            self.all.append(Factor(kind, target, (_USUAL, *untried)))

    def _is_known(self, condition: Condition | None) -> bool:
        """Return whether the verdict says already that the kernel is wrong there."""
        if isinstance(condition, StridesLimit):
            return condition in self._known or StridesLimit(contiguous="all") in self._known
        if isinstance(condition, ScalarLimit):
            return any(isinstance(c, ScalarLimit) and c.argument == condition.argument for c in self._known)
        if isinstance(condition, DrawnLimit):
            return any(isinstance(c, DrawnLimit) and c.values == condition.values for c in self._known)
        return condition is not None and condition in self._known

    # -- the factors

    def add_sizes(self, numbers: Sequence[int]) -> None:
        """Each Dim: empty and one where it may be, whole tiles, other middle sizes, long, and past a number of the
        source."""
        for dim in self.task.dims:
            name, usual = dim.name, self.sizes[dim.name]
            named = [n for n in numbers if COMBINED.middle_sizes[0] <= n < COMBINED.max_literal_size]
            spans = {
                f"{name} = 0": (0, 0), f"{name} = 1": (1, 1), f"middle {name}": COMBINED.middle_sizes,
                f"long {name}": COMBINED.long_sizes,
            }  # fmt: skip
            levels = [
                Level(words, partial(_DRAW.randint, low, min(high, dim.max)), most=min(high, dim.max), masks=high < 2)
                for words, (low, high) in spans.items() if dim.min <= low <= dim.max and low != usual
            ]  # fmt: skip
            whole = [n for n in COMBINED.tile_sizes if dim.min <= n <= dim.max]
            if whole:
                levels.append(Level(f"{name} a multiple of 64", partial(_DRAW.choice, whole), most=max(whole)))
            past = [m for n in named for m in (n + 1, n + _DRAW.randint(2, 9)) if dim.min <= m <= dim.max]
            if past:
                levels.append(Level(f"{name} past a number of the source", partial(_DRAW.choice, past), most=max(past)))
            self._add(Kind.SIZE, name, levels)

    def add_scalars(self, right: Mapping[int, Sequence[Any]], compared: Sequence[float]) -> None:
        """Each scalar: the classes of those values for which the kernel was ``right``, by position; the numbers that a
        source has ``compared`` something with part the classes too."""
        ends = sorted({0.0, 1.0, COMBINED.large_scalar, *compared[: COMBINED.scalar_literals]})
        for position, values in right.items():
            name, usual = self.task.args[position].name, self.base.args[position]
            limit = ScalarLimit(argument=name, value=usual, refuted=True)
            classes: dict[str, list[Any]] = {}
            for value in values:
                classes.setdefault(_class_of(value, ends), []).append(value)
            self._add(Kind.SCALAR, position, [
                Level(f"{name} {words}", partial(_DRAW.choice, members), limit, masks=all(map(_is_zero, members)))
                for words, members in classes.items()
            ])  # fmt: skip

    def add_contents(self, drawn: Sequence[Drawn], orders: Sequence[tuple[int, str]]) -> None:
        """Each argument: patterns of the ``drawn`` cases, and rows in order or equal of those in ``orders``."""
        levels: dict[int, dict[tuple[str, str], Level]] = {}
        for one in drawn:
            change = one.case.change
            if not change or change[0] != "pattern" or self.task.args[change[1]].kind is not ArgKind.TENSOR:
                continue
            kind, condition = change[2], None
            words = f"{kind} in {self.task.args[change[1]].name}"
            if one.grade is not Grade.REFUSED or one.beyond:
                condition = one.right.model_copy(update={"argument": one.argument, "values": one.condition})
                # large and tiny numbers are one pattern
                words = one.condition.removesuffix(_NOT) if one.condition.endswith(_NOT) else words
            level = Level(words, partial(tuple, change), condition, masks=kind in _OF_ONE_VALUE)
            levels.setdefault(change[1], {}).setdefault((kind, words), level)
        for position, name in orders:
            for kind in ("ascending", "descending", "equal"):
                change = pattern_at(position, kind, 0, 0)
                level = Level(f"{kind} rows of {name}", partial(tuple, change), masks=kind in _OF_ONE_VALUE)
                levels.setdefault(position, {}).setdefault((kind, level.words), level)
        for position, kinds in levels.items():
            first = [level for (kind, _), level in kinds.items() if kind in COMBINED.contents_first]
            rest = [level for level in kinds.values() if level not in first]
            more = _DRAW.sample(rest, min(len(rest), max(COMBINED.max_contents - len(first), 0)))
            self._add(Kind.CONTENTS, position, [*first, *more])

    def add_layouts(self, places: bool) -> None:
        """Each tensor: strides, and with ``places`` where it lies in memory and one tensor given twice."""
        written = set(self.task.module().written)
        for position in layouts.free_tensors(self.base)[: COMBINED.relaid_arguments]:
            name, rank = self.task.args[position].name, self.base.args[position].dim()
            levels = [
                _placed(f"{words} {name}", layouts.Placed(strides), StridesLimit(contiguous=limit))
                for words, ranks, strides, limit in layouts.ORDERS if rank in ranks
            ]  # fmt: skip
            if places:
                levels += [
                    _placed(f"{name} off its alignment", layouts.Placed(at="element"), AlignmentLimit()),
                    _placed(f"{name} at the end of a page", layouts.Placed(at="end")),
                ]
                if rank >= 2 and position not in written:
                    mark = Mark(kind="expanded-inputs-unsupported")
                    levels.append(_placed(f"expanded {name}", layouts.Placed(repeats=True), mark))
            self._add(Kind.LAYOUT, position, levels)
        for pair in layouts.like_pairs(self.base)[: COMBINED.aliased_pairs if places else 0]:
            names = " and ".join(self.task.args[i].name for i in pair)
            self._add(Kind.TWICE, pair, [Level(f"one tensor for {names}", condition=Mark(kind="tensor-given-twice"))])

    def add_threads(self) -> None:
        """Teams of other sizes than the usual."""
        self._add(Kind.THREADS, None, [Level("another team of threads", partial(_DRAW.choice, COMBINED.teams))])

    # -- rows

    def array(self) -> Array:
        """The covering array of the factors."""
        masks = {(i, n) for i, factor in enumerate(self.all) for n, level in enumerate(factor.levels) if level.masks}
        return Array([len(factor.levels) for factor in self.all], self._fits, masks)

    def _fits(self, row: Partial) -> bool:
        """Return whether the inputs at the longest sizes of a row's levels are small enough."""
        sizes = dict(self.sizes)
        for factor, level in zip(self.all, row, strict=True):
            if factor.kind is Kind.SIZE and level:
                sizes[factor.target] = factor.levels[level].most
        return input_bytes(self.task, sizes) <= max(COMBINED.max_bytes, self.bytes)

    def drawn(self, row: Row) -> Combination:
        """Return a combination of the levels of ``row``, with values drawn for them."""
        levels = ((factor, factor.levels[n]) for factor, n in zip(self.all, row, strict=True) if n)
        chosen = tuple(Chosen(factor, level, level.draw()) for factor, level in levels)
        return Combination(secrets.randbits(31), chosen)

    def laid_out(self, combination: Combination) -> LaidOut | None:
        """Return the case of a combination and its layout; None if the task refuses its sizes."""
        other_sizes = {chosen.factor.target: chosen.value for chosen in combination.of_kind(Kind.SIZE)}
        sizes: Sizes = {**self.sizes, **other_sizes}
        if self.task.dims and not runs_at(self.task, tuple(sizes.items())):
            return None
        plain = Case(self.task, tuple(sizes.items()), Family.OWN, combination.seed) if self.task.dims else self.base
        args = list(_with_contents(plain.args, combination))
        for chosen in combination.of_kind(Kind.SCALAR):
            args[chosen.factor.target] = chosen.value
        placed = {chosen.factor.target: chosen.value for chosen in combination.of_kind(Kind.LAYOUT)}
        for position, place in placed.items():
            args[position] = layouts.repeated(args[position]) if place.repeats else args[position]
        pairs = [chosen.factor.target for chosen in combination.of_kind(Kind.TWICE)]
        for first, second in pairs:
            if args[first].shape == args[second].shape:
                args[second] = args[first]
        case = plain.given(tuple(args))
        has_own_values = not any(combination.of_kind(kind) for kind in (Kind.CONTENTS, Kind.SCALAR))
        return LaidOut(case if has_own_values else case.judged_as(Family.EDGES), layouts.mixed(args, placed, pairs))


def _with_contents(args: tuple[Any, ...], combination: Combination) -> tuple[Any, ...]:
    """Return the arguments with the patterns of a combination; an argument's own values stay in their range."""
    for factor, level, change in combination.of_kind(Kind.CONTENTS):
        value = args[factor.target]
        if value.numel():
            args = changed(args, _within(value, change) if level.condition is None else change)
    return args


def _placed(words: str, place: layouts.Placed, condition: Condition | None = None) -> Level:
    return Level(words, lambda: place, condition)


def _is_zero(value: Any) -> bool:
    return not isinstance(value, bool) and bool(value == 0)


def _class_of(value: Any, ends: Sequence[float]) -> str:
    """Return the class of a scalar in words that are the same for all of its values: one of the ``ends``, or between
    two of them."""
    if isinstance(value, bool) or value in ends or abs(value) == inf:
        return f"= {value}"
    low, high = (max((e for e in ends if e < value), default=-inf), min((e for e in ends if e > value), default=inf))
    return f"below {high:g}" if low == -inf else f"above {low:g}" + (f" and below {high:g}" if high < inf else "")


#: Patterns of which all elements, or those of a row, have one value: no layout shows in them.
_OF_ONE_VALUE = ("zero", "low", "high", "equal", "constant rows", "one hot")
#: Patterns of integers that are filled from the range of the argument's own values at a size.
_OF_RANGE = {"low": min, "high": max}


def _within(value: torch.Tensor, change: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a pattern of integers with the range that they have at this size, as indices of a shorter table do."""
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        return change
    known = computable(value)  # torch has no minimum of uint16
    low, high = int(known.min()), int(known.max())
    end = _OF_RANGE.get(change[2])
    low, high = (end(low, high),) * 2 if end else (low, high)
    return (*change[:4], low, high)
