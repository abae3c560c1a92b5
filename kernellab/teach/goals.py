"""What an exercise asks in addition to a right answer: launches, traffic, tiles; no time.

Of a sketch it is reckoned from the program (:class:`Facts`), of a kernel in Triton it is read from the texts that
Triton's compiler makes of it and from a run in the interpreter (:func:`missed_by_call`). A goal that is not met has a
key, by which a lesson's file finds its hints, and a sentence with both numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod

from kernellab.dsls.machine import named_chip
from kernellab.errors import KernellabError, counted
from kernellab.lens.dry.records import Answer, Ran
from kernellab.sketch.cost import Cost, cost
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.program import Program
from kernellab.target import Backend, Target
from kernellab.task import Task
from kernellab.teach.exercise import Goals
from kernellab.teach.measure import least_bytes
from kernellab.teach.uses import moved, needs, pruned, shared

#: counts of bytes at ragged tiles differ a little from those at whole ones
_SLACK = 1.03
#: of a loop at the smallest sizes of a task, at most: many times what an answer needs, and minutes of the interpreter's
_ITERATIONS = 1e7


@dataclass(frozen=True)
class Facts:
    """What a sketch does at the task's own sizes."""

    #: bytes that loads and stores name, over those of inputs and outputs
    traffic: float
    launches: int
    #: bytes of tiles: the larger of that at these sizes and at the largest that the task declares
    footprint: int
    #: iterations of its heaviest launch that may run at once
    parallel: int
    #: bytes that this launch moves, over those of the busiest of these iterations
    sharing: float
    #: bytes of inputs and outputs
    least_bytes: float
    flops: float


@dataclass(frozen=True)
class Missed:
    """One goal that is not met: its word for hints, and a sentence with both numbers."""

    key: str
    sentence: str


def facts(program: Program, task: Task) -> Facts | None:
    """None where the sketch's sizes cannot be told from the task."""
    module = task.module()
    try:
        at_own = _cost(program, task, module.default_sizes())
        at_largest = _cost(program, task, largest_sizes(task)) if module.dims else at_own
        names, constexpr = _names(program, task, module.default_sizes(), {})
        kernel = next(one for one in program.kernels if one.name == _heaviest(at_own))
        sharing = shared(kernel, {**names, **constexpr})
    except (KernellabError, ArithmeticError, KeyError, IndexError):
        return None
    least = least_bytes(task)
    return Facts(
        traffic=at_own.bytes_total / least if least else 0.0,
        launches=len(program.kernels),
        footprint=max(at_own.footprint, at_largest.footprint),
        parallel=_parallel(at_own),
        sharing=sharing,
        least_bytes=least,
        flops=sum(at_own.flops.values()),
    )


def endless(program: Program, task: Task) -> str:
    """What is said of a sketch whose loops are not bounded by the task's sizes; "" for one whose loops are."""
    dims = task.module().dims
    if not dims:
        return ""
    try:
        at_smallest = _cost(program, task, {**task.module().default_sizes(), **{dim.name: dim.min for dim in dims}})
    except (KernellabError, ArithmeticError, KeyError, IndexError):
        return ""
    most = max((loop.iterations for loop in at_smallest.loops), default=0)
    if most <= _ITERATIONS:
        return ""
    return (
        f"At the task's smallest sizes a loop makes {most:.3g} iterations; at most {_ITERATIONS / 1e6:.0f} million are "
        "run. Bound it by the task's sizes."
    )


def largest_sizes(task: Task) -> dict[str, int]:
    """The largest sizes that the task declares; its own where it declares none."""
    module = task.module()
    return {**module.default_sizes(), **{dim.name: dim.max for dim in module.dims}}


def _heaviest(costs: Cost) -> str:
    """The launch that moves most: a small last step may well have few parallel iterations."""
    return max(costs.loops, key=lambda loop: loop.bytes_total).kernel


def _parallel(costs: Cost) -> int:
    heaviest = _heaviest(costs)
    rows = [loop for loop in costs.loops if loop.kernel == heaviest and loop.parallel]
    return int(max((loop.iterations for loop in rows), default=1))


def _cost(program: Program, task: Task, sizes: Mapping[str, int]) -> Cost:
    return cost(program, *_names(program, task, sizes, {}))


def _names(
    program: Program, task: Task, sizes: Mapping[str, int], constexpr: Mapping[str, int | float]
) -> tuple[dict[str, int], dict[str, int | float]]:
    """The sketch's symbols and its constants, by the task's sizes."""
    binding = bind(program, task, dict(constexpr))
    shapes = [arg.extents(sizes) if arg.is_tensor else () for arg in task.args]
    places = binding.sizes(lambda at, dim: shapes[at][dim])
    return {**binding.fixed, **places}, dict(binding.constexpr)


def missed(goals: Goals, program: Program, task: Task, text: str, sketch_facts: Facts | None) -> Iterator[Missed]:
    """The goals that the sketch does not meet, the most telling first; ``sketch_facts`` are None where they are not
    known."""
    without_comments = re.sub(r"#[^\n]*", "", text)
    for word in goals.avoids:
        if _has(without_comments, word):
            yield Missed("goal-avoids", f"It uses {word}, which this exercise is to do without.")
    if sketch_facts is not None:
        yield from _missed_by_facts(goals, sketch_facts)
    if goals.asynchronous and (why := _synchronous(program, task, goals.asynchronous)):
        yield Missed("goal-asynchronous", f"For an {goals.asynchronous} it becomes no asynchronous kernel: {why}.")
    spanned = choices(program, task) if goals.choices is not None else 0
    if goals.choices is not None and spanned < goals.choices:
        sentence = f"Its tunables span {counted(spanned, 'design')}; at least {goals.choices} are asked."
        yield Missed("goal-choices", sentence)
    for word in goals.uses:
        if not needs(program, task, word):
            yield Missed("goal-uses", f"It does not need {word} yet: without it, it is as right.")


def _missed_by_facts(goals: Goals, sketch: Facts) -> Iterator[Missed]:
    """The goals that the figures of a ``sketch`` do not meet."""
    if goals.launches is not None and sketch.launches > goals.launches:
        yield Missed("goal-launches", f"It makes {sketch.launches} launches; at most {goals.launches} is asked.")
    if goals.traffic is not None and sketch.traffic > _SLACK * goals.traffic:
        times = f"{sketch.traffic:.2f} times the bytes of the inputs and outputs"
        yield Missed("goal-traffic", f"Its loads and stores name {times}; at most {goals.traffic:g} is asked.")
    if goals.footprint is not None and sketch.footprint > goals.footprint:
        kept = f"One parallel iteration keeps {sketch.footprint} bytes of tiles"
        yield Missed("goal-footprint", f"{kept}; at most {goals.footprint} is asked.")
    if goals.flops is not None and sketch.flops > _SLACK * goals.flops:
        computed = f"It computes {sketch.flops:.3g} floating-point operations"
        yield Missed("goal-flops", f"{computed}; at most {goals.flops:.3g} is asked.")
    if goals.parallel is None:
        return
    if sketch.parallel < goals.parallel:
        at_once = f"{counted(sketch.parallel, 'iteration')} can run at once"
        yield Missed("goal-parallel", f"{at_once}; at least {goals.parallel} are asked.")
    # those at the edges may have less to do
    elif sketch.sharing < goals.parallel / 3:
        moved_share = f"{1 / max(sketch.sharing, 1):.0%} of what all of them move"
        sentence = (
            f"Its busiest parallel iteration moves {moved_share}; at least {goals.parallel} are to share the work."
        )
        yield Missed("goal-parallel", sentence)


#: in TTIR (Triton's dialect, triton-lang.org): a tile of floats, its extents and its bits; an instruction that
#: loads, as an atomic one does
_TILE = re.compile(r"tensor<((?:\d+x)+)(?:bf|f)(\d+)")
_LOADS = re.compile(r"\btt\.(?:load|atomic_rmw|atomic_cas|descriptor_load|descriptor_gather)\b")


def missed_by_call(goals: Goals, call: Answer) -> Iterator[Missed]:
    """The goals that a kernel in Triton does not meet, by what a dry call of it launches and what it does when it runs,
    the most telling first."""
    texts = [kernel.texts.get("ttir", "") for kernel in call.kernels]
    ran = call.ran or Ran(whole=False, drawn=False)
    yield from _unused(goals, texts, ran)
    if goals.launches is not None and call.launches > goals.launches:
        yield Missed("goal-launches", f"It makes {call.launches} launches; at most {goals.launches} is asked.")
    programs = max(prod(kernel.grid) for kernel in call.kernels)
    if goals.programs is not None and programs > goals.programs:
        yield Missed("goal-programs", f"It starts {programs} programs; at most {goals.programs} are asked.")
    if goals.parallel is not None and programs < goals.parallel:
        yield Missed("goal-parallel", f"It starts {counted(programs, 'program')}; at least {goals.parallel} are asked.")
    # blocks at the edges are smaller, by which four tiles of one product share as 1.5 of them would
    elif goals.parallel is not None and ran.whole and ran.sharing < goals.parallel / 3:
        loaded = f"Its busiest program loads {1 / max(ran.sharing, 1):.0%} of what all of them load"
        yield Missed("goal-parallel", f"{loaded}; at least {goals.parallel} are to share the work.")
    largest = max(_largest_tile(texts), ran.tile)
    if goals.tile is not None and largest > goals.tile:
        yield Missed("goal-tile", f"Its largest tile takes {largest} bytes; at most {goals.tile} is asked.")
    loads = max(sum(len(_LOADS.findall(text)) for text in texts), ran.loads)
    if goals.loads is not None and loads > goals.loads:
        yield Missed("goal-loads", f"It loads at {loads} places; at most {goals.loads} is asked.")
    elif goals.loads is not None and ran.again:
        yield Missed("goal-loads", "A program of it loads the same elements again, at the same place.")


def _unused(goals: Goals, texts: Sequence[str], ran: Ran) -> Iterator[Missed]:
    """The operations that a kernel is to use, and that stand in none of its ``texts`` or sum nothing when it runs."""
    for name in goals.uses:
        if not any(re.search(rf"\btt\.{re.escape(name)}\b", text) for text in texts):
            yield Missed("goal-uses", f"No kernel of it uses {name}.")
    if ran.drawn and not ran.products and "dot" in goals.uses:
        sentence = "Each dot in it has a side whose rows or columns hold one number: it moves numbers, and sums none."
        yield Missed("goal-uses", sentence)


def _largest_tile(texts: Iterable[str]) -> int:
    """Bytes of the largest tile of floats in the texts of TTIR; 0 where there is none."""
    tiles = [match for text in texts for match in _TILE.findall(text)]
    return max((prod(map(int, extents.split("x")[:-1])) * int(bits) // 8 for extents, bits in tiles), default=0)


def _synchronous(program: Program, task: Task, chip: str) -> str:
    """Why the sketch, lowered for ``chip``, loads its tiles with the threads that compute; "" where the copy engine
    does."""
    from kernellab.lowering.triton.source import why_not_asynchronous

    try:
        target = Target(dsl="triton", backend=Backend.CUDA, chip=named_chip(chip))
        reasons = why_not_asynchronous(program, bind(program, task, {}, target), target)
    except KernellabError as error:
        return error.message.removesuffix(".")
    return next((why for why in reasons.values() if why), "")


def choices(program: Program, task: Task) -> int:
    """How many designs the sketch's tunables span, those that break a ``require`` among them; a tunable on which
    nothing depends that loads and stores move spans none."""
    live = pruned(program)
    return prod(len(c.choices) for c in program.tunables if _matters(live, task, c.name, c.choices))


def _matters(program: Program, task: Task, name: str, values: Iterable[int | float]) -> bool:
    """Does what loads and stores move depend on the tunable, in all or at a time?"""
    sizes, designs = task.module().default_sizes(), set()
    for value in values:
        with suppress(KernellabError, ArithmeticError, LookupError):
            names, constexpr = _names(program, task, sizes, {name: value})
            costs = cost(program, names, constexpr)
            designs.add((costs.bytes_total, moved(program, {**constexpr, **names})))
        if len(designs) > 1:
            return True
    return False


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def asked(goals: Goals, essential: Collection[str] = ()) -> list[str]:
    """The goals as sentences, for the exercise's card; ``essential`` are those without which there are no points."""
    sentences = [(name, words(goals)) for name, words in _SENTENCES.items() if getattr(goals, name)]
    sentences += [("uses", f"uses {word}") for word in goals.uses]
    sentences += [("avoids", f"does without {word}") for word in goals.avoids]
    ends = {name: f" (no points with{'' if name == 'avoids' else 'out'} it)" for name in essential}
    return [sentence + ends.get(name, "") for name, sentence in sentences]


#: a goal with one value -> what it asks, in the order in which a card lists them
_SENTENCES: Mapping[str, Callable[[Goals], str]] = {
    "dsl": lambda g: f"is a kernel in {g.dsl}",
    "launches": lambda g: f"at most {counted(g.launches or 0, 'launch', 'launches')}",
    "traffic": lambda g: f"loads and stores name at most {_times_the_bytes(g)} of the inputs and outputs",
    "footprint": lambda g: f"tiles of one parallel iteration take at most {g.footprint} bytes",
    "flops": lambda g: f"computes at most {g.flops:.3g} floating-point operations",
    "parallel": lambda g: f"at least {g.parallel} {'programs' if g.dsl else 'iterations'} can run at once",
    "programs": lambda g: f"starts at most {g.programs} programs",
    "tile": lambda g: f"its largest tile takes at most {g.tile} bytes",
    "loads": lambda g: f"loads at {counted(g.loads or 0, 'place')} at most, no element twice there",
    "asynchronous": lambda g: f"lowered for an {g.asynchronous} it becomes an asynchronous kernel",
    "choices": lambda g: f"its tunables span at least {g.choices} designs",
    "packed": lambda g: (
        f"at least {g.packed:.0%} of the float instructions in its hottest compiled loop work on whole vectors"
    ),
}


def _times_the_bytes(goals: Goals) -> str:
    return "the bytes" if goals.traffic == 1 else f"{goals.traffic:g} times the bytes"
