"""Tiles of a loop over a Dim: axes that no step mixes are divided among programs, the rest is whole in each."""

from __future__ import annotations

from collections.abc import Set

from kernellab.designer.ir.axes import Axis, Free, by_age
from kernellab.designer.ir.expr import Leaf, Red, walk
from kernellab.designer.ir.launch import Launch, LaunchKind
from kernellab.designer.ir.normal import Output
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.steps.loops import Steps, Walk
from kernellab.designer.tile.context import Context
from kernellab.errors import DesignError

_WHY = "One program walks all steps; what a step leaves to the next stays on chip."
_HALVES = "What steps read at other places than they write is in two halves of a tensor in turn."
#: desired elements of a kept tile of a program
_KEPT = {False: 1 << 12, True: 1 << 11}
#: minimum columns of a program
_COLUMNS = 16


def launch(loop: Steps, wanted: Set[str]) -> Walk:
    """Return the launch of a loop, which stores those results of its last step that are ``wanted``."""
    free = Free()
    outs = [*(o for o in loop.afters if o.tensor in wanted), *loop.each]
    stored = [frozenset(_in_order(o)) for o in (*loop.afters, *loop.each)]
    inside = [e for o in (*loop.afters, *loop.each) for e in walk(o.expr)]
    mixed = {a for e in inside if isinstance(e, Red) for a in e.axes}
    for e in inside:
        if isinstance(e, Leaf) and e.tensor in loop.tile_indices:
            pairs = zip(e.index, loop.tile_indices[e.tensor], strict=True)
            mixed |= {a for ix, kept in pairs if ix != kept for a in (*ix.leaves(), *kept.leaves())}
    independent = frozenset.intersection(*stored) - mixed
    all_axes = frozenset().union(*stored, *(free(e) for e in inside), *(e.axes for e in inside if isinstance(e, Red)))
    return Walk(LaunchKind.STEPS, independent, all_axes - independent, outs=outs, title="steps", steps=loop)


def _in_order(o: Output) -> list[Axis]:
    return [a for ix in o.index for a in ix.leaves()]


def tiling(ctx: Context, k: Launch) -> Tiling:
    """Choose the tiles. Raise DesignError if the values that a program keeps do not fit on chip."""
    assert isinstance(k, Walk)
    used_axes = [a for o in (*k.loop.afters, *k.loop.each) for a in _in_order(o)]
    used_axes += [a for e in k.loads for ix in e.index for a in ix.leaves()]
    order = tuple(
        dict.fromkeys([*(a for a in used_axes if a in k.par), *(a for a in used_axes if a in k.red), *by_age(k.red)])
    )
    if not ctx.bounded(k.red):
        raise DesignError(
            f"A step of the loop in {ctx.task.name!r} needs tiles of more than one program holds.",
            "Bound the extents that its steps reduce or move along (a Dim's largest size), or let a person or a model "
            "design it.",
        )
    last = next((a for o in k.loop.afters or k.loop.each for a in reversed(_in_order(o))), None)
    blocks = {}
    if last is not None and last in k.par:
        columns, others = _KEPT[ctx.gpu] // max(ctx.volume(k.red), 1), ctx.volume(k.par - {last})
        block = 1 << max(_COLUMNS, min(columns, 1 << 9)).bit_length() - 1
        while block > _COLUMNS and others * -(-ctx.size(last) // block) < ctx.cores:
            block //= 2
        blocks = {last: ctx.block("COLS", block, last, _COLUMNS if ctx.gpu else 1)}
        order = (*(a for a in order if a is not last and a in k.par), *(a for a in order if a in k.red), last)
    core = "grididx" if ctx.gpu else "coreidx"
    return Tiling(order, blocks, whole=k.red, core=core, why=(_WHY, *((_HALVES,) if k.loop.halves else ())))
