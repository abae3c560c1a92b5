"""A run of rows that are added at their indices, as one tile: what the least of the indices gets is summed up first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.ranks import Unknown, ranks, region_rank
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.inter_kernel import pruned
from kernellab.sketch.rewrite.rules.lanes import lifted_loop
from kernellab.sketch.syntax import tree

#: an index outside every tensor: nothing is added there
_NOWHERE = edit.number(-1)


def segment(setting: Setting) -> Iterator[Change]:
    """A loop that adds row after row to a total, and the total at its index where the next row has another, becomes a
    tile of those rows: their least index gets the sum of its rows by one addition, and rows of others are added one by
    one. Where indices are sorted most runs have no others.

    The same rows are added at the same indices, in another order, which ``atomic_add`` leaves open anyway.
    """
    for place in edit.places(setting.tree):
        run = _run(place)
        if run is None:
            continue
        sketch = setting.tree.sketches[place.launch]
        used = edit.used_names(setting.tree)
        try:
            tile_statements = _tile(run, ranks(sketch), used)
        except Unknown:
            continue
        carried = {run.total_index, run.total}
        before = tuple(
            s for s in place.body[: place.at] if not (isinstance(s, tree.Assign) and s.targets[0].id in carried)
        )
        if any(edit.mentions((*before, *place.body[place.at + 2 :]), name) for name in carried):
            continue
        file = place.block((*before, *tile_statements, *place.body[place.at + 2 :]))
        file = edit.with_launch(file, place.launch, pruned(file.sketches[place.launch]))
        yield file, f"adds the rows of a run in {sketch.name} as one tile"


@dataclass(frozen=True)
class _Run:
    """A loop over the rows of a run that adds each to a total::

    for var in range(first, min(first + rows, end)):
        body                                              # computes the row and its index ``row_index``
        same = row_index == total_index
        atomic_add(total -> target[where(same, -1, total_index), ..])
        total = where(same, total, 0) + row
        total_index = row_index
    atomic_add(total -> target[total_index, ..])
    """

    var: str
    first: tree.Expr
    rows: tree.Name
    end: tree.Expr
    body: edit.Body
    row: tree.Expr
    row_index: tree.Name
    total_index: str
    total: str
    target: tree.Subscript


def _run(place: edit.Place) -> _Run | None:
    loop, after = place.loop, place.body[place.at + 1 : place.at + 2]
    match loop.range:
        case (first, tree.Call(func="min", args=(tree.Binary(op="+", left=begin, right=tree.Name() as rows), end))):
            pass
        case _:
            return None
    match (*loop.body[-4:], *after):
        case (
            tree.Assign(
                targets=(same,),
                value=tree.Binary(op="==", left=tree.Name() as row_index, right=tree.Name(id=total_index)),
            ),
            tree.Move(op="atomic_add", source=tree.Name(id=total), dest=tree.Subscript() as inner_target),
            tree.Assign(
                targets=(tree.Name(id=summed),),
                value=tree.Binary(
                    op="+",
                    left=tree.Call(func="where", args=(chosen, tree.Name(id=kept_total), tree.Num(value=0))),
                    right=row,
                ),
            ),
            tree.Assign(targets=(tree.Name(id=moved),), value=new_index),
            tree.Move(op="atomic_add", source=tree.Name(id=added), dest=tree.Subscript() as target),
        ):
            pass
        case _:
            return None
    elsewhere = tree.Call("where", (same, _NOWHERE, tree.Name(total_index)))
    same_targets = inner_target == replace(target, items=(elsewhere, *target.items[1:]))
    if edit.is_parallel(loop) or begin != first or new_index != row_index or chosen != same:
        return None
    if not same_targets or target.items[:1] != (tree.Name(total_index),):
        return None
    if {total} != {summed, kept_total, added} or moved != total_index or edit.mentions(loop.body[:-4], total_index):
        return None
    if any(edit.mentions((loop.body[:-4], row, target.items[1:]), word) for word in (total, same.id)):
        return None
    return _Run(loop.var, first, rows, end, loop.body[:-4], row, row_index, total_index, total, target)


def _tile(run: _Run, tile_ranks: dict[str, int], used: set[str]) -> Sequence[tree.Stmt]:
    """The statements of a whole run. Raises Unknown: something in them has no meaning with one more axis."""
    rank = region_rank(run.target)
    row, index, least, has_least = (tree.Name(edit.fresh(w, used)) for w in ("rows", "index", "least", "of_least"))
    body = (*run.body, tree.Assign((row,), run.row), tree.Assign((index,), run.row_index))
    lifted = lifted_loop(run.var, run.rows, {**tile_ranks, row.id: rank, index.id: 0}, used, body)
    is_row = tree.Binary("<", tree.Binary("+", run.first, tree.Call("arange", (run.rows,))), run.end)
    along = (tree.Keyword("axis", edit.number(0)),)
    least_rows = tree.Call(
        "where", (tree.Subscript(has_least.id, (tree.Slice(), *rank * (tree.NewAxis(),))), row, tree.Num(0.0))
    )
    other_indices = tree.Call("where", (has_least, _NOWHERE, index))

    def add(value: tree.Expr, at: tree.Expr) -> tree.Move:
        return tree.Move("atomic_add", value, replace(run.target, items=(at, *run.target.items[1:])))

    return (
        *edit.rename(lifted, {run.var: run.first}),
        tree.Assign((index,), tree.Call("where", (is_row, index, _NOWHERE))),
        tree.Assign((least,), tree.Call("reduce_min", (index,), along)),
        tree.Assign((has_least,), tree.Binary("==", index, least)),
        add(tree.Call("reduce_sum", (least_rows,), along), least),
        add(row, other_indices),
    )
