"""The checked calls once more, in a process whose build counts what runs; and the verdict's condition on what did not.

The process is one of the sandbox like the candidate's own. It is built while the stages run, and gets the arguments of
their calls. What it says is a claim of the candidate's process: it is never a proof that code is right, and what could
not be found out is a condition too.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from kernellab.conditions.code import CodeRegion, CoverageUnknown, NeverRan
from kernellab.dsls.text import CPP_ENDINGS
from kernellab.errors import KernellabError
from kernellab.target import Backend
from kernellab.verifier.coverage import build, gcov, inside, native, python
from kernellab.verifier.coverage.calls import Calls, Made, together
from kernellab.verifier.coverage.limits import COVERAGE
from kernellab.verifier.coverage.native import Gap
from kernellab.verifier.coverage.reach import Reach
from kernellab.verifier.judge.pool import memory_limit
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.process_stats import crowding
from kernellab.verifier.protocol.memory import Layout, Place
from kernellab.verifier.protocol.rules import DEADLINES
from kernellab.verifier.protocol.sanitize import shown
from kernellab.verifier.static.native import headers
from kernellab.verifier.worker.build import write_files

if TYPE_CHECKING:
    from kernellab.verifier.judge.worker_client import Worker
    from kernellab.verifier.stages.candidate import Stages


#: largest finite operand
_LARGEST = sys.float_info.max
#: a way between blocks (:class:`native.Way`); or a file of Python and a place
Ran = tuple[Any, ...]


class Comparison(TypedDict):
    """Operands of one comparison, in pairs; what JSON has no number for is a text."""

    file: str
    line: int
    pairs: list[list[int | float | str]]


class Report(NamedTuple):
    """The answer of the process that counts: what Python ran, unread, and the comparisons."""

    python: Any
    compared: list[Comparison]


class Run(NamedTuple):
    """What ran in some calls, and the process's answer."""

    ran: frozenset[Ran]
    report: Report


def report(text: bytes) -> Report:
    """Read the answer of the process that counts.

    Raises:
        ValueError: It is none, which the candidate's own code may have written.
    """
    try:
        answer = json.loads(text)
    except RecursionError:
        raise ValueError("the answer is none") from None
    compared = answer.get("compared", []) if isinstance(answer, dict) else None
    if not isinstance(compared, list) or not all(map(_is_comparison, compared)):
        raise ValueError("the answer is none")
    return Report(answer.get("python"), compared)


def _is_comparison(one: Any) -> bool:
    if not isinstance(one, dict) or not isinstance(one.get("file"), str) or not isinstance(one.get("line"), int):
        return False
    pairs = one.get("pairs")
    return isinstance(pairs, list) and all(
        isinstance(p, list) and len(p) == 2 and all(map(_is_operand, p)) for p in pairs
    )


def _is_operand(value: Any) -> bool:
    """Is it a number of 64 bits, or the name of one that JSON has not?"""
    if isinstance(value, bool):
        return False
    return value in ("nan", "inf", "-inf") or (
        isinstance(value, (int, float)) and abs(value) < float("inf") and abs(value) <= _LARGEST
    )


class Covered:
    """The process that counts, and what it has counted."""

    def __init__(self, stages: Stages, worker: Worker) -> None:
        self.stages, self.worker = stages, worker
        source = stages.source
        self.places = native.Places(worker.scratch, source.files, headers())
        self.compiled: list[native.Compiled] = []
        #: the ways between native blocks and the places of Python that ran
        self.ran = set[Ran]()
        self.is_native = stages.context.request.backend is Backend.CPU
        #: where nothing compiles Python, its instructions say what ran
        reads_python = stages.context.interpreted or not stages.context.adapter.makes_code
        self.python = python.Code(source.files, source.entry) if reads_python else None

    def make(self, calls: Sequence[Made], compared: bool = False) -> Report:
        """Make calls, whose results are not needed, and return what the process says it has counted so far, with
        ``compared`` also the operands of comparisons since the last time.

        Raises:
            WorkerFailure: The process has ended.
            ValueError: Its answer is none.
            OSError: It wrote none.
        """
        places: list[Place] = []
        args: list[Any] = []
        messages: list[dict[str, Any]] = []
        end = 0
        for made in calls:
            moved = [replace(p, offset=p.offset + end) if p.dtype else p for p in made.layout.places]
            messages.append({"op": made.op, "args": [p.message for p in moved], "stacked": made.layout.stacked})
            places += moved
            args += made.args
            end += made.layout.size
        if calls:
            self.worker.write(0, Layout(tuple(places), end), args)
        seconds = DEADLINES.call_least * self.stages.slower * crowding()
        message = {
            "op": "covered", "root": str(self.worker.scratch / "src"), "slots": [0], "calls": messages,
            "written": list(self.worker.written), "compared": compared,
        }  # fmt: skip
        self.worker.ask(message, self.stages.context.left(seconds))
        return report(native.plain(self.worker.scratch / inside.ANSWER))

    def run(self, calls: Sequence[Made], compared: bool = False) -> Run:
        """Make calls as :meth:`make` does, and add what ran in them to ``ran``."""
        for counts, _ in self.compiled:
            counts.unlink(missing_ok=True)
        answer = self.make(calls, compared)
        ran = set[Ran]()
        for number, (counts, notes) in enumerate(self.compiled):
            notes.clear()
            with contextlib.suppress(FileNotFoundError):  # none of it has run
                gcov.add_counts(notes, native.plain(counts))
            ran |= {
                native.Way(number, key, i)
                for key, function in notes.functions.items()
                for i, count in enumerate(function.taken)
                if count
            }
        if self.python is not None:
            ran |= self.python.ran(answer.python)
        self.ran |= ran
        return Run(frozenset(ran), answer)

    def gaps(self) -> list[Gap]:
        """Return what has not run so far."""
        self._restore()
        gaps = native.gaps(self.compiled, self.places)
        return gaps + (self.python.gaps(self.ran) if self.python is not None else [])

    def near(self, gaps: Sequence[Gap]) -> set[Ran]:
        """Return what runs just before the conditions that decided against ``gaps``."""
        self._restore()
        guards = {(gap.file, gap.guard) for gap in gaps}
        return {*native.near(self.compiled), *(r for r in self.ran if isinstance(r[0], str) and r[:2] in guards)}

    def _restore(self) -> None:
        """Set the counts of the graphs to 1 where anything ran in any call."""
        for number, (_, notes) in enumerate(self.compiled):
            for key, function in notes.functions.items():
                function.taken = [int(native.Way(number, key, i) in self.ran) for i in range(len(function.arcs))]


def begin(stages: Stages) -> Covered | None:
    """Start the process and its build. None where nothing can be counted, which the findings then say."""
    context, source = stages.context, stages.source
    if context.request.backend is Backend.CUDA:
        return None
    backend = context.request.backend
    if context.adapter.makes_code and not context.interpreted and not _has_native(stages):
        context.findings.add(CoverageUnknown(reason=f"what {source.dsl} compiles is not counted"))
        return None
    try:
        worker = context.pool.worker(source.dsl, backend, "candidate", stages.threads, counting=True)
    except KernellabError as error:
        context.findings.add(CoverageUnknown(reason=shown(str(error))[:200]))
        return None
    try:
        worker.memory_limit = memory_limit(stages.task, backend)
        worker.processor_limit = context.options.processor
        worker.written = stages.written
        if backend is Backend.CPU and not build.install(worker.scratch, worker.scratch) and _has_native(stages):
            context.findings.add(CoverageUnknown(reason="no GCC is found here"))
            worker.close()
            return None
        write_files(worker.scratch / "src", source.files)
        message = stages.build_message(source)
        message.pop("seal", None)
        worker.begin_build({**message, "covered": True})
        return Covered(stages, worker)
    except (WorkerFailure, OSError, ValueError) as error:
        worker.close()
        context.findings.add(CoverageUnknown(reason=_words(error)))
        return None
    except BaseException:
        worker.close()
        raise


def check(stages: Stages, covered: Covered, calls: Calls) -> str:
    """Make the stages' calls once more and record what never ran. Returns the note; "" where nothing is known."""
    stages.calls = stages.worker.seen = None
    findings, began, end = stages.context.findings, time.monotonic(), stages.context.end
    stages.context.end = math.inf
    try:
        replayed = _replayed(covered, calls)
    except (WorkerFailure, OSError, ValueError) as error:
        findings.add(CoverageUnknown(reason=_words(error)))
        return ""
    except (TypeError, OverflowError, RecursionError, LookupError) as error:
        # An answer was read strictly, so this is a fault here: it costs what would be known, and no kernel its verdict.
        findings.add(CoverageUnknown(reason=f"a fault of the judge, please report it: {type(error).__name__}"))
        return ""
    finally:
        covered.worker.close()
        # what the judge adds does not count against the candidate's deadline
        stages.context.end = end
        stages.context.wait(time.monotonic() - began)
    if replayed is None:
        return ""
    regions = list(_regions(covered, replayed.gaps))
    if regions and replayed.left:
        more = max(len(regions) - COVERAGE.named_regions, 0)
        named = tuple(regions[: COVERAGE.named_regions])
        findings.add(CoverageUnknown(left=replayed.left, regions=named, more=more))
        return ""
    if regions:
        findings.add(
            NeverRan(
                regions=tuple(regions[: COVERAGE.named_regions]), more=max(len(regions) - COVERAGE.named_regions, 0)
            )
        )
        return ""
    return f"all of its code ran ({replayed.calls} calls)"


class _Replayed(NamedTuple):
    """What never ran, and the numbers of calls that were and were not made again."""

    gaps: list[Gap]
    calls: int
    left: int


def _replayed(covered: Covered, calls: Calls) -> _Replayed | None:
    """Make the calls again, and search for inputs that reach more. None if nothing is known."""
    stages, worker = covered.stages, covered.worker
    worker.finish_build(stages.context.left(COVERAGE.build_seconds))
    covered.compiled = native.compiled(worker.scratch) if covered.is_native else []
    if covered.is_native and not covered.compiled and _has_native(stages):
        stages.context.findings.add(CoverageUnknown(reason="it is compiled in a way that counts nothing"))
        return None
    made = calls.in_order()
    end = time.monotonic() + COVERAGE.replay_seconds * crowding()
    gaps: list[Gap] = []
    done = 0
    while done < len(made) and time.monotonic() < end:
        at_once = list(together(made[done:]))
        ran = covered.run(at_once).ran
        done += len(at_once)
        gaps = covered.gaps() if ran else gaps
        if ran and not gaps:
            break
    if gaps and made:
        reach = Reach(covered, gaps)
        try:
            gaps = reach.run()
        except WorkerFailure:  # what is known so far stays
            gaps = reach.gaps
    return _Replayed(gaps, done, len(made) - done + calls.dropped)


def _has_native(stages: Stages) -> bool:
    """Has the source C or C++ of a person's own, in files or strings?"""
    files = stages.source.files
    return any(name.endswith(CPP_ENDINGS) or "#include" in text for name, text in files.items())


def _regions(covered: Covered, gaps: Sequence[Gap]) -> Iterator[CodeRegion]:
    """Yield the code that did not run, in the order of the source. A guard whose code is listed is not listed too."""
    guards = {(gap.file, gap.guard) for gap in gaps if not gap.part}
    for gap in sorted(gaps, key=lambda gap: (gap.file, gap.lines)):
        if gap.part and (gap.file, gap.guard) in guards:
            continue
        condition = shown(covered.places.text(gap.file, gap.guard))[:80] if gap.guard else ""
        for first, last in _runs(gap.lines):
            yield CodeRegion(
                file=gap.file, first=first, last=last, part=gap.part, guard=gap.guard or None, condition=condition
            )


def _runs(lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each run of lines; a gap of two lines may hold a brace or a comment."""
    first = last = lines[0]
    for line in lines[1:]:
        if line > last + 3:
            yield first, last
            first = line
        last = line
    yield first, last


def _words(error: Exception) -> str:
    text = error.message if isinstance(error, WorkerFailure) else str(error)
    line = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return shown(line)[:200].rstrip(".")
