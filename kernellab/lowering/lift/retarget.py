"""Converts a sketch for one kind of chip to another: parallel loops get other hints, and tiles are made to fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kernellab.errors import KernellabError, LoweringError
from kernellab.records import Source
from kernellab.sketch.rewrite import edit
from kernellab.sketch.syntax import tree
from kernellab.target import Target
from kernellab.task import Task

#: how many times the tiles are halved
_MOST_HALVINGS = 6
#: tunables that are not sizes, and those that a CPU does not have
_COUNTS = ("num_warps", "num_stages")
#: axes of a grid by the number of parallel loops, the outermost first
_AXES = {1: ("grididx",), 2: ("grididx.y", "grididx.x"), 3: ("grididx.z", "grididx.y", "grididx.x")}


def move(text: str, task: Task, target: Target, constexpr: Mapping[str, int | float]) -> tuple[str, Source]:
    """Return the sketch for ``target`` in canonical form, and its source.

    A CPU's tiles may be too large for a GPU, or not powers of two. If the sketch cannot be lowered as it is, each
    tunable takes the power of two below its value, then half of it, until it can; these values are added to its
    choices.

    Raises:
        LoweringError: the target's DSL cannot express the sketch at any of these sizes; the reason is that of the
        unchanged sketch.
    """
    from kernellab.lowering import lower
    from kernellab.sketch.check import check
    from kernellab.sketch.program.bind import bind
    from kernellab.sketch.syntax.parse import parse
    from kernellab.sketch.syntax.printer import format as format_sketch

    first: KernellabError | None = None
    gpu = target.dsl != "cpp"
    for file in _sizes(retarget(parse(text), gpu=gpu), gpu=gpu):
        candidate = format_sketch(file)
        checked = check(candidate, chip=target.chip, constexpr=constexpr)
        try:
            if checked.program is None:
                wrong = next(d for d in checked.diagnostics if d.severity == "error")
                raise LoweringError(f"Line {wrong.line}: {wrong.message}", wrong.remedy)
            return candidate, lower(checked.program, bind(checked.program, task, constexpr, target), target)
        except KernellabError as error:
            first = first or error
    assert first is not None
    raise first


def retarget(file: tree.SketchFile, gpu: bool) -> tree.SketchFile:
    """Return a sketch with parallel loops for the other kind of chip: the grid of a GPU, or the cores of a CPU."""
    change = _on_grid if gpu else _on_cores
    return replace(file, sketches=tuple(change(sketch) for sketch in file.sketches))


def _on_grid(sketch: tree.Sketch) -> tree.Sketch:
    loops = edit.grid(sketch)
    axes = _AXES.get(len(loops), _AXES[1] * len(loops))
    spelled = {id(hint): axis for loop, axis in zip(loops, axes, strict=True) for hint in loop.hints}

    def change(node: Any) -> Any:
        if not isinstance(node, tree.Hint) or id(node) not in spelled:
            return None
        cores = tree.Str("coreidx")
        return replace(node, args=tuple(tree.Str(spelled[id(node)]) if arg == cores else arg for arg in node.args))

    return edit.substitute(sketch, change)


def _on_cores(sketch: tree.Sketch) -> tree.Sketch:
    lines = (
        replace(d, items=tuple(i for i in d.items if not (isinstance(i, tree.ConstDecl) and i.name in _COUNTS)))
        for d in sketch.declarations
    )
    return edit.substitute(replace(sketch, declarations=tuple(d for d in lines if d.items)), _of_cores)


def _of_cores(node: Any) -> tree.Hint | None:
    """Return hints without those of a grid: axes, the order of programs, the depth of a pipeline."""
    if not isinstance(node, tree.Hint):
        return None
    kept: list[tree.Expr] = []
    word = ""
    for arg in node.args:
        if isinstance(arg, tree.Str):
            word = "coreidx" if arg.value.startswith("grididx") else arg.value
            kept += [tree.Str(word)] if word != "swizzle" else []
        elif word not in ("swizzle", "pipeline"):
            kept.append(arg)
    return replace(node, args=tuple(kept)) if kept else None


def _sizes(file: tree.SketchFile, *, gpu: bool) -> Iterator[tree.SketchFile]:
    """Yield ``file``, then for a GPU versions with its tunables halved repeatedly; a CPU takes any size."""
    yield file
    seen = [file]
    for halvings in range(_MOST_HALVINGS if gpu else 0):
        smaller = edit.substitute(file, lambda node, h=halvings: _smaller(node, h))  # type: ignore[misc]
        if smaller not in seen:
            seen.append(smaller)
            yield smaller


def _smaller(node: Any, halvings: int) -> tree.ConstDecl | None:
    if not isinstance(node, tree.ConstDecl) or not node.choices or node.name in _COUNTS:
        return None
    value = node.value.value if isinstance(node.value, tree.Num) else 0
    if not isinstance(value, int) or value < 1:
        return None
    least = min(value, 16)
    size = max(1 << (value.bit_length() - 1) >> halvings, 1 << (least.bit_length() - 1))
    choices = sorted({size, *(c for c in edit.integers(node.choices) if c <= size)})
    return replace(node, value=edit.number(size), choices=tuple(edit.number(c) for c in choices))
