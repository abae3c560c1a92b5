"""Which elements each iteration of a sketch loads and stores, how often each is touched, and the bytes by memory level.

From a run of the interpreter at a small size of the gate's, with the smallest tiles that the sketch allows: a picture
has room for some thousand elements. A ``Touches`` of the protocol, and the same as text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from math import prod
from typing import Any, NamedTuple

from kernellab.errors import KernellabError, NotRunnable, TaskError
from kernellab.notebook.answers import MadeTile, TouchedPart, TouchedTensor, Touches, TouchStep
from kernellab.notebook.language.check import amount
from kernellab.notebook.views.facts import Facts
from kernellab.notebook.views.verdict import figure
from kernellab.sketch.check import load_program
from kernellab.sketch.gate.cases import Case, cases
from kernellab.sketch.program.bind import Binding, bind
from kernellab.sketch.program.program import Program
from kernellab.sketch.run.confined import one_worker
from kernellab.sketch.run.tracer import LEVELS, TileWrite, Touch, Trace, trace
from kernellab.task import Task

#: elements of the largest tensor that are drawn where the gate has a choice, and where it has none; steps
ENOUGH_ELEMENTS, MOST_ELEMENTS, MOST_STEPS = 4096, 8192, 400
#: steps of a trace, and cases of the gate that are traced: a person waits
_MOST_RUN, _MOST_CASES = 20_000, 8
#: what a level is, besides its name
_LEVEL_WORDS = {
    "slow": "global memory",
    "medium": "a cache that cores share",
    "fast": "near a core",
    "fastest": "registers",
}


@one_worker()
def touches(text: str, facts: Facts) -> Touches:
    """What ``text`` touches. Never raises on a sketch that cannot be run: ``reason`` says why nothing is drawn."""
    try:
        if facts.task is None:
            raise NotRunnable("The task has not been read yet.", "Try again in a moment.")
        program = load_program(text)
        binding = _smallest(program, facts.task)
        case, accesses = _traced(program, binding, facts.task)
    except KernellabError as error:
        return {"sizes": "", "tensors": [], "steps": [], "total": 0, "bytes": [], "reason": str(error)}
    steps = list(_steps(accesses, [t.name for t in program.tensors]))
    tiles = ", ".join(f"{c.name} = {binding.constexpr[c.name]}" for c in program.tunables)
    return {
        "sizes": "; ".join(filter(None, [case.at, tiles])),
        "tensors": [
            _tensor(accesses, t.name, t.dtype.value, t.role.value) for t in program.tensors if t.name in accesses.shapes
        ],
        "steps": steps[:MOST_STEPS],
        "total": len(steps),
        "bytes": [
            figure(f"{amount(accesses.bytes_by_level[level])}B {level}", f"moved to and from {_LEVEL_WORDS[level]}")
            for level in reversed(LEVELS)
            if accesses.bytes_by_level[level]
        ],
        "reason": "",
    }


def as_text(touched: Touches) -> str:
    """Each tensor's reuse, the first steps, and the bytes: what a terminal shows."""
    if touched["reason"]:
        return f"There is no picture of the accesses: {touched['reason']}"
    lines = [f"Accesses at {touched['sizes']}: {touched['total']} steps."]
    for tensor in touched["tensors"]:
        shape = ", ".join(map(str, tensor["shape"]))
        reuse = [_often(counts, word) for counts, word in ((tensor["reads"], "read"), (tensor["writes"], "written"))]
        lines.append(
            f"  {tensor['name']}[{shape}] {tensor['dtype']} {tensor['role']}: {'; '.join(filter(None, reuse))}"
        )
    for step in touched["steps"][:8]:
        parts = [
            f"{'stores' if part['write'] else 'loads'} {sum(n for _, n in part['ranges'])} of "
            f"{touched['tensors'][part['tensor']]['name']} (line {part['line']}"
            f"{', ' + str(part['outside']) + ' past the edge' if part['outside'] else ''})"
            for part in step["parts"]
        ]
        lines.append(f"  {step['at'] or 'once'}: {', '.join(parts)}")
    if touched["total"] > 8:
        lines.append(f"  ... and {touched['total'] - 8} more")
    return "\n".join([*lines, f"  moved: {', '.join(figure['text'] for figure in touched['bytes'])}"])


def _often(counts: Sequence[int], word: str) -> str:
    """ "each element read 2 times", or how many elements how often."""
    times = Counter(counts)
    if set(times) == {0}:
        return ""
    if len(times) == 1:
        return f"each element {word} {_times(next(iter(times)))}"
    return f"{word} " + ", ".join(f"{_times(n)} ({times[n]} elements)" for n in sorted(times))


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def _smallest(program: Program, task: Task) -> Binding:
    """The sketch with the smallest tiles that its constraints allow."""
    smallest = {c.name: min(c.choices) for c in program.tunables}
    try:
        return bind(program, task, smallest)
    except NotRunnable:
        return bind(program, task, {})


class _Picture(NamedTuple):
    """A case of the gate and what the sketch accesses in it."""

    case: Case
    accesses: Trace

    @property
    def largest(self) -> int:
        """Elements of the largest tensor."""
        return max(prod(shape) for shape in self.accesses.shapes.values())

    def rank(self) -> tuple[bool, int]:
        """The greater, the better: the largest case of which each element is seen, else the smallest."""
        is_dense = self.largest > ENOUGH_ELEMENTS
        elements = sum(prod(shape) for shape in self.accesses.shapes.values())
        return not is_dense, -elements if is_dense else elements


def _traced(program: Program, binding: Binding, task: Task) -> _Picture:
    """The best of the gate's cases to draw."""
    if binding.of_outputs:
        raise NotRunnable("A size of this sketch is known only after the reference has run.", "Look at its verdict.")
    pictures: list[_Picture] = []
    failure: KernellabError = TaskError(
        f"At each size that the gate runs a tensor has more than the {MOST_ELEMENTS} elements that a picture shows.",
        "Make a long axis a Dim that may be short.",
    )
    for case in islice(cases(program, binding, task), _MOST_CASES):
        inputs = binding.inputs(case.args)
        symbols = binding.sizes(partial(_size, case.args))
        if max((value.numel() for value in inputs.values()), default=0) > MOST_ELEMENTS:
            continue
        try:
            accesses = trace(
                program, inputs, symbols={**dict(program.sizes), **symbols}, constexpr=dict(binding.constexpr),
                most_steps=_MOST_RUN,
            )  # fmt: skip
        except KernellabError as error:
            failure = error
            continue
        pictures.append(_Picture(case, accesses))
    fitting = [picture for picture in pictures if picture.largest <= MOST_ELEMENTS]
    if not fitting:
        raise failure
    return max(fitting, key=_Picture.rank)


def _tensor(accesses: Trace, name: str, dtype: str, role: str) -> TouchedTensor:
    shape = list(accesses.shapes[name])
    reads, writes = accesses.count(name, False), accesses.count(name, True)
    return {"name": name, "shape": shape, "dtype": dtype, "role": role, "reads": reads, "writes": writes}


def _steps(accesses: Trace, names: Sequence[str]) -> Iterator[TouchStep]:
    """Accesses that follow each other with the loops at one place, and the tiles made there; those made where nothing
    is accessed are of the next step."""
    tiles: list[MadeTile] = []
    for loops, group in groupby(accesses.events, key=lambda event: tuple(event.loops.items())):
        events = list(group)
        tiles += [{"name": e.tile, "shape": list(e.shape), "line": e.line} for e in events if isinstance(e, TileWrite)]
        if parts := [_part(e, names.index(e.tensor)) for e in events if isinstance(e, Touch)]:
            yield {"at": ", ".join(f"{name} = {value}" for name, value in loops), "parts": parts, "tiles": tiles}
            tiles = []


def _part(touch: Touch, tensor: int) -> TouchedPart:
    ranges: list[list[int]] = []
    for element in touch.elements:
        if ranges and element == ranges[-1][0] + ranges[-1][1]:
            ranges[-1][1] += 1
        else:
            ranges.append([element, 1])
    return {"tensor": tensor, "write": touch.is_write, "line": touch.line, "ranges": ranges, "outside": touch.outside}


def _size(args: Sequence[Any], position: int, dim: int) -> int:
    return int(args[position].shape[dim])
