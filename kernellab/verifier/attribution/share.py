"""The share of a call's work done by the candidate's own code, counted by the judge.

In: looks, each the program counters of all threads of a worker at one instant of a call. Each sample is the candidate's
own code, a library's, one that only moves data, a runtime's, or unknown (:func:`_kinds`). Then code made at run time,
copies of a library's code and loops of the interpreter's own functions count as a library's, and what only launches or
handles tensors does not (:func:`_library_names`). Out: how many looks found whose code (:class:`LookCounts`).
"""

from __future__ import annotations

import math
import random
import statistics
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kernellab.records.counters import HotSpot, HotSpots
from kernellab.target.threads import is_openmp
from kernellab.verifier.attribution.counters import Sample, Sampler, Unseen, executable
from kernellab.verifier.attribution.objects import (
    SYSTEM_CODE,
    Kind,
    copied_from,
    function_at,
    is_of,
    kind_of,
    library_of,
    makes_code,
    may_be_copied,
    own_bytes,
)
from kernellab.verifier.attribution.proof import Build, is_of_file
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import HONEST
from kernellab.verifier.timing.contents import Contents, loose_arguments

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.judge.worker_client import Call, Worker
    from kernellab.verifier.stages.candidate import Stages


class SampledLooks(Protocol):
    """Looks at a worker's program counters: for each look the samples of all running threads, the number of calls that
    it stands for, and why there are none, if the system refuses."""

    @property
    def worker(self) -> Worker: ...
    @property
    def looks(self) -> Sequence[Sequence[Sample]]: ...
    @property
    def weights(self) -> Sequence[float]: ...
    @property
    def refused(self) -> str: ...


@dataclass(frozen=True)
class LookCounts:
    """Whose code the looks found. A count is the number of calls that the looks stand for."""

    own: float = 0
    #: looks only at the interpreter's and the system's runtime
    runtime: float = 0
    #: looks at each library's code
    libraries: tuple[tuple[str, float], ...] = ()
    #: number of all looks
    total: int = 0
    #: seconds of a call
    seconds: float = 0.0
    #: why the looks allow no conclusion, if so
    unseen: str = ""
    #: the number of equally weighted looks with the same information; 0 if each counts once
    effective: float = 0.0
    #: looks at each object that is neither the candidate's nor known,
    unknown_objects: tuple[tuple[str, float], ...] = ()
    #: and the number of those looks
    unknown_looks: int = 0
    #: the places of the looks in the candidate's files; None if not requested
    hot: HotSpots | None = None

    @property
    def unknown_share(self) -> float:
        """The share of all looks at code that is neither the candidate's nor known; 0 if chance may explain it."""
        count = sum(n for _, n in self.unknown_objects)
        share = count / ((count + self.own + self.library + self.runtime) or 1)
        is_chance = share <= HONEST.unknown_share or self.unknown_looks < HONEST.min_unknown_looks
        return 0.0 if is_chance else share

    @property
    def library(self) -> float:
        return sum(n for _, n in self.libraries)

    @property
    def computing(self) -> float:
        """The number of looks at code that computes, with equal weights."""
        return self.effective or self.own + self.library

    @property
    def share(self) -> float:
        """Own code's part of the code that computes."""
        return self.own / (self.own + self.library or 1)

    @property
    def is_conclusive(self) -> bool:
        """Are there enough looks?"""
        return not self.unseen and self.computing >= HONEST.min_samples

    @property
    def is_mostly_library(self) -> bool:
        """Is the library's part larger than allowed, beyond chance and beyond the handling of tensors?"""
        if not self.is_conclusive:
            return False
        n = self.computing
        # the binomial's standard error, which is not 0 where all looks agree
        error = math.sqrt(max(self.share * (1 - self.share), 1 / n) / n)
        library_seconds = (1 - self.share) * n / max(self.total, 1) * self.seconds
        is_beyond_chance = self.share + HONEST.share_standard_errors * error < HONEST.own_share
        return is_beyond_chance and library_seconds > HONEST.library_seconds


def sample_calls(stages: Stages, case: Case, only_moves: bool = False) -> LookCounts:
    """Sample calls on new contents of the form of ``case``, made like timed calls. If the task ``only_moves`` data, a
    library's copies are its work.

    Raises:
        WorkerFailure: the candidate fails.
    """
    worker, layout = stages.worker, lay_out(case.args)
    contents = Contents(stages.task, case.args, loose_arguments(stages.task, case.args))
    worker.write(0, layout, case.args)
    seconds: list[float] = []
    try:
        sampler = Sampler(worker)
    except Unseen as unseen:
        return LookCounts(unseen=str(unseen))
    for number in range(HONEST.more_samplings + 1):
        # half suffice if they show only the candidate's code: timed calls are sampled too
        part = 1.0 if number else 0.5
        earlier_calls = len(seconds)
        with sampler:
            # at least one call: on a busy machine the time may be over before the first begins
            end = time.monotonic() + part * HONEST.sample_seconds
            while len(seconds) == earlier_calls or (
                time.monotonic() < end and len(sampler.looks) < part * HONEST.max_samples and not sampler.refused
            ):
                deadline = stages.context.left(stages.call_deadline(case))
                seconds.append(own_seconds(worker.call(layout, (0,), deadline, late=contents.next())))
        counts = count_looks(sampler, statistics.median(seconds), only_moves)
        if counts.unseen or (counts.is_conclusive and not (counts.library or counts.unknown_objects)):
            break
        # the first samples are few; more follow if all of them show a library
        if number and (counts.is_conclusive or counts.own or not counts.library):
            break
    return replace(counts, hot=hot_spots([sampler]))


def own_seconds(call: Call) -> float:
    """Seconds of a call that do not depend on other work on the machine: its time without the wait for a core, but at
    least its processor time, so that threads which block each other hide nothing."""
    return max(call.seconds - call.waited, min(call.used, call.seconds))


def count_looks(sampled: SampledLooks, seconds: float, only_moves: bool = False) -> LookCounts:
    """Evaluate looks at calls of ``seconds`` seconds. A look with any thread in a library's code counts as the
    library's, regardless of the other threads; one with any in unknown code as unknown."""
    if sampled.refused:
        return LookCounts(unseen=sampled.refused)
    build = Build(str(sampled.worker.scratch))
    kinds = _kinds([s for look in sampled.looks for s in look], sampled.worker, build)
    library_names = _library_names(sampled, kinds, build, seconds, only_moves)
    libraries: dict[str, float] = {}
    unknown_objects: dict[str, float] = {}
    own = runtime = squares = 0.0
    unknown_looks = 0
    for look, weight in zip(sampled.looks, sampled.weights, strict=True):
        unknown = next((s for s in look if kinds[s] is Kind.UNKNOWN), None)
        if unknown is not None:
            name = library_of(unknown.path)
            unknown_objects[name] = unknown_objects.get(name, 0.0) + weight
            unknown_looks += 1
            continue
        name = next((library_names[s] for s in look if s in library_names), "")
        is_own = any(kinds[s] is Kind.OWN for s in look)
        if name:
            libraries[name] = libraries.get(name, 0.0) + weight
        elif is_own:
            own += weight
        else:
            runtime += weight
        if name or is_own:
            squares += weight**2
    effective = (own + sum(libraries.values())) ** 2 / squares if squares else 0.0
    return LookCounts(
        own, runtime, _ordered(libraries), len(sampled.looks), seconds, effective=effective,
        unknown_objects=_ordered(unknown_objects), unknown_looks=unknown_looks,
    )  # fmt: skip


def _library_names(
    sampled: SampledLooks, kinds: dict[Sample, Kind], build: Build, seconds: float, only_moves: bool
) -> dict[Sample, str]:
    """The samples that are a library's work, with its name; without those that launch or handle tensors."""
    worker = sampled.worker
    own_samples = [s for s, kind in kinds.items() if kind is Kind.OWN]
    anonymous = [s for s, kind in kinds.items() if kind is Kind.LIBRARY and not s.path]
    # code made at run time belongs to a library that calls it, except the DSL's own, if the build wrote that code
    calling_libraries = {
        s: library_of(s.caller) for s in own_samples
        if makes_code(s.caller) and not is_of(s.caller, worker.runtime)
        and not (is_of(s.caller, worker.packages) and build.holds(s))
    }  # fmt: skip
    library_kinds = (Kind.LIBRARY, Kind.MOVE) if only_moves else (Kind.LIBRARY,)
    names = {
        s: library_of(s.path) if s.path else _MADE_AT_RUN_TIME for s, kind in kinds.items() if kind in library_kinds
    }
    names |= {s: library_of(s.caller) for s in anonymous if makes_code(s.caller)}
    names |= _copied([s for s in (*own_samples, *anonymous) if s not in calling_libraries])
    names |= calling_libraries
    names |= _builtins(sampled.looks, kinds, seconds)
    for s in (*_launching(sampled, names, seconds), *_handling(sampled, names, seconds)):
        names.pop(s, None)
    return names


def hot_spots(sources: Sequence[SampledLooks]) -> HotSpots | None:
    """The looks at program counters in files of the candidate's build; None without looks.

    A function's name comes from the candidate: it only says where to look in its source.
    """
    samples = [s for source in sources for look in source.looks for s in look]
    if not samples:
        return None
    scratch = f"{sources[0].worker.scratch}/"
    own_samples = [s for s in samples if s.path.startswith(scratch) and is_of_file(s)]
    places = Counter(function_at(s.path, s.place) for s in own_samples)
    spots = [
        HotSpot(function=name, offset=offset, count=count)
        for (name, offset), count in places.most_common(HONEST.hot_spots)
        if name and len(name) <= HONEST.hot_name_characters
    ]
    return HotSpots(
        samples=len(samples), spots=tuple(spots), further=len(own_samples) - sum(s.count for s in spots),
        waiting=sum(is_openmp(s.path) for s in samples),
    )  # fmt: skip


# -- library code that is no computation: few seconds of a call, and no dense range, as of code that stays in a loop


def _launching(sampled: SampledLooks, names: dict[Sample, str], seconds: float) -> set[Sample]:
    """The samples in the compiled code of the DSL's own runtime, if all of them take no longer than launches, and none
    of its loops is long."""
    runtime = sampled.worker.runtime
    samples = {s for s in names if s.path and runtime and is_of(s.path, runtime)}
    looks = list(zip(sampled.looks, sampled.weights, strict=True))
    share = sum(weight for look, weight in looks if samples & set(look)) / (sum(w for _, w in looks) or 1)
    launch_seconds, densest = share * seconds, _densest_range(samples, sampled)
    loop_seconds = densest * seconds / max(len(looks), 1)
    # one or two of many looks at one place are chance; of few looks they may be a loop of a large part of the call
    is_chance = densest <= min(2.0, (1 - HONEST.own_share) * len(looks)) and launch_seconds <= HONEST.launch_seconds
    most_in_loop = max(HONEST.launch_loop_seconds, HONEST.launch_loop_share * launch_seconds)
    is_launch = launch_seconds <= HONEST.slow_launch_seconds and loop_seconds <= min(
        HONEST.handling_seconds, most_in_loop
    )
    return samples if is_chance or is_launch else set()


def _handling(sampled: SampledLooks, names: dict[Sample, str], seconds: float) -> set[Sample]:
    """The samples in libraries' own files, if they are far apart: code that allocates, views and dispatches runs
    through once, slowly where it is not cached."""
    samples = {s for s, name in names.items() if s.path and name == library_of(s.path)}
    per_look = seconds / max(len(sampled.looks), 1)
    handling_seconds = sum(not samples.isdisjoint(look) for look in sampled.looks) * per_look
    loop_seconds = _densest_range(samples, sampled) * per_look
    is_handling = handling_seconds <= HONEST.handling_seconds and loop_seconds <= HONEST.library_seconds
    return samples if is_handling else set()


def _densest_range(samples: set[Sample], sampled: SampledLooks) -> int:
    """The number of looks at the range of ``handling_bytes`` of a file with most of the ``samples``."""
    positions = sorted((s.path, s.place) for look in sampled.looks for s in look if s in samples)
    counts = [
        bisect_left(positions, (path, place + HONEST.handling_bytes)) - i for i, (path, place) in enumerate(positions)
    ]
    return max(counts, default=0)


#: name of code without a file, if no library is seen to call it
_MADE_AT_RUN_TIME = "code that was made at run time"


def leading_names(counts: Sequence[tuple[str, float]]) -> list[str]:
    """The names with the most looks."""
    return [name for name, _ in counts[:4]]


def _ordered(counts: dict[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(counts.items(), key=lambda item: -item[1]))


def _kinds(samples: Sequence[Sample], worker: Worker, build: Build) -> dict[Sample, Kind]:
    """The kind of each sample, after comparing the bytes that ran with the file that the map names."""
    kinds: dict[Sample, Kind] = {}
    for s in dict.fromkeys(samples):
        if s.path in SYSTEM_CODE:
            kinds[s] = Kind.OTHER
        elif s.path.startswith("/") and is_of_file(s):
            kinds[s] = kind_of(s.path, s.place, build.scratch)
        elif not s.path or (s.mapped is not None and not s.mapped.backed):
            kinds[s] = Kind.OWN if worker.makes_code or build.holds(s) else Kind.LIBRARY
        else:
            kinds[s] = Kind.UNKNOWN
    return kinds


def _builtins(looks: Sequence[Sequence[Sample]], kinds: dict[Sample, Kind], seconds: float) -> dict[Sample, str]:
    """The samples in a loop of one of the interpreter's own functions (bytes.translate, a product of long integers).

    Calling a kernel spreads over all of the interpreter; many of its samples in a few hundred bytes are a loop.
    """
    samples = [s for look in looks for s in look if kinds[s] is Kind.INTERPRETER]
    places = sorted(s.place for s in samples)
    addresses: set[int] = set()
    least = max(HONEST.min_samples, HONEST.loop_share * len(places))
    for i, low in enumerate(places):
        inside = bisect_left(places, low + HONEST.loop_bytes) - i
        share = inside / max(len(looks), 1)
        if inside >= least and share > 1 - HONEST.own_share and share * seconds > HONEST.library_seconds:
            addresses.update(places[i : i + inside])
    return {s: "the interpreter's own functions" for s in samples if s.place in addresses}


def _copied(samples: Sequence[Sample]) -> dict[Sample, str]:
    """The library that the code was copied from, for samples in objects that counted as the candidate's own."""
    by_object: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples:
        by_object.setdefault((sample.pid, sample.path), []).append(sample)
    names: dict[tuple[int, str], str] = {}
    own_sizes = {pid: own_bytes(executable(pid)) for pid in {s.pid for s in samples}}
    for key, object_samples in by_object.items():
        if any(s.mapped is not None and may_be_copied(s.mapped, own_sizes[s.pid]) for s in object_samples):
            code = [piece for s in object_samples if (piece := s.code_bytes(s.address, HONEST.sample_bytes))]
            names[key] = copied_from(random.SystemRandom().sample(code, min(HONEST.sample_pieces, len(code))))
    return {s: names[s.pid, s.path] for s in samples if names.get((s.pid, s.path))}
