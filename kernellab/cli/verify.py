"""``kernellab verify``: the full verification of any source; ``check``: of a repository's kernels, for CI; ``rank``: a
quick look at several."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import emit, say
from kernellab.conditions import facts, joined
from kernellab.errors import KernellabError, counted
from kernellab.options.commands.base import JsonOptions
from kernellab.options.commands.designs import VerifyShell
from kernellab.options.design import CheckCall, RankCall, VerifyCall
from kernellab.records import Ranking, Source, StageResult, StageState, Trust, Verdict
from kernellab.task import load_task
from kernellab.task.audit import admit, weaknesses
from kernellab.verifier.protocol.remedies import remedy
from kernellab.verifier.protocol.stats import one_line_each

if TYPE_CHECKING:
    from kernellab.verifier import VerifyOptions


def verify(
    task: Annotated[Path, typer.Argument(help="The task's Python file, or a capsule alone.")],
    call: VerifyCall,
    shell: VerifyShell,
    source: Annotated[
        Path | None, typer.Argument(help="A Python file that defines kernel(...) or ModelNew, or a folder with one.")
    ] = None,
) -> int:
    """Verify that SOURCE is right, honest and fast for TASK. Exit 0 when verified, whatever its speed.

    A capsule (`kernellab export SESSION --capsule FILE`) brings both along, and its verdict is put next to this one.
    """
    from kernellab.dsls.detect import dsl_of
    from kernellab.dsls.sources import read_source, with_constants
    from kernellab.verifier import Verifier
    from kernellab.verifier.protocol.option_words import plain_dsl, verify_options
    from kernellab.verifier.remote import target_at

    # what is wrong with the call is reported before anything is loaded
    dsl = call.dsl
    options = verify_options(call, dsl).model_copy(update={"unsandboxed": call.unsandboxed})
    if source is None:
        return _verify_capsule(task, options, shell)
    if task.suffix == ".json":
        raise KernellabError(f"{task} is no task's Python file.", "A capsule brings its own source: name it alone.")
    candidate = with_constants(read_source(source, dsl, plain_dsl()), call.constants)
    if dsl is None and dsl_of(candidate.files) is None:
        say(f"No DSL is recognised in {source}, so it is judged as {candidate.dsl}; --dsl names another.")
    target = target_at(call.target, candidate.dsl)
    loaded = load_task(task)
    weak = admit(loaded)
    with Progress() as progress, Verifier() as verifier:
        verdict = verifier.verify(loaded, candidate, target, options=options, progress=progress)
    verdict = verdict.model_copy(update={"conditions": joined(verdict.conditions, weaknesses(weak))})
    if shell.as_json:
        emit(verdict_dict(verdict, candidate))
    else:
        print(verdict_text(verdict))
    return 0 if verdict.passed else 1


def _verify_capsule(path: Path, options: VerifyOptions, shell: VerifyShell) -> int:
    """Exit 0 when its kernel passes here as it did there."""
    from kernellab.export.capsule import again, is_capsule, read_capsule
    from kernellab.export.capsule import facts as capsule_facts

    if path.exists() and path.suffix != ".json" and not is_capsule(path):
        raise KernellabError(
            f"{path} was given without a source and is not a capsule.",
            "Run kernellab verify TASK SOURCE, or name one capsule.",
        )
    capsule = read_capsule(path)
    with Progress() as progress:
        outcome = again(capsule, options, progress, trusted=shell.trust_task)
    if shell.as_json:
        emit({**verdict_dict(outcome.verdict, capsule.source), "capsule": capsule_facts(outcome)})
    else:
        print(verdict_text(outcome.verdict))
        print(f"The capsule of {capsule.name} ({capsule.target}, {capsule.made_by}) says: {capsule.verdict.text}")
        print("\n".join(f"  {line}" for line in outcome.differences) or "  nothing differs")
    return 0 if outcome.passed else 1


def check(
    call: CheckCall,
    shell: JsonOptions,
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Files and folders to search; default: this folder.")
    ] = None,
) -> int:
    """Verify every kernel, capsule and exported module of a repository. Exit 1 when one is wrong or too slow.

    A kernel NAME.py has its task next to it in NAME_task.py, a kernel.py in task.py. Exit 2 when nothing was checked.
    """
    from kernellab import ci
    from kernellab.ci.report import checked, facts, junit, markdown
    from kernellab.content import written
    from kernellab.verifier.protocol.option_words import plain_dsl, verify_options

    if call.update and call.lock is None:
        raise KernellabError("--update records figures, and no lock is named.", "Pass --lock kernels.lock too.")
    options = verify_options(call, None).model_copy(update={"unsandboxed": call.unsandboxed})
    lock = ci.read_lock(call.lock, call.update) if call.lock is not None else None
    subjects = ci.subjects(paths or [Path(".")], plain_dsl())
    answers = ci.check(
        subjects, options, least=call.min_speedup, lock=lock, accept=call.update, progress=lambda r: say(r.line)
    )
    results = list(answers)
    if call.update and lock is not None and call.lock is not None:
        for r in results:
            if r.figure is not None and not r.state.fails:
                lock = lock.with_figure(r.machine, r.name, r.figure)
        written(call.lock, lock.text)
    if call.junit is not None:
        written(call.junit, junit(results))
    if call.summary is not None:
        written(call.summary, markdown(results))
    if shell.as_json:
        emit(facts(results))
    else:
        print("\n".join(ci.failed_lines(results)) or f"{counted(checked(results), 'kernel')} checked, none failed")
    if not checked(results):
        left = (
            f"{counted(len(results), 'kernel')} found, none of which this machine can check"
            if results
            else "none found"
        )
        say(f"Nothing was checked: {left}.\n  -> Run it on the chip, or name the folder of the kernels.")
        return 2
    return 1 if any(r.state.fails for r in results) else 0


def rank(
    task: Annotated[Path, typer.Argument(help="The task's Python file.")],
    sources: Annotated[list[Path], typer.Argument(help="Files or folders that define kernel(...) or ModelNew.")],
    call: RankCall,
    shell: JsonOptions,
) -> int:
    """Rank SOURCES by speed on TASK, in about a second each. Exit 1 when none could be timed.

    This is no verdict: plain errors are found, cheats are not. Verify the one that you choose.
    """
    from kernellab.dsls.machine import detect_target
    from kernellab.dsls.sources import read_source
    from kernellab.verifier import RankOptions, Verifier
    from kernellab.verifier.protocol.option_words import plain_dsl

    candidates = [(path, read_source(path, call.dsl, plain_dsl())) for path in sources]
    loaded = load_task(task)
    admit(loaded)
    options = RankOptions(allow_library=call.allow_library, unsandboxed=call.unsandboxed)
    rankings: list[tuple[Path, Ranking]] = []
    with Verifier() as verifier:
        for path, source in candidates:
            rankings.append((path, verifier.rank(loaded, source, detect_target(source.dsl), options=options)))
            say(f"{path}: {rankings[-1][1].text or rankings[-1][1].reason}")
    rankings.sort(key=_slowness)
    if shell.as_json:
        emit({"verdict": None, "rankings": [_ranking_facts(path, r) for path, r in rankings]})
    else:
        print("\n".join(_place_line(place, path, r) for place, (path, r) in enumerate(rankings, 1)))
    return 0 if any(r.ranked for _, r in rankings) else 1


def _slowness(entry: tuple[Path, Ranking]) -> float:
    """By what share of eager's time it takes, since runs differ; what could not be timed comes last."""
    _, ranking = entry
    return 1 / ranking.paired.speedup if ranking.ranked and ranking.paired else float("inf")


def _place_line(place: int, path: Path, ranking: Ranking) -> str:
    if not ranking.ranked:
        return f" -  {path}: failed at {ranking.stage.value}: {ranking.reason}"
    return f"{place:2d}. {path}: {ranking.text}"


def _ranking_facts(path: Path, ranking: Ranking) -> dict[str, Any]:
    paired = ranking.paired
    return {
        "source": str(path),
        "ranked": ranking.ranked,
        "stage": ranking.stage.value,
        "reason": ranking.reason,
        "trust": ranking.trust.value,
        "time_ms": ranking.time.median_ms if ranking.time else None,
        "eager_ms": paired.baseline_time.median_ms if paired else None,
        "ratio": [paired.speedup, paired.low, paired.high] if paired else None,
        "flags": ranking.flags,
        "conditions": facts(ranking.conditions),
        "build_seconds": ranking.build_seconds,
        "seconds": ranking.seconds,
    }


def verdict_dict(verdict: Verdict, source: Source | None = None) -> dict[str, Any]:
    """The contract's names. Times are milliseconds; ``spread`` holds the quartiles; a speedup's interval is that of the
    paired ratio at 95 %; ``sol_score`` is null under the bound."""
    from kernellab.verifier.timing import metrics

    eager, compiled = verdict.against("eager"), verdict.against("compile")
    time, bound = verdict.time, verdict.sol_ms
    scored = time is not None and eager is not None and bound is not None
    return {
        "passed": verdict.passed,
        "stage": verdict.stage.value,
        "reason": verdict.reason,
        "dsl": source.dsl if source else None,
        "trust": verdict.trust.value,
        "sealed": _sealed(verdict),
        "label": verdict.label,
        "labels": verdict.labels,
        "flags": verdict.flags,
        "conditions": facts(verdict.conditions),
        "evidence": verdict.evidence.model_dump(mode="json") if verdict.evidence else None,
        "time_ms": time.median_ms if time else None,
        "spread": [time.q1_ms, time.q3_ms] if time else None,
        "samples": time.samples if time else None,
        "baseline_ms": eager.baseline_time.median_ms if eager else None,
        "compile_ms": compiled.baseline_time.median_ms if compiled else None,
        "speedup": verdict.speedup,
        "advice": verdict.advice,
        "speedups": {c.baseline: [c.speedup, c.low, c.high] for c in verdict.comparisons},
        "baselines": {
            c.baseline: {
                "time_ms": c.baseline_time.median_ms,
                "spread": [c.baseline_time.q1_ms, c.baseline_time.q3_ms],
                "speedup": c.speedup,
                "interval": [c.low, c.high],
                "distinguishable": c.distinguishable,
            }
            for c in verdict.comparisons
        },
        "sol_ms": bound,
        "sol_score": metrics.sol_score(time.median_ms, eager.baseline_time.median_ms, bound)
        if scored and time and eager and bound
        else None,
        "gap_closed": verdict.gap_closed,
        "bound_share": verdict.bound_share,
        "own_share": verdict.own_share,
        "precision": verdict.precision,
        "build_seconds": verdict.build_seconds,
        "environment": verdict.environment.model_dump(mode="json"),
        "stages": [
            {"name": s.name.value, "passed": s.passed, "state": s.state.value, "seconds": s.seconds, "note": s.note}
            for s in one_line_each(verdict.stages)
        ],
    }


def _sealed(verdict: Verdict) -> bool:
    """Was the recorded device code relaunched without the candidate? T4 says by a label whether it rests on that."""
    return verdict.trust is Trust.T3 or verdict.marked("sealed")


def verdict_text(verdict: Verdict) -> str:
    """The verdict in lines for people."""
    label = f" ({verdict.label})" if verdict.label else ""
    lines = [f"{verdict.outcome}, {verdict.trust.value}{label}: {verdict.reason}"]
    if verdict.time:
        lines.append(
            f"  {verdict.time.median_ms:.4g} ms (quartiles {verdict.time.q1_ms:.4g} to {verdict.time.q3_ms:.4g})"
        )
    lines += [f"  {c.text} (it takes {_ms(c.baseline_time.median_ms)})" for c in verdict.comparisons]
    lines += [f"  {verdict.advice}"] if verdict.advice else []
    if verdict.sol_ms:
        share = f": {verdict.sol_text}" if verdict.sol_text else ""
        lines.append(f"  bound on this chip {_ms(verdict.sol_ms)}{share}")
    if verdict.own_share is not None:
        unseen = verdict.marked("launches-not-seen")
        where = "outside the framework's operators" if unseen else "in its own code"
        lines.append(f"  {verdict.own_share:.0%} of the time {where}")
    if verdict.precision:
        lines.append(f"  precision class {verdict.precision}")
    lines += [f"  flag: {flag}" for flag in verdict.flags]
    evidence = verdict.evidence
    if evidence is not None:
        lines += [f"  {line.place}: {line.message}" for line in evidence.compiler[:10]]
        if evidence.signature:
            lines.append(f"  signature: {evidence.signature}")
        if remedy(verdict):
            lines.append(f"  fix: {remedy(verdict)}")
        if evidence.first_wrong is not None:
            case = ", ".join(f"{name}={size}" for name, size in evidence.sizes.items())
            lines.append(f"  first wrong {evidence.first_wrong} at {case}: got {evidence.got}, want {evidence.want}")
        lines += [f"    {row}" for row in evidence.error_map]
    return "\n".join(lines)


def _ms(value: float) -> str:
    return f"{value:.4g} ms"


class Progress:
    """A line on stderr as each part of a stage ends; on a terminal, also what is being done and since when."""

    def __init__(self) -> None:
        self._status: Any = None
        self._told: set[str] = set()

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True, highlight=False).status("starting the judge", spinner="dots")
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __call__(self, part: StageResult) -> None:
        if part.state is StageState.RUNNING:
            if self._status is not None:
                self._status.update(f"{part.name.value} {part.note} ...".replace("  ", " "))
            return
        again = part.name.value in self._told
        self._told.add(part.name.value)
        skipped = part.state is StageState.SKIPPED
        if again and skipped:
            line = f"{'':<8} {part.note}"
        else:
            line = f"{part.name.value:<8} {part.state.value:<12} {part.seconds:6.2f} s  {part.note}"
        if self._status is None:
            say(line.rstrip())
            return
        self._status.console.print(line.rstrip(), markup=False)
        after = _next(part)
        self._status.update(f"{after} ..." if after else "")


def _next(part: StageResult) -> str:
    names = [stage.value for stage in type(part.name)]
    place = names.index(part.name.value) + 1
    return names[place] if part.state is not StageState.FAILED and place < len(names) else ""
