"""Shape classes of a dynamic task: tuned each at its own sizes, and one kernel.py that picks by size."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from kernellab.records import Source

if TYPE_CHECKING:
    from kernellab.task import Task

_TUNABLE = re.compile(r"^(?P<indent> +)(?P<name>\w+) = (?P<value>[\d.]+)  # one of (?P<choices>.+)$")
_AT = """

# -- the same task, measured at other sizes
_inputs_at_any_size = inputs


def inputs({keywords}):
    return _inputs_at_any_size({names})
"""


def shape_classes(task: Task) -> list[dict[str, int]]:
    """Sizes to tune a dynamic task at: a sixteenth of each Dim's default, the default, four times it; within ranges."""
    usual = task.module().default_sizes()
    ranges = {d.name: (d.min, d.max) for d in task.dims}
    found = []
    for scale in (1 / 16, 1, 4):
        sizes = {n: min(max(int(size * math.sqrt(scale)), ranges[n][0]), ranges[n][1]) for n, size in usual.items()}
        if sizes not in found:
            found.append(sizes)
    return found


def at_sizes(task: Task, sizes: Mapping[str, int]) -> Task:
    """``task`` with other default sizes. Raises TaskError."""
    from kernellab.task import load_task

    keywords = ", ".join(f"{name}={size}" for name, size in sizes.items())
    text = task.text.rstrip() + "\n" + _AT.format(keywords=keywords, names=", ".join(f"{n}={n}" for n in sizes))
    return load_task(text, task.name)


def merged(classes: Sequence[tuple[Mapping[str, int], Source]]) -> Source | None:
    """One source that picks the tunables' values by the number of elements that the sizes make.

    None where the classes' sources differ in more than the values of launch-time constants (C++ compiles them in), or
    where all classes want the same.
    """
    sources = [source for _, source in classes]
    first = sources[0]
    entry = first.entry_file
    texts = [s.files[entry].split("\n") for s in sources]
    others_differ = any({n: t for n, t in s.files.items() if n != entry} != _others(first) for s in sources)
    if others_differ or len({len(t) for t in texts}) != 1 or len({s.files[entry] for s in sources}) == 1:
        return None
    lines = list(texts[0])
    wanted: dict[str, list[str]] = {}
    at: list[int] = []
    for n, versions in enumerate(zip(*texts, strict=True)):
        if len(set(versions)) == 1:
            continue
        found = [_TUNABLE.match(v) for v in versions]
        if any(m is None or m["name"] != found[0]["name"] for m in found if found[0]):
            return None
        values = [m["value"] for m in found if m]
        name = found[0]["name"] if found[0] else ""
        wanted[name] = values
        indent = found[0]["indent"] if found[0] else ""
        lines[n] = f'{indent}{name} = tuned["{name}"]'
        at.append(n)
    dims = list(classes[0][0])
    symbols = [d for d in dims if any(re.match(rf" +{d} = ", line) for line in lines[: at[0]])]
    if not symbols:
        return None
    limits = [math.prod(sizes[d] for d in symbols) for sizes, _ in classes]
    between = [str(int(math.sqrt(a * b))) for a, b in pairwise(limits)] + ["None"]
    table = ["#: measured: up to this many elements -> values", "TUNED = ("]
    for k, most in enumerate(between):
        values_of = ", ".join(f'"{name}": {values[k]}' for name, values in wanted.items())
        table.append(f"    ({most}, {{{values_of}}}),")
    table += [")", "", ""]
    indent = re.match(r" *", lines[at[0]]).group()  # type: ignore[union-attr]
    size = " * ".join(symbols)
    lines.insert(at[0], f"{indent}tuned = next(v for most, v in TUNED if most is None or {size} <= most)")
    start = max(n for n, line in enumerate(lines) if line.startswith(f"def {first.entry}("))
    lines[start:start] = table
    return first.model_copy(update={"files": {**first.files, entry: "\n".join(lines)}, "line_map": {}})


def _others(source: Source) -> dict[str, str]:
    return {n: t for n, t in source.files.items() if n != source.entry_file}
