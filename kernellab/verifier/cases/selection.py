"""Which cases a candidate gets: the sizes and families of each stage, and long sizes that are reached in steps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernellab.sandbox.caps import CAPS
from kernellab.task import Task, small_sizes
from kernellab.task.faking import on_meta
from kernellab.task.meta.errors import Unsure
from kernellab.task.meta.operators import watching
from kernellab.task.sample.inputs import Family, families
from kernellab.task.sample.sizes import input_bytes, runs_at
from kernellab.verifier.cases import device
from kernellab.verifier.cases.cases import Case, case
from kernellab.verifier.cases.extents import (
    Sizes,
    alike,
    asked,
    at_ends,
    at_numbers,
    at_pairs,
    beyond_tiles,
    large,
    more_sizes,
    of_numbers,
    secret_sizes,
    two_long,
)
from kernellab.verifier.cases.last_elements import decided_last
from kernellab.verifier.protocol.rules import CORRECT, DEVICE, DRAWN

#: Tile sizes; the hidden sizes include their multiples and neighbours.
_AROUND = (16, 64)


def smoke_case(task: Task, interpreted: bool = False) -> Case:
    """Return a case with the smallest shape that is not empty."""
    sizes = next((s for s in small_sizes(task) if 0 not in s.values()), {})
    return case(task, _shrunk(task, sizes, interpreted), Family.OWN)


def correct_cases(
    task: Task, interpreted: bool = False, numbers: Sequence[int] = (), sizes: Sequence[Sizes] = (),
    pairs: Sequence[tuple[int, int]] = (),
) -> list[Case]:  # fmt: skip
    """Return the cases of the stage correct, with the declared size and the task's own inputs last: every legal family
    at a small size; hidden Dim sizes, each with another family; the requested ``sizes``; sizes at the ``numbers`` in
    the source, at the ``pairs`` of them that stand together, and at the ends of the ranges.
    """
    full = _shrunk(task, task.module().default_sizes(), interpreted)
    legal = families(task)
    if interpreted:
        # A call takes seconds in the interpreter, and the rows of a mixed batch cover these families.
        legal = tuple(f for f in legal if f not in (Family.UNIFORM, Family.STRUCTURED, Family.HEAVY))
    declared = case(task, full, Family.OWN)
    if not task.dims:
        return [declared, *_other_families(task, full, legal)]
    hidden = _hidden(task, interpreted)
    small = _small(task, full, hidden, interpreted)
    cases = [
        *_families_at(task, small, legal, own=small != full),
        *_at_hidden_sizes(task, hidden, legal, small),
        *(case(task, s, of_all(legal)) for s in asked(task, full, sizes)),
    ]
    if interpreted:
        cases += [case(task, s, of_all(legal)) for s in beyond_tiles(task, numbers)]
    else:
        cases += _other_families(task, full, legal) if small != full else []
        cases += _at_secret_sizes(task, full, legal, numbers)
        cases += (case(task, s, Family.OWN).glance() for s in at_pairs(task, full, pairs))
    return [*cases, declared]


def _families_at(task: Task, sizes: Mapping[str, int], legal: Sequence[Family], own: bool) -> list[Case]:
    """Return cases of all ``legal`` families at ``sizes``, with the task's own family first if ``own`` is set."""
    first = [case(task, sizes, Family.OWN)] if own and Family.OWN in legal else []
    return first + [case(task, sizes, f) for f in legal if f is not Family.OWN]


def _at_hidden_sizes(
    task: Task, hidden: Sequence[Mapping[str, int]], legal: Sequence[Family], small: Mapping[str, int]
) -> list[Case]:
    """Return cases at evenly spaced ``hidden`` sizes, with the families in turn."""
    step = max(1, len(hidden) // CORRECT.hidden_sizes)
    return [case(task, s, legal[(i + 1) % len(legal)]) for i, s in enumerate(hidden[::step]) if s != small]


def _at_secret_sizes(
    task: Task, full: Mapping[str, int], legal: Sequence[Family], numbers: Sequence[int]
) -> list[Case]:
    """Return cases at sizes that a kernel may treat as special, compared in the declared dtype: random sizes, sizes
    next to the ``numbers`` of the source, and the ends of the Dims' ranges."""
    by_chance = secret_sizes(task, full, input_bytes(task, full))
    ends = [*of_numbers(task, full, numbers), *at_ends(task, full)]
    return [
        *(case(task, s, of_all(legal)).glance() for s in by_chance),
        # Own inputs: a small constant does not show in a batch with rows of all magnitudes.
        *(case(task, s, Family.OWN).glance() for s in at_numbers(task, full, numbers)),
        *(decided_last(case(task, s, of_all(legal))).glance() for s in ends),
    ]


def more_cases(task: Task) -> Iterator[Case]:
    """Yield cases of the task's own inputs at sizes from the whole Dim ranges, without end; none without Dims."""
    full = task.module().default_sizes()
    for sizes in more_sizes(task, full, input_bytes(task, full)) if task.dims else ():
        yield case(task, sizes, Family.OWN).glance()


def as_long_as_time_allows(task: Task, known: Sequence[tuple[Case, float]]) -> Iterator[Case]:
    """Yield interpreter cases in which each Dim in turn is as long as its range and a time limit allow, estimated from
    the times of the ``known`` cases, whose other Dims are short. They reveal loops that end too early."""
    for name in [d.name for d in task.dims][: DRAWN.end_dims]:
        timed = [(dict(known_case.sizes), seconds) for known_case, seconds in known]
        sizes, seconds = max(timed, key=lambda one: (one[0][name], -input_bytes(task, one[0])))
        end = next(d.max for d in task.dims if d.name == name)
        while True:
            longer = {**sizes, name: min(end, int(sizes[name] * DRAWN.interpreted_long_seconds / max(seconds, 1e-3)))}
            fits = longer[name] > 1.2 * sizes[name] and input_bytes(task, longer) <= DRAWN.end_bytes
            if not fits or not runs_at(task, tuple(longer.items())):
                break
            began = time.monotonic()
            yield case(task, longer, of_all(families(task)))
            sizes, seconds = longer, time.monotonic() - began


def _other_families(task: Task, full: Mapping[str, int], legal: Sequence[Family]) -> list[Case]:
    """Return cases of the families other than the task's own at the timed size, where a kernel may take another path:
    all of them, or for large data those that find the most errors."""
    first = (Family.MIXED, Family.LARGE, Family.OFFSET, Family.EDGES, Family.NORMAL)
    chosen = [f for f in dict.fromkeys((*first, *legal)) if f in legal and f is not Family.OWN]
    size = input_bytes(task, full)
    if size > CORRECT.family_bytes:
        many = CORRECT.large_families if size <= CORRECT.large_bytes else CORRECT.huge_families
        chosen = chosen[:many]
    cases = [case(task, full, f) for f in chosen]
    return cases if size <= CORRECT.large_bytes else [c.glance() for c in cases]


def of_all(legal: Sequence[Family]) -> Family:
    """Return the family whose single batch reveals the most errors."""
    return next((f for f in (Family.MIXED, Family.NORMAL) if f in legal), Family.OWN)


def _hidden(task: Task, interpreted: bool) -> list[dict[str, int]]:
    """Return small sizes other than the task's own."""
    full = _shrunk(task, task.module().default_sizes(), interpreted)
    return [_shrunk(task, s, interpreted) for s in small_sizes(task, _AROUND, 8) if s != full]


def _small(task: Task, full: dict[str, int], hidden: list[dict[str, int]], interpreted: bool) -> dict[str, int]:
    """Return the size for the families: the full size unless it is large, else a medium size with several tiles and a
    remainder."""
    if input_bytes(task, full) <= CORRECT.family_bytes and not interpreted:
        return full
    return hidden[-1] if hidden else full


def declared_case(task: Task, interpreted: bool = False) -> Case:
    """Return a new case of the task's own inputs at the declared sizes."""
    return case(task, _shrunk(task, task.module().default_sizes(), interpreted), Family.OWN)


def small_case(task: Task, interpreted: bool = False) -> Case:
    """Return a new case at the size used for the families."""
    full = _shrunk(task, task.module().default_sizes(), interpreted)
    small = _small(task, full, _hidden(task, interpreted), interpreted) if task.dims else full
    return case(task, small, Family.OWN)


def drawn_base(task: Task, interpreted: bool = False, most: int = DRAWN.case_bytes) -> Case:
    """Return a case of the task's own inputs as a base for many variants: several rows and at most ``most`` bytes where
    the Dims allow."""
    full = _shrunk(task, task.module().default_sizes(), interpreted)
    few = {d.name: max(d.min, min(d.max, 7)) for d in task.dims}
    if interpreted and few and runs_at(task, tuple(few.items())):
        return case(task, few, Family.OWN)
    fitting = [
        s for s in (full, *_hidden(task, interpreted)) if task.dims and 0 not in s.values()
        and input_bytes(task, s) <= most
    ]  # fmt: skip
    return case(task, max(fitting, key=lambda s: input_bytes(task, s), default=full), Family.OWN)


def aligned_and_ragged(task: Task, limit_bytes: int = CORRECT.family_bytes) -> list[tuple[str, Case]]:
    """Return size pairs that separate an edge error from other errors: exact multiples of 64 and their neighbours."""
    if not task.dims:
        return []
    pairs = []
    for kind, offset in (("aligned", 0), ("ragged", -1), ("ragged", 1)):
        for base in (64, 128, 256):
            sizes = {d.name: min(max(base + offset, d.min), d.max) for d in task.dims}
            if input_bytes(task, sizes) <= limit_bytes and runs_at(task, tuple(sizes.items())):
                pairs.append((kind, case(task, sizes, Family.OWN)))
                break
    return pairs


def public(task: Task, interpreted: bool = False) -> Case | None:
    """Return the task's own inputs at one small size and a fixed seed, which are not secret; None if they are large."""
    for extent in (8,) if interpreted else (33, 8):
        sizes = {d.name: min(max(extent, d.min), d.max) for d in task.dims}
        fits = input_bytes(task, sizes or None) <= CORRECT.family_bytes
        if fits and (not sizes or runs_at(task, tuple(sizes.items()))):
            return Case(task, tuple(sizes.items()), Family.OWN, 0)
    return None


def _shrunk(task: Task, sizes: Mapping[str, int], interpreted: bool) -> dict[str, int]:
    """Reduce sizes for an interpreter: keep edges, cap Dims and elements."""
    sizes = dict(sizes)
    if not interpreted or not task.dims:
        return sizes
    limit = CAPS.interpreter_dim
    while True:
        shrunk = {d.name: max(d.min, min(sizes[d.name], limit + (sizes[d.name] % 7))) for d in task.dims}
        if limit <= 8 or input_bytes(task, shrunk) <= 4 * CAPS.interpreter_elements:
            return shrunk
        limit //= 2


# -- long sizes, reached in steps ----------------------------------------------------------------------------------


def both_long(task: Task, known: Sequence[Case], longest: int = 0) -> Case | None:
    """Return a case of the task's own inputs with two Dims (or the only one) longer than in all ``known`` cases, with
    at most ``longest`` bytes of inputs if not 0; None if :func:`_within_time` finds none."""
    full = task.module().default_sizes()
    if not full or not known:
        return None
    sizes, most = two_long(task, full, longest), longest
    while longest and most > 1 and not is_small_inside(task, sizes, longest):
        most //= 2
        sizes = two_long(task, full, most)
    if input_bytes(task, sizes) <= max(input_bytes(task, dict(c.sizes)) for c in known):
        return None
    return _within_time(task, known, sizes, DRAWN.long_seconds if device.current() == "cpu" else DEVICE.long_seconds)


def all_long(task: Task, most: int) -> Case | None:
    """Return a case of the task's own inputs with all Dims as long, and as equal, as ``most`` bytes of inputs allow;
    None if the task refuses these sizes."""
    sizes = alike(task, most) if task.dims else {}
    return case(task, sizes, Family.OWN) if runs_at(task, tuple(sizes.items())) else None


def wide(task: Task, known: Sequence[Case], longest: int = 0) -> Iterator[Case]:
    """Yield cases of the task's own inputs with each Dim in most of its range, without end, while the reference is fast
    enough: they reach branches on large sizes, and range ends are seldom odd. ``longest``: see :func:`both_long`."""
    full = task.module().default_sizes()
    if not full or not known:
        return
    most = DRAWN.wide_bytes if device.current() == "cpu" else min(DEVICE.wide_bytes, device.free() // DEVICE.long_share)
    most = min(most, longest or most)
    while most > CORRECT.family_bytes:
        sizes = large(task, full, most)
        fits = is_small_inside(task, sizes, longest)
        long_case = _within_time(task, known, sizes, DRAWN.wide_seconds) if fits else None
        if long_case is None:
            most //= 2
        else:
            yield long_case


def is_small_inside(task: Task, sizes: Mapping[str, int], most: int) -> bool:
    """Return whether no tensor that the reference computes at ``sizes`` has more than ``most`` bytes (0 means no
    limit): the scores of attention grow with the square of its inputs. True where a run without values does not tell.
    """
    import torch

    if not most:
        return True
    largest = 0

    def handle(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        nonlocal largest
        out = operator(*args, **kwargs)
        parts = out if isinstance(out, (tuple, list)) else (out,)
        largest = max([largest, *(t.numel() * t.element_size() for t in parts if isinstance(t, torch.Tensor))])
        return out

    try:
        with on_meta(), watching(handle):
            task.module(memory=False).reference([
                torch.empty(arg.extents(sizes), dtype=getattr(torch, arg.dtype)) if arg.is_tensor else arg.value
                for arg in task.args
            ])  # fmt: skip
    except (Exception, Unsure):  # it needs values, or an operator has no form without them
        return True
    return largest <= most


def _within_time(task: Task, known: Sequence[Case], sizes: Mapping[str, int], most: float) -> Case | None:
    """Return the case at ``sizes``, or None if the reference would take more than ``most`` seconds of the processor
    (other work on the machine leaves no size out), assuming that its time grows with the square of its inputs from the
    ``known`` cases. If these are so small that startup dominates, the reference is run at sizes between."""

    def size_of(known_case: Case) -> int:
        return max(input_bytes(task, dict(known_case.sizes)), 1)

    measured, goal = list(known), input_bytes(task, sizes)
    if not runs_at(task, tuple(sizes.items())):
        return None

    def expected(size: int) -> float:
        # Use the least of several, since other work may have delayed one.
        return min(c.reference_used * max(size / size_of(c), 1) ** 2 for c in measured)

    while expected(goal) > most:
        # Go as far as the time limit allows, if that makes progress.
        last = max(measured, key=size_of)
        longer = math.sqrt(most / expected(size_of(last)))
        if longer < 2 or goal <= size_of(last):
            return None
        part = min(math.log(longer) / math.log(goal / size_of(last)), 1.0)
        middle = {k: round(max(dict(last.sizes)[k], 1) ** (1 - part) * max(n, 1) ** part) for k, n in sizes.items()}
        if input_bytes(task, middle) <= size_of(last) or not runs_at(task, tuple(middle.items())):
            return None
        measured.append(case(task, middle, Family.OWN))
        _ = measured[-1].native
    return case(task, dict(sizes), Family.OWN).glance()
