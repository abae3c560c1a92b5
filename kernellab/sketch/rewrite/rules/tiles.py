"""Tile sizes and other tunables: another default, a wider set, and a tunable in place of a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules import blocks
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes

#: launch options, which separate rewrites change
LAUNCH = ("num_warps", "num_stages")
#: sizes of a tile that are tried, in elements
_LEAST, _MOST = 8, 1 << 16


def tunables(setting: Setting) -> Iterator[Change]:
    """Move each tunable one step down and one step up in its set."""
    for const in edit.consts(setting.tree).values():
        options = edit.integers(const.choices)
        value = edit.value_of(tree.Name(const.name), {const.name: const})
        if const.name in LAUNCH or value not in options:
            continue
        at = options.index(value)
        for other in options[max(0, at - 1) : at] + options[at + 1 : at + 2]:
            yield edit.with_value(setting.tree, const.name, other), f"set {const.name} to {other} instead of {value}"


def sizes(setting: Setting) -> Iterator[Change]:
    """Try each tile at a factor of two outside its set, in both directions; make a tunable of a step or a row that is a
    number."""
    yield from _wider(setting)
    yield from _named(setting)
    yield from blocks.rows(setting)


def _wider(setting: Setting) -> Iterator[Change]:
    steps = {n.id for p in edit.places(setting.tree) for n in [edit.bounds(p.loop).step] if isinstance(n, tree.Name)}
    for const in edit.consts(setting.tree).values():
        if const.name not in steps:
            continue
        value = edit.value_of(tree.Name(const.name), {const.name: const})
        options = edit.integers(const.choices) or ([value] if value is not None else [])
        if not options or value is None:
            continue
        smaller, larger = options[0] // 2, options[-1] * 2
        for other in (smaller, larger):
            # half of a tile covers the same elements; twice the tile may cross an inner boundary
            if not _LEAST <= other <= _MOST or (other == smaller and options[0] % 2):
                continue
            if other == larger and not _fits(setting, const.name, other):
                continue
            changed = edit.with_value(setting.tree, const.name, other, {value, other})
            yield changed, f"set {const.name} to {other}, which its set {_set(options)} did not have"


def _fits(setting: Setting, name: str, size: int) -> bool:
    """Does ``size`` divide every extent of a loop in steps of ``name``? Loops over symbols end at the tensor's edge."""
    constants = edit.consts(setting.tree)
    for place in edit.places(setting.tree):
        start, stop, step = edit.bounds(place.loop)
        if step != tree.Name(name):
            continue
        extent = edit.value_of(edit.binary("-", stop, start), constants)
        if extent is not None and extent % size:
            return False
        if extent is None and (start != edit.number(0) or not isinstance(stop, tree.Name)):
            return False
    return True


def _named(setting: Setting) -> Iterator[Change]:
    """Make a tunable of a step that is a number, also in slices of that length."""
    for place in edit.places(setting.tree):
        step = edit.bounds(place.loop).step
        if not isinstance(step, tree.Num) or not isinstance(step.value, int) or step.value < _LEAST:
            continue
        if len(edit.bounds(place.loop)) != 3 or not _cuts(place.loop, step.value):
            continue
        used = edit.used_names(setting.tree)
        word = edit.fresh(f"T{place.loop.var.upper()}", used)
        half = step.value // 2 if step.value % 2 == 0 and step.value >= 2 * _LEAST else step.value
        loop = replace(
            place.loop,
            range=(*place.loop.range[:2], edit.name(word)),
            body=_recut(place.loop.body, place.loop.var, step.value, word),
        )
        file = place.put(loop)
        sketch = edit.declare(file.sketches[place.launch], word, half, {half, step.value})
        why = f"made the step {step.value} of the loop over {place.loop.var} the tunable {word}, at {half}"
        yield edit.with_launch(file, place.launch, sketch), why


def _cuts(loop: tree.For, size: int) -> bool:
    """Is ``size`` written in the loop only as the length of slices that start with its variable?"""
    if not all(isinstance(s, tree.Move) for s in loop.body if any(edit.number(size) == n for n in nodes(s))):
        return False
    cuts = [n for n in nodes(loop.body) if isinstance(n, tree.Slice) and edit.mentions(n, loop.var)]
    return bool(cuts) and all(_is_cut(c, loop.var, size) for c in cuts)


def _is_cut(cut: tree.Slice, var: str, size: int) -> bool:
    return (
        cut.step is None
        and cut.start == tree.Name(var)
        and cut.stop == tree.Binary("+", tree.Name(var), tree.Num(size))
    )


def _recut(body: edit.Body, var: str, size: int, word: str) -> edit.Body:
    def cut(node: object) -> object:
        if isinstance(node, tree.Slice) and _is_cut(node, var, size):
            return replace(node, stop=tree.Binary("+", tree.Name(var), tree.Name(word)))
        return None

    return edit.substitute(body, cut)


def _set(options: list[int]) -> str:
    return "{" + ", ".join(map(str, options)) + "}"
