"""Hints and launch numbers: pipelines, the order of a grid, persistent programs, warps and stages, precision.

They change how a launch runs and not its meaning; only the precision of a product changes rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.tiles import LAUNCH
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes

#: choices of pipeline stages, of tiles in a swizzled group, and of warps; chosen, not measured
_STAGES, _GROUPS, _WARPS = (2, 3, 4), (4, 8, 16), (1, 2, 4, 8, 16)
#: precisions of a product of f32, each row of equal exactness: 24, 16, 11 and 8 bits of mantissa
EXACTNESS = (("ieee", "tf32x3", "bf16x6"), ("bf16x3",), ("tf32",), ("bf16",))


def _with_grid_hints(sketch: tree.Sketch, loops: list[tree.For]) -> tree.Sketch:
    """Return ``sketch`` with the hints of ``loops`` on its parallel loops, outermost first."""

    def inner(body: edit.Body, left: list[tree.For]) -> edit.Body:
        if not left:
            return body
        loop = body[-1]
        assert isinstance(loop, tree.For)
        changed = replace(loop, hints=left[0].hints, comments=left[0].comments, body=inner(loop.body, left[1:]))
        return (*body[:-1], changed)

    return replace(sketch, body=inner(sketch.body, loops))


def pipeline(setting: Setting) -> Iterator[Change]:
    """Change the number of pipeline stages, in which loads of later iterations overlap the current one, or remove the
    pipeline."""
    if not setting.reads("pipeline"):
        return
    for place in edit.places(setting.tree):
        loop, where = place.loop, setting.tree.sketches[place.launch].name
        if edit.is_parallel(loop) or not any(isinstance(s, tree.Move) and s.op == "load" for s in loop.body):
            continue
        words = edit.words(loop)
        current = words.get("pipeline") or (edit.number(2) if "pipeline" in words else None)
        for stages in _STAGES:
            if current != edit.number(stages):
                changed = place.put(edit.hinted(loop, "pipeline", edit.number(stages)))
                yield changed, f"pipelined the loop over {loop.var} in {where} in {stages} stages"
        if current is not None:
            yield place.put(edit.unhinted(loop, "pipeline")), f"no longer pipelines the loop over {loop.var} in {where}"


def swizzle(setting: Setting) -> Iterator[Change]:
    """Visit the tiles of a grid of two or more dimensions in groups, so that neighbours share a cache."""
    if not setting.reads("swizzle"):
        return
    for number, sketch in edit.launches(setting.tree):
        loops = edit.grid(sketch)
        if len(loops) < 2:
            continue
        current = next((n for loop in loops for w, n in edit.words(loop).items() if w == "swizzle"), None)
        plain = [edit.unhinted(loop, "swizzle") for loop in loops]
        for group in _GROUPS:
            if current != edit.number(group):
                hinted = [*plain[:-1], edit.hinted(plain[-1], "swizzle", edit.number(group))]
                changed = _with_grid_hints(sketch, hinted)
                why = f"visits tiles of {sketch.name} in groups of {group}"
                yield edit.with_launch(setting.tree, number, changed), why
        if current is not None:
            changed = _with_grid_hints(sketch, plain)
            yield edit.with_launch(setting.tree, number, changed), f"visits the tiles of {sketch.name} in order"


def persist(setting: Setting) -> Iterator[Change]:
    """Start as many programs as the chip has cores, each for several tiles; or one for each tile again."""
    for number, sketch in edit.launches(setting.tree):
        loops = edit.grid(sketch)
        if not loops:
            continue
        trips = edit.trips(sketch, loops[0])
        if setting.reads("persistent"):
            hinted = [edit.unhinted(loop, "persistent") for loop in loops]
            why = f"one program for each tile of {sketch.name}"
            if not any("persistent" in edit.words(loop) for loop in loops):
                hinted[0] = edit.hinted(loops[0], "persistent")
                why = f"persistent programs walk over {sketch.name}"
            yield edit.with_launch(setting.tree, number, _with_grid_hints(sketch, hinted)), why
        elif trips is None or trips > setting.chip.cores:
            why = f"{setting.chip.cores} programs, one a core, walk over the tiles of {sketch.name}"
            yield edit.with_launch(setting.tree, number, _walking(setting, sketch, loops[0])), why


def _walking(setting: Setting, sketch: tree.Sketch, loop: tree.For) -> tree.Sketch:
    """Return ``sketch`` with one program for each core: its first tile is its number, and it advances by the number of
    cores."""
    start, stop, step = edit.bounds(loop)
    core = edit.fresh("core", edit.used_names(setting.tree))
    cores = edit.number(max(1, setting.chip.cores))
    first = edit.binary("+", start, edit.binary("*", edit.name(core), step))
    walk = replace(_all_sequential(loop), range=(first, stop, edit.binary("*", cores, step)), comments=tree.NO_COMMENTS)
    hint = edit.parallel_hint("grididx" if setting.gpu else "coreidx")
    return replace(sketch, body=(*sketch.body[:-1], tree.For(core, (cores,), (walk,), (hint,), loop.comments)))


def _all_sequential(loop: tree.For) -> tree.For:
    body = tuple(_all_sequential(s) if isinstance(s, tree.For) and edit.is_parallel(s) else s for s in loop.body)
    return replace(edit.sequential(loop), body=body)


def warps(setting: Setting) -> Iterator[Change]:
    """Change the warps of a program, or the stages of its loads, by one step; without a tunable, add one."""
    if not setting.gpu:
        return
    constants = edit.consts(setting.tree)
    for option, choices in zip(LAUNCH, (_WARPS, (1, *_STAGES, 5)), strict=True):
        if option in constants:
            yield from _next_choices(setting, constants[option])
        else:
            yield from _declared(setting, option, choices)


def _next_choices(setting: Setting, declared: tree.ConstDecl) -> Iterator[Change]:
    """Yield a launch option one step down and one step up in its set."""
    current, choices = (
        edit.value_of(tree.Name(declared.name), {declared.name: declared}),
        edit.integers(declared.choices),
    )
    at = choices.index(current) if current in choices else 0
    for value in choices[max(0, at - 1) : at + 2]:
        if value != current:
            why = f"set {declared.name} to {value} instead of {current}"
            yield edit.with_value(setting.tree, declared.name, value), why


def _declared(setting: Setting, option: str, choices: tuple[int, ...]) -> Iterator[Change]:
    """Yield the first launch that the option may help, with the option as a tunable at each of two values."""
    for number, sketch in edit.launches(setting.tree):
        if option == "num_stages" and not _loads_in_loops(sketch):
            continue
        for value in (4, 8) if option == "num_warps" else (2, 3):
            changed = edit.declare(sketch, option, value, choices)
            yield edit.with_launch(setting.tree, number, changed), f"gave {sketch.name} {option} = {value}"
        return


def _loads_in_loops(sketch: tree.Sketch) -> bool:
    loops = [n for n in nodes(sketch.body) if isinstance(n, tree.For) and not edit.is_parallel(n)]
    return any(isinstance(s, tree.Move) and s.op == "load" for loop in loops for s in loop.body)


def precision(setting: Setting) -> Iterator[Change]:
    """Compute the products of a launch in another precision that is at least as exact: split, or whole."""
    if not setting.reads("precision"):
        return
    for number, sketch in edit.launches(setting.tree):
        stated = {_stated(n) for n in nodes(sketch.body) if isinstance(n, tree.Call) and n.func in ("gemm", "dot")}
        if not stated:
            continue
        least_exact = max(_level(word) for word in stated)
        for word in (w for row in EXACTNESS[: least_exact + 1] for w in row):
            if stated != {word}:
                body = edit.substitute(sketch.body, partial(_with_precision, word))
                why = f"multiplies in {word} in {sketch.name}"
                yield edit.with_launch(setting.tree, number, replace(sketch, body=body)), why


def _level(word: str) -> int:
    """Return the row of a precision in ``EXACTNESS``: higher is less exact."""
    return next((i for i, row in enumerate(EXACTNESS) if word in row), 0)


def _stated(call: tree.Call) -> str:
    """Return the precision that a product states, or has by default."""
    value = next((k.value for k in call.keywords if k.name == "precision"), None)
    return value.value if isinstance(value, tree.Str) else "ieee"


def _with_precision(word: str, node: object) -> tree.Call | None:
    if not isinstance(node, tree.Call) or node.func not in ("gemm", "dot") or _level(word) > _level(_stated(node)):
        return None
    others = tuple(k for k in node.keywords if k.name != "precision")
    return replace(node, keywords=(*others, tree.Keyword("precision", tree.Str(word))))
