"""A sketch of one kind of chip for another: its parallel loops are spelled again, its tiles made to fit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kernellab.errors import KernellabError, LoweringError
from kernellab.records import Source
from kernellab.target import Target
from kernellab.task import Task

#: how often the tiles are halved
_MOST_HALVINGS = 6
_TUNABLE = re.compile(r"\b(?P<name>[A-Za-z_]\w*) = (?P<value>\d+) in \{(?P<choices>[^}]*)\};")
#: tunables that are no sizes
_COUNTS = ("num_warps", "num_stages")


def move(text: str, task: Task, target: Target, constexpr: Mapping[str, int | float]) -> tuple[str, Source]:
    """The sketch as ``target`` wants it, in canonical form, and lowered.

    A CPU's tiles may be too large for a GPU, or no powers of two: where the sketch cannot be lowered as it is, each
    tunable takes the power of two below its value, then half of it, until it can; these join its choices.

    Raises:
        LoweringError: the target's DSL cannot express the sketch in any of these sizes; the reason is that of the
            sketch as it is.
    """
    from kernellab.lowering import lower
    from kernellab.sketch.check import check
    from kernellab.sketch.program.bind import bind
    from kernellab.sketch.syntax.printer import format as format_sketch

    first: KernellabError | None = None
    for candidate in _sizes(format_sketch(retarget(text, gpu=target.dsl != "cpp")), gpu=target.dsl != "cpp"):
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


def _sizes(text: str, *, gpu: bool) -> Iterator[str]:
    yield text
    seen = {text}
    for halvings in range(_MOST_HALVINGS if gpu else 0):
        smaller = _TUNABLE.sub(lambda m, h=halvings: _smaller(m, h), text)  # type: ignore[misc]
        if smaller not in seen:
            seen.add(smaller)
            yield smaller


def _smaller(tunable: re.Match[str], halvings: int) -> str:
    value = int(tunable["value"])
    if tunable["name"] in _COUNTS or value < 1:
        return tunable[0]
    least = min(value, 16)
    size = max(1 << (value.bit_length() - 1) >> halvings, 1 << (least.bit_length() - 1))
    choices = sorted({size, *(int(c) for c in tunable["choices"].split(",") if int(c) <= size)})
    return f"{tunable['name']} = {size} in {{{', '.join(map(str, choices))}}};"


def retarget(text: str, gpu: bool) -> str:
    """A sketch's parallel loops for the other kind of chip: the grid of a GPU, or the cores of a CPU."""
    lines = text.split("\n")
    if not gpu:
        found = [re.sub(r'"grididx(\.[xyz])?"', '"coreidx"', line) for line in lines]
        found = [re.sub(r', "swizzle"(, \w+)?|(?<="pipeline"), \w+', "", line) for line in found]
        return re.sub(r" ?num_(warps|stages) = [^;]*;", "", "\n".join(found)).replace("    constexpr:\n", "")
    starts = [n for n, line in enumerate(lines) if '"coreidx"' in line]
    groups: list[list[int]] = []
    for n in starts:
        joined = groups and not any(line.startswith("sketch ") for line in lines[groups[-1][-1] : n])
        if joined:
            groups[-1].append(n)
        else:
            groups.append([n])
    for group in groups:
        dims = {1: ("",), 2: (".y", ".x"), 3: (".z", ".y", ".x")}.get(len(group), ("",) * len(group))
        for n, dim in zip(group, dims, strict=True):
            lines[n] = lines[n].replace('"coreidx"', f'"grididx{dim}"')
    return "\n".join(lines)
