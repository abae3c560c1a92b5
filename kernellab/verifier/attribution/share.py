"""The share of a call's work done by the candidate's own code, counted by the judge."""

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


class Looked(Protocol):
    """Something that sampled a worker's program counters: for each look the samples of all running threads, the number
    of calls that it stands for, and why there are none, if the system refuses."""

    @property
    def worker(self) -> Worker: ...
    @property
    def looks(self) -> Sequence[Sequence[Sample]]: ...
    @property
    def weights(self) -> Sequence[float]: ...
    @property
    def refused(self) -> str: ...


@dataclass(frozen=True)
class Counted:
    """Result of sampling program counters: the numbers of calls that looks at own code, and at each library's, stand
    for; the number of all looks; seconds of a call.

    ``effective`` is the number of equally weighted looks with the same information (0: each counts once). ``unseen``
    says why they allow no conclusion, if so.
    """

    own: float = 0
    #: the same for looks only at the interpreter's and the system's runtime
    runtime: float = 0
    libraries: tuple[tuple[str, float], ...] = ()
    all: int = 0
    seconds: float = 0.0
    unseen: str = ""
    effective: float = 0.0
    #: the same for objects that are neither the candidate's nor known
    strangers: tuple[tuple[str, float], ...] = ()
    #: the number of those looks
    strange_looks: int = 0
    #: their places in the candidate's files; None if not requested
    hot: HotSpots | None = None

    @property
    def strange(self) -> float:
        """The share of all looks at code that is neither the candidate's nor known; 0 if chance may explain it."""
        count = sum(n for _, n in self.strangers)
        share = count / ((count + self.own + self.library + self.runtime) or 1)
        return share if share > HONEST.unknown_share and self.strange_looks >= HONEST.min_unknown_looks else 0.0

    @property
    def library(self) -> float:
        return sum(n for _, n in self.libraries)

    @property
    def number(self) -> float:
        """The number of looks at code that computes, with equal weights."""
        return self.effective or self.own + self.library

    @property
    def share(self) -> float:
        """Own code's part of the code that computes."""
        return self.own / (self.own + self.library or 1)

    @property
    def told(self) -> bool:
        """Are the looks enough for a conclusion?"""
        return not self.unseen and self.number >= HONEST.min_samples

    @property
    def leans(self) -> bool:
        """Is the library's part larger than allowed, beyond chance and beyond the handling of tensors?"""
        if not self.told:
            return False
        n = self.number
        spread = HONEST.share_standard_errors * math.sqrt(max(self.share * (1 - self.share), 1 / n) / n)
        seconds = (1 - self.share) * n / max(self.all, 1) * self.seconds
        return self.share + spread < HONEST.own_share and seconds > HONEST.library_seconds


def counted(stages: Stages, case: Case, only_moves: bool = False) -> Counted:
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
        return Counted(unseen=str(unseen))
    for number in range(HONEST.more_samplings + 1):
        # half suffice if they show only the candidate's code: timed calls are sampled too
        part = 1.0 if number else 0.5
        called = len(seconds)
        with sampler:
            # at least one call: on a busy machine the time may be over before the first begins
            end = time.monotonic() + part * HONEST.sample_seconds
            while len(seconds) == called or (
                time.monotonic() < end and len(sampler.looks) < part * HONEST.max_samples and not sampler.refused
            ):
                deadline = stages.context.left(stages.call_deadline(case))
                seconds.append(own_seconds(worker.call(layout, (0,), deadline, late=contents.next())))
        shares = found_in(sampler, statistics.median(seconds), only_moves)
        if shares.unseen or (shares.told and not (shares.library or shares.strangers)):
            break
        # the first samples are few; more follow if all of them show a library
        if number and (shares.told or shares.own or not shares.library):
            break
    return replace(shares, hot=hot_spots([sampler]))


def own_seconds(call: Call) -> float:
    """Seconds of a call that do not depend on other work on the machine: its time without the wait for a core, but at
    least its processor time, so that threads which block each other hide nothing."""
    return max(call.seconds - call.waited, min(call.used, call.seconds))


def found_in(sampler: Looked, seconds: float, only_moves: bool = False) -> Counted:
    """Evaluate looks at calls of ``seconds`` seconds. A look with any thread in a library's code counts as the
    library's, regardless of the other threads."""
    if sampler.refused:
        return Counted(unseen=sampler.refused)
    worker = sampler.worker
    build = Build(str(worker.scratch))
    kinds = _kinds([s for look in sampler.looks for s in look], worker, build)
    own_samples = [s for s, kind in kinds.items() if kind is Kind.OWN]
    anonymous = [s for s, kind in kinds.items() if kind is Kind.LIBRARY and not s.path]
    # code made at run time belongs to a library that calls it, except the DSL's own, if the build wrote that code
    calling_libraries = {
        s: library_of(s.caller) for s in own_samples
        if makes_code(s.caller) and not is_of(s.caller, worker.runtime)
        and not (is_of(s.caller, worker.packages) and build.holds(s))
    }  # fmt: skip
    library_kinds = (Kind.LIBRARY, Kind.MOVE) if only_moves else (Kind.LIBRARY,)
    library_names = {s: library_of(s.path) if s.path else _MADE for s, kind in kinds.items() if kind in library_kinds}
    library_names |= {s: library_of(s.caller) for s in anonymous if makes_code(s.caller)}
    library_names |= {
        **_copied([s for s in (*own_samples, *anonymous) if s not in calling_libraries]),
        **calling_libraries,
    }
    library_names |= _builtins(sampler.looks, kinds, seconds)
    for s in (*_launching(sampler, library_names, seconds), *_handling(sampler, library_names, seconds)):
        library_names.pop(s, None)
    libraries: dict[str, float] = {}
    strangers: dict[str, float] = {}
    own = runtime = squares = 0.0
    strange_looks = 0
    for look, weight in zip(sampler.looks, sampler.weights, strict=True):
        strange = next((s for s in look if kinds[s] is Kind.UNKNOWN), None)
        name = next((library_names[s] for s in look if s in library_names), "")
        if strange is not None:
            stranger = library_of(strange.path)
            strangers[stranger] = strangers.get(stranger, 0.0) + weight
            strange_looks += 1
            continue
        if name:
            libraries[name] = libraries.get(name, 0.0) + weight
        elif any(kinds[s] is Kind.OWN for s in look):
            own += weight
        else:
            runtime += weight
            continue
        squares += weight**2
    effective = (own + sum(libraries.values())) ** 2 / squares if squares else 0.0
    return Counted(
        own, runtime, _ordered(libraries), len(sampler.looks), seconds, effective=effective,
        strangers=_ordered(strangers), strange_looks=strange_looks,
    )  # fmt: skip


def hot_spots(looked: Sequence[Looked]) -> HotSpots | None:
    """The looks at program counters in files of the candidate's build; None without looks.

    A function's name comes from the candidate: it only says where to look in its source.
    """
    samples = [s for looker in looked for look in looker.looks for s in look]
    if not samples:
        return None
    scratch = f"{looked[0].worker.scratch}/"
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


def _launching(sampler: Looked, named: dict[Sample, str], seconds: float) -> set[Sample]:
    """The samples in the compiled code of the DSL's own runtime, if all of them take no longer than launches, and none
    of its loops is long: code that computes stays in a loop."""
    runtime = sampler.worker.runtime
    launching = {s for s in named if s.path and runtime and is_of(s.path, runtime)}
    looks = list(zip(sampler.looks, sampler.weights, strict=True))
    share = sum(weight for look, weight in looks if launching & set(look)) / (sum(w for _, w in looks) or 1)
    launch_seconds, largest = share * seconds, _most(launching, sampler)
    longest = largest * seconds / max(len(looks), 1)
    # one or two of many looks at one place are chance; of few looks they may be a loop of a large part of the call
    is_chance = largest <= min(2.0, (1 - HONEST.own_share) * len(looks)) and launch_seconds <= HONEST.launch_seconds
    loop = min(HONEST.handling_seconds, max(HONEST.launch_loop_seconds, HONEST.launch_loop_share * launch_seconds))
    return launching if is_chance or (launch_seconds <= HONEST.slow_launch_seconds and longest <= loop) else set()


def _most(samples: set[Sample], sampler: Looked) -> int:
    """The number of looks at the range of ``handling_bytes`` of a file with most of the ``samples``."""
    positions = sorted((s.path, s.place) for look in sampler.looks for s in look if s in samples)
    counts = [
        bisect_left(positions, (path, place + HONEST.handling_bytes)) - i for i, (path, place) in enumerate(positions)
    ]
    return max(counts, default=0)


def _handling(sampler: Looked, named: dict[Sample, str], seconds: float) -> set[Sample]:
    """The samples in libraries' own files, if they are far apart: code that allocates, views and dispatches runs
    through once, slowly where it is not cached, while code that computes stays in its loops."""
    files = {s for s, name in named.items() if s.path and name == library_of(s.path)}
    together = sum(not files.isdisjoint(look) for look in sampler.looks) * seconds / max(len(sampler.looks), 1)
    apart = _most(files, sampler) * seconds / max(len(sampler.looks), 1) <= HONEST.library_seconds
    return files if together <= HONEST.handling_seconds and apart else set()


#: name of code without a file, if no library is seen to call it
_MADE = "code that was made at run time"


def most(counts: Sequence[tuple[str, float]]) -> list[str]:
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
            code = [piece for s in object_samples if (piece := s.stood(s.address, HONEST.sample_bytes))]
            names[key] = copied_from(random.SystemRandom().sample(code, min(HONEST.sample_pieces, len(code))))
    return {s: names[s.pid, s.path] for s in samples if names.get((s.pid, s.path))}
