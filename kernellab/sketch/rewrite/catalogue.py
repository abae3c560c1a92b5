"""Every rewrite by name, and the variants of a sketch for a chip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kernellab.errors import KernellabError
from kernellab.sketch.check import CheckResult, check
from kernellab.sketch.rewrite.record import Rewrite, Rewritten, Setting, rewrite
from kernellab.sketch.rewrite.rules import (
    apart,
    factor,
    fuse,
    hints,
    join,
    lanes,
    launches,
    loops,
    online,
    recompute,
    segment,
    select,
    tiles,
    turn,
)
from kernellab.sketch.syntax.messages import nearest
from kernellab.sketch.syntax.parse import parse
from kernellab.target import Chip, Target

_ALL = (
    rewrite("tunables", "One step of one tunable in its set, up or down.", tiles.tunables, numbers=True),
    # on a GPU it is faster more often than tiles outside their sets are
    rewrite(
        "warps", "Another number of warps a program, or of stages of its loads.", hints.warps, numbers=True, needs="gpu"
    ),
    rewrite("tile", "A tile beyond its set, or a set where a number was written.", tiles.sizes, numbers=True),
    rewrite("interchange", "Two loops, one right inside the other, change places.", loops.interchange),
    rewrite("split", "Each parallel iteration takes several tiles, one after another.", loops.split),
    rewrite("split_k", "A loop that sums up in parts that run at once, and a launch that adds them.", launches.split_k),
    rewrite("cut", "One launch as two, with what is alive between them stored.", launches.cut),
    rewrite("fuse", "Two launches over one grid as one, with nothing stored between.", fuse.fuse),
    rewrite("join", "Two launches over the same rows in other tiles as one, across reductions and orders.", join.join),
    rewrite("recompute", "What a launch stores of each element, computed again where it is read.", recompute.recompute),
    rewrite("factor", "A factor that every term of a sum has, taken out of the sum.", factor.factor),
    rewrite(
        "apart", "An axis of two to four places that a sum or a maximum takes along, as a tile a place.", apart.apart
    ),
    rewrite("select", "The first few of a row by a maximum each, in place of an order of the row.", select.select),
    rewrite("segment", "A run of rows that are added at indices, as one tile.", segment.segment),
    rewrite("turn", "An operand copied once into the order in which it is read.", turn.turn),
    rewrite("online", "A maximum and the sum below it in one pass that rescales, or in two.", online.online),
    rewrite("placement", "A loop moves between the grid and the program.", loops.placement),
    rewrite("persist", "A program a core, each of which walks over many tiles.", hints.persist),
    rewrite(
        "pipeline",
        "Loads of later iterations during this one's work, in a number of stages.",
        hints.pipeline,
        numbers=True,
        needs="pipeline",
    ),
    rewrite("vectorise", "Iterations of a parallel loop as the lanes of one tile.", lanes.vectorise),
    rewrite("unroll", "The body of a sequential loop, several times in a row.", loops.unroll),
    rewrite("swizzle", "Tiles of a grid are visited in groups that share a cache.", hints.swizzle, needs="swizzle"),
    rewrite(
        "precision", "Products split into narrower ones that are at least as exact.", hints.precision, needs="precision"
    ),
)

#: name -> rewrite, in the order in which they are tried
REWRITES: Mapping[str, Rewrite] = MappingProxyType({r.name: r for r in _ALL})


def rewrites(text: str, target: Target, names: Collection[str] | None = None) -> list[Rewritten]:
    """Return every variant of a sketch without an error on the target's chip, in order, without duplicates.

    ``names`` are the rewrites that are tried, all by default. A variant is left out if it breaks a pin or a
    ``require:`` line, or if ``check`` has warnings that the sketch itself does not have.

    Raises:
        SketchError: the sketch cannot be read.
        KernellabError: a name that no rewrite has.
    """
    return [variant for variant in variants(text, target, names) if keeps(text, variant, target)]


def variants(text: str, target: Target, names: Collection[str] | None = None) -> list[Rewritten]:
    """As :func:`rewrites`, but some variants may have errors: a caller that needs one of many calls :func:`keeps` for
    that one.

    Raises:
        SketchError: the sketch cannot be read.
        KernellabError: a name that no rewrite has.
    """
    chosen = _chosen(names)
    tree = parse(text)
    # a rewrite may change values that are too large for the chip
    if _checked(text, None).program is None:
        return []
    setting = Setting(text, tree, target.chip, target.dsl)
    seen = {text}
    distinct: list[Rewritten] = []
    for rewriting in chosen:
        for variant in rewriting.apply(setting):
            if variant.text not in seen:
                seen.add(variant.text)
                distinct.append(variant)
    return distinct


def keeps(text: str, rewritten: Rewritten, target: Target) -> bool:
    """Has a variant of ``text`` no error on the target's chip, no broken pin, and no warning except those of ``text``?

    A name that is no longer read changes no result."""
    after = check(rewritten.text, chip=target.chip, parent=text)
    return after.program is not None and not _warnings(after) - _warnings(_checked(text, target.chip))


class _Checked(NamedTuple):
    text: str
    chip: Chip | None
    result: CheckResult


#: the latest checks, of which a search asks for one again with each variant of the sketch
_latest: list[_Checked] = []


def _checked(text: str, chip: Chip | None) -> CheckResult:
    for one in list(_latest):
        if one.text == text and one.chip == chip:
            return one.result
    result = check(text, chip=chip)
    _latest[:] = [_Checked(text, chip, result), *_latest[:7]]
    return result


def _chosen(names: Collection[str] | None) -> list[Rewrite]:
    for name in names or ():
        if name not in REWRITES:
            remedy = nearest(name, REWRITES) or f"Those known are {', '.join(REWRITES)}."
            raise KernellabError(f"There is no rewrite {name!r}.", str(remedy))
    return [r for r in _ALL if names is None or r.name in names]


def _warnings(result: CheckResult) -> Counter[str]:
    return Counter(d.rule for d in result.diagnostics if d.severity == "warning" and d.rule != "unused-name")
