"""Copies an operand once into another order of its dimensions, for a launch that reads it many times.

This helps reads whose lanes are a row apart. It does not help a tile that is transposed after its load, since the
lowering of a product transposes while it packs (C++, both orders of linear layers and attention: 0.75x to 0.98x with a
copy)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.inter_kernel import pruned, with_tensors
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes

#: both steps of the copy, and the steps to choose from; chosen, not measured
_STEP, _STEPS = 32, (8, 16, 32, 64, 128)


def turn(setting: Setting) -> Iterator[Change]:
    """Copy a tensor that a launch only reads, with its dimensions in the order in which the launch reads them."""
    for number, sketch in edit.launches(setting.tree):
        grid = edit.grid(sketch)
        if not grid or any(s.pinned for s in (*grid, *grid[-1].body)):
            continue
        for tensor in _only_read(sketch):
            turned = _turned(sketch, grid[0], tensor, edit.used_names(setting.tree))
            if turned is not None:
                why = f"copied {tensor.name} into another order of its dimensions, as {sketch.name} reads it"
                yield edit.with_launch(setting.tree, number, *turned), why


def _only_read(sketch: tree.Sketch) -> list[tree.TensorDecl]:
    """Return the tensors of two or more dimensions that the launch reads and does not write."""
    stores = {edit.target_tensor(node) for node in nodes(sketch.body) if edit.is_store(node)}
    items = [i for d in sketch.declarations if not d.pinned for i in d.items if isinstance(i, tree.TensorDecl)]
    return [t for t in items if t.name not in stores and len(t.shape) > 1 and t.role in (None, "in", "temp")]


def _turned(
    sketch: tree.Sketch, outer: tree.For, tensor: tree.TensorDecl, used: set[str]
) -> tuple[tree.Sketch, tree.Sketch] | None:
    """Return the launch that copies and the one that reads; None where a copy is not possible or has no use."""
    loads = [n for n in nodes(sketch.body) if edit.is_load(n) and edit.source_tensor(n) == tensor.name]
    named = [n for n in nodes(sketch.body) if isinstance(n, tree.Subscript) and n.name == tensor.name]
    scalars = {n.var for n in nodes(sketch.body) if isinstance(n, tree.For)} | {
        i.name for d in sketch.declarations for i in d.items if isinstance(i, (tree.ConstDecl, tree.SymbolDecl))
    }
    slices = {_sliced(load, scalars) for load in loads}
    if len(slices) != 1 or len(named) != len(loads):
        return None
    (sliced,) = slices
    rank = len(tensor.shape)
    if not sliced or rank - 1 in sliced or not all(_is_read_again(sketch, load) for load in loads):
        return None
    order = [dim for dim in range(rank) if dim not in sliced] + list(sliced)
    copy = edit.fresh(f"{tensor.name}_turned", used)
    declared = tree.TensorDecl(copy, tuple(tensor.shape[dim] for dim in order), tensor.dtype, "temp")

    def change(node: object) -> object:
        if isinstance(node, tree.Subscript) and node.name == tensor.name:
            return replace(node, name=copy, items=tuple(node.items[dim] for dim in order))
        return None

    body = edit.substitute(sketch.body, change)
    reading = pruned(with_tensors(replace(sketch, body=body), [declared]))
    return _copying(sketch, outer, tensor, declared, order, used), reading


def _is_read_again(sketch: tree.Sketch, load: tree.Move) -> bool:
    """Does a loop around a load read the same part of the tensor in each iteration? Tensors that are read once are not
    copied."""
    around = (n for n in nodes(sketch.body) if isinstance(n, tree.For) and any(m is load for m in nodes(n.body)))
    return any(not edit.mentions(load.source, loop.var) for loop in around)


def _sliced(load: tree.Move, scalars: set[str]) -> tuple[int, ...]:
    """Return the dimensions of ranges in a load; none if another index is not a single number of ``scalars``."""
    items = load.source.items if isinstance(load.source, tree.Subscript) else ()
    others = [item for item in items if not isinstance(item, tree.Slice)]
    plain = all(edit.uses(item) <= scalars and not isinstance(item, tree.NewAxis) for item in others)
    ranges = [at for at, item in enumerate(items) if isinstance(item, tree.Slice) and item.step is None]
    return tuple(ranges) if plain and len(ranges) + len(others) == len(items) else ()


def _copying(
    sketch: tree.Sketch, outer: tree.For, tensor: tree.TensorDecl, copy: tree.TensorDecl, order: Sequence[int],
    used: set[str],
) -> tree.Sketch:  # fmt: skip
    """Return the launch that copies: the last dimension of both tensors is along a side of its tiles."""
    sides = (len(tensor.shape) - 1, order[-1])
    steps = {at: edit.fresh(word, used) for at, word in zip(sides, ("TURN_COLS", "TURN_ROWS"), strict=True)}
    variables = [edit.fresh(word, used) for word in "ijklmnop"[: len(tensor.shape)]]
    items: list[tree.Expr | tree.Slice | tree.NewAxis] = []
    for at, var in enumerate(variables):
        begin = tree.Name(var)
        items.append(tree.Slice(begin, edit.binary("+", begin, tree.Name(steps[at]))) if at in steps else begin)
    tile, turned = (edit.fresh(f"{tensor.name}_{word}", used) for word in ("part", "across"))
    across = tree.Call("transpose", (tree.Name(tile),))
    body: edit.Body = (
        tree.Move("load", tree.Subscript(tensor.name, tuple(items)), tree.Name(tile)),
        tree.Assign((tree.Name(turned),), across),
        tree.Move("store", tree.Name(turned), tree.Subscript(copy.name, tuple(items[at] for at in order))),
    )
    hint = edit.parallel_hint(edit.grid_axis(outer) or "grididx")
    for at in reversed(range(len(variables))):
        size = tensor.shape[at]
        loop = (edit.number(0), size, tree.Name(steps[at])) if at in steps else (size,)
        body = (tree.For(variables[at], loop, body, (hint,)),)
    lines = tuple(
        replace(d, comments=tree.NO_COMMENTS, items=tuple(i for i in d.items if i == tensor or d.kind != "tensors"))
        for d in sketch.declarations
        if d.kind in ("symbols", "tensors", "constexpr")
    )
    copying = replace(sketch, name=edit.fresh(f"{sketch.name}_turn", used), declarations=lines, body=body)
    copying = with_tensors(replace(copying, comments=tree.NO_COMMENTS), [copy])
    for step in steps.values():
        copying = edit.declare(copying, step, _STEP, _STEPS)
    return pruned(copying)
