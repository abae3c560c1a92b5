"""Hints and launch numbers: pipelines, the order of a grid, persistent programs, warps and stages, precision.

They change how a launch runs and not its meaning; only the precision of a product changes rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.tiles import LAUNCH
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes

_STAGES, _GROUPS = (2, 3, 4), (4, 8, 16)
_WARPS = (1, 2, 4, 8, 16)
#: precisions of a product of f32, each row of equal exactness: 24, 16, 11 and 8 bits of mantissa
EXACTNESS = (("ieee", "tf32x3", "bf16x6"), ("bf16x3",), ("tf32",), ("bf16",))


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
        now = words.get("pipeline") or (edit.number(2) if "pipeline" in words else None)
        for stages in _STAGES:
            if now != edit.number(stages):
                changed = place.put(edit.hinted(loop, "pipeline", edit.number(stages)))
                yield changed, f"pipelined the loop over {loop.var} in {where} in {stages} stages"
        if now is not None:
            yield place.put(edit.unhinted(loop, "pipeline")), f"no longer pipelines the loop over {loop.var} in {where}"


def swizzle(setting: Setting) -> Iterator[Change]:
    """Visit the tiles of a grid of two or more dimensions in groups, so that neighbours share a cache."""
    if not setting.reads("swizzle"):
        return
    for number, sketch in edit.launches(setting.tree):
        loops = edit.grid(sketch)
        if len(loops) < 2:
            continue
        now = next((n for loop in loops for w, n in edit.words(loop).items() if w == "swizzle"), None)
        for group in _GROUPS:
            if now != edit.number(group):
                changed = _innermost(sketch, [edit.unhinted(loop, "swizzle") for loop in loops], "swizzle", group)
                yield (
                    edit.with_launch(setting.tree, number, changed),
                    f"visits tiles of {sketch.name} in groups of {group}",
                )
        if now is not None:
            changed = _nest(sketch, [edit.unhinted(loop, "swizzle") for loop in loops])
            yield edit.with_launch(setting.tree, number, changed), f"visits the tiles of {sketch.name} in order"


def _innermost(sketch: tree.Sketch, loops: list[tree.For], word: str, value: int) -> tree.Sketch:
    return _nest(sketch, [*loops[:-1], edit.hinted(loops[-1], word, edit.number(value))])


def _nest(sketch: tree.Sketch, headers: list[tree.For]) -> tree.Sketch:
    """Return ``sketch`` with the hints of ``headers`` on its parallel loops, outermost first."""

    def inner(body: edit.Body, left: list[tree.For]) -> edit.Body:
        if not left:
            return body
        loop = body[-1]
        assert isinstance(loop, tree.For)
        changed = replace(loop, hints=left[0].hints, comments=left[0].comments, body=inner(loop.body, left[1:]))
        return (*body[:-1], changed)

    return replace(sketch, body=inner(sketch.body, headers))


def persist(setting: Setting) -> Iterator[Change]:
    """Start as many programs as the chip has cores, each for several tiles; or one for each tile again."""
    for number, sketch in edit.launches(setting.tree):
        loops = edit.grid(sketch)
        if not loops:
            continue
        trips = edit.trips(sketch, loops[0])
        if setting.reads("persistent"):
            on = any("persistent" in edit.words(loop) for loop in loops)
            first = edit.unhinted(loops[0], "persistent") if on else edit.hinted(loops[0], "persistent")
            rest = [edit.unhinted(loop, "persistent") for loop in loops[1:]]
            why = (
                f"one program for each tile of {sketch.name}" if on else f"persistent programs walk over {sketch.name}"
            )
            yield edit.with_launch(setting.tree, number, _nest(sketch, [first, *rest])), why
        elif trips is None or trips > setting.chip.cores:
            why = f"{setting.chip.cores} programs, one a core, walk over the tiles of {sketch.name}"
            yield edit.with_launch(setting.tree, number, _walking(setting, sketch, loops[0])), why


def _walking(setting: Setting, sketch: tree.Sketch, loop: tree.For) -> tree.Sketch:
    """Return one program for each core: its first tile is its number, and it advances by the number of cores."""
    start, stop, step = edit.bounds(loop)
    core = edit.fresh("core", edit.used_names(setting.tree))
    cores = edit.number(max(1, setting.chip.cores))
    first = edit.binary("+", start, edit.binary("*", edit.name(core), step))
    walk = replace(_all_sequential(loop), range=(first, stop, edit.binary("*", cores, step)), comments=tree.NO_COMMENTS)
    hint = tree.Hint((tree.Str("parallel"), tree.Str("grididx" if setting.gpu else "coreidx")))
    return replace(sketch, body=(*sketch.body[:-1], tree.For(core, (cores,), (walk,), (hint,), loop.comments)))


def _all_sequential(loop: tree.For) -> tree.For:
    body = tuple(_all_sequential(s) if isinstance(s, tree.For) and edit.is_parallel(s) else s for s in loop.body)
    return replace(edit.sequential(loop), body=body)


def warps(setting: Setting) -> Iterator[Change]:
    """Change the warps of a program, or the stages of its loads, by one step; without a tunable, add one."""
    if not setting.gpu:
        return
    constants = edit.consts(setting.tree)
    for word, options in zip(LAUNCH, (_WARPS, (1, *_STAGES, 5)), strict=True):
        declared = constants.get(word)
        if declared is None:
            for number, sketch in edit.launches(setting.tree):
                if word == "num_stages" and not _loads_in_loops(sketch):
                    continue
                for value in (4, 8) if word == "num_warps" else (2, 3):
                    changed = edit.declare(sketch, word, value, options)
                    yield edit.with_launch(setting.tree, number, changed), f"gave {sketch.name} {word} = {value}"
                break
            continue
        now, choices = edit.value_of(tree.Name(word), constants), edit.integers(declared.choices)
        at = choices.index(now) if now in choices else 0
        for value in choices[max(0, at - 1) : at + 2]:
            if value != now:
                yield edit.with_value(setting.tree, word, value), f"set {word} to {value} instead of {now}"


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
        lowest = max(_level(word) for word in stated)
        for word in (w for row in EXACTNESS[: lowest + 1] for w in row):
            if stated != {word}:
                changed = replace(sketch, body=edit.substitute(sketch.body, lambda n, w=word: _with_precision(n, w)))  # type: ignore[misc]
                yield edit.with_launch(setting.tree, number, changed), f"multiplies in {word} in {sketch.name}"


def _level(word: str) -> int:
    return next((i for i, row in enumerate(EXACTNESS) if word in row), 0)


def _stated(call: tree.Call) -> str:
    value = next((k.value for k in call.keywords if k.name == "precision"), None)
    return value.value if isinstance(value, tree.Str) else "ieee"


def _with_precision(node: object, word: str) -> tree.Call | None:
    if not isinstance(node, tree.Call) or node.func not in ("gemm", "dot") or _level(word) > _level(_stated(node)):
        return None
    kept = tuple(k for k in node.keywords if k.name != "precision")
    return replace(node, keywords=(*kept, tree.Keyword("precision", tree.Str(word))))
