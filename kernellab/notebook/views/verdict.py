"""A verdict in words: for the workbench, as text, and as HTML. Every number names its baseline and its trust level."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import cast

from kernellab.errors import counted
from kernellab.lens.counters.read import facts_of
from kernellab.notebook.protocol import (
    ComparedSpeedup,
    CompilerLine,
    Figure,
    FirstWrong,
    NamedFigure,
    NamedText,
    StageRow,
    VerdictView,
)
from kernellab.records import Comparison, Evidence, Stage, StageResult, StageState, Timing, Trust, Verdict
from kernellab.target import Backend
from kernellab.verifier.protocol.remedies import remedy
from kernellab.verifier.protocol.stats import one_line_each

TRUST_WORDS = {
    Trust.T0: "T0 lint: static rules only",
    Trust.T1: "T1 quick: one process, for a look while editing",
    Trust.T2: "T2 isolated: the judge owned inputs, reference and clock",
    Trust.T3: "T3 sealed: the recorded device code was relaunched on unseen inputs",
    Trust.T4: "T4 reproduced: measured again in a new process or on another machine",
}
BASELINES = {"eager": "PyTorch eager", "compile": "torch.compile", "max-autotune": "torch.compile max-autotune"}

#: fewer timed calls than this are said next to a time; chosen, not measured
_FEW = 8
#: next to a map of where the errors are
MAP_WORDS = (
    "Where it is wrong: x wrong, n not finite, . right; rows down, columns across, one sign for a block of elements"
)


def figure(text: str, title: str) -> Figure:
    """A number as it is shown, and what it means in words."""
    return {"text": text, "title": title}


def over_the_bound(verdict: Verdict) -> str:
    """What ran faster than the bound, and why that may be."""
    ran = {baseline_name(c): c.baseline_time.median_ms for c in verdict.comparisons}
    if verdict.time is not None:
        ran["the kernel"] = verdict.time.median_ms
    ran["another kernel of this task"] = verdict.least_ms or inf  # the least of all, so last among equals
    fastest = min(ran, key=lambda name: ran[name])
    return (
        f"{fastest} is faster than this bound: its data stays in the caches, or the machine was busy when its roofs "
        "were measured"
    )


def trust_words(verdict: Verdict) -> str:
    """What the verdict's level means; of what was refused before anything ran, no more than that."""
    level = TRUST_WORDS[verdict.trust]
    if verdict.passed or verdict.stage not in (Stage.STATIC, Stage.BUILD) or verdict.trust is Trust.T0:
        return level
    why = "refused by its text" if verdict.stage is Stage.STATIC else "it was not built"
    return f"{level.partition(':')[0]}: {why}, so nothing ran"


def both(got: object, want: object) -> tuple[str, str]:
    """Two numbers for the eye, with six digits; with all where six do not tell them apart."""
    shown = tuple(str(float(f"{value:.6g}") if isinstance(value, float) else value) for value in (got, want))
    return (str(got), str(want)) if shown[0] == shown[1] and got != want else (shown[0], shown[1])


# -- for the workbench -------------------------------------------------------------------------------------------------


def verdict_view(verdict: Verdict, uncounted: str = "") -> VerdictView:
    """A ``VerdictView`` of the protocol; ``uncounted`` says why a GPU's counters were not read."""
    evidence = verdict.evidence or Evidence()
    wrong: FirstWrong | None = None
    if evidence.first_wrong is not None:
        got, want = both(evidence.got, evidence.want)
        wrong = {"index": list(evidence.first_wrong), "got": got, "want": want}
    return {
        "passed": verdict.passed,
        "stage": verdict.stage.value,
        "reason": verdict.reason,
        "remedy": remedy(verdict),
        "trust": verdict.trust.value,
        "trust_text": trust_words(verdict),
        "label": verdict.label,
        "flags": list(verdict.flags),
        "figures": figures(verdict),
        "comparisons": [
            *(comparison_view(c, verdict) for c in verdict.comparisons),
            *(comparison_view(c, verdict, f", {again_words(c)}") for c in verdict.timed_again),
        ],
        "first_wrong": wrong,
        "signature": evidence.signature,
        "sizes": dict(evidence.sizes),
        "error_map": list(evidence.error_map),
        "compiler": [cast("CompilerLine", line.model_dump(mode="json")) for line in evidence.compiler],
        "environment": environment(verdict),
        "launches": [
            {
                "kernel": launch.kernel,
                "facts": [{"name": f.name, "text": f.value, "title": f.sentence} for f in facts_of(launch)],
            }
            for launch in sorted(verdict.counters, key=lambda one: -(one.us or 0.0))
        ],
        "uncounted": "" if verdict.counters else uncounted,
    }


def comparison_view(comparison: Comparison, verdict: Verdict, mark: str = "") -> ComparedSpeedup:
    return {
        "baseline": comparison.baseline,
        "value": comparison.speedup,
        "low": comparison.low,
        "high": comparison.high,
        "distinguishable": comparison.distinguishable,
        "text": f"{comparison.text}{mark}",
        "title": speedup_title(comparison, verdict),
    }


def baseline_name(comparison: Comparison) -> str:
    """The baseline in full: PyTorch eager, torch.compile, NumPy, or a file."""
    return comparison.called or BASELINES.get(comparison.baseline, comparison.baseline)


def again_words(comparison: Comparison) -> str:
    """Of a later run's figure: ``timed again, paired with torch.compile``."""
    others = " and ".join(BASELINES.get(name, name) for name in comparison.paired_with)
    return f"timed again, paired with {others}" if others else "timed again"


def speedup_title(comparison: Comparison, verdict: Verdict) -> str:
    """Baseline, spread, trust level and machine, in words."""
    name = baseline_name(comparison)
    time = comparison.baseline_time
    words = [
        f"{comparison.speedup:.2f} times as fast as {name}, 95 % interval of the paired ratio "
        f"{comparison.low:.2f} to {comparison.high:.2f}",
        f"{name} took {time.median_ms:.3g} ms (median of {time.samples})",
        trust_words(verdict),
    ]
    if not comparison.distinguishable:
        words.insert(1, "the interval holds 1, so the difference is not significant")
    if again := next((c for c in verdict.timed_again if c.baseline == comparison.baseline), None):
        words.insert(1, f"{again_words(again)}: {again.text}")
    return "; ".join([*words, *filter(None, [machine(verdict)])])


def time_text(time: Timing) -> str:
    """``0.203 ms``; with the number of calls where it is small: a busy machine leaves no time for more."""
    few = f", {counted(time.samples, 'call')} only" if time.samples < _FEW else ""
    return f"{time.median_ms:.3g} ms{few}"


def figures(verdict: Verdict) -> list[NamedFigure]:
    """The verdict's numbers, in the order a reader wants them."""
    rows: list[NamedFigure] = []

    def add(name: str, text: str, title: str) -> None:
        rows.append({"name": name, "text": text, "title": title})

    where = "; ".join(filter(None, [trust_words(verdict), machine(verdict)]))
    if verdict.time is not None:
        time = verdict.time
        spread = f"median of {time.samples} calls; quartiles {time.q1_ms:.3g} to {time.q3_ms:.3g} ms"
        add("time", time_text(time), f"{spread}; {where}")
        if verdict.sol_ms:
            words = f"the speed-of-light bound of this task on this chip is {verdict.sol_ms:.3g} ms; {where}"
            if verdict.bound_share is None:
                words += f"; {over_the_bound(verdict)}"
            add("bound", verdict.bound_text, words)
    if verdict.own_share is not None:
        words = "share of the time that the candidate's own code took, the rest being library calls"
        add("own code", f"{100 * verdict.own_share:.0f} %", words)
    if verdict.build_seconds is not None:
        add("build", seconds(verdict.build_seconds), "from source to something that can be called")
    evidence = verdict.evidence
    if evidence is not None and evidence.wrong_fraction is not None:
        words = "share of the output's elements outside the tolerance, in the first failing case"
        add("wrong elements", f"{100 * evidence.wrong_fraction:.3g} %", words)
    if evidence is not None and evidence.rel_frobenius is not None:
        words = "relative Frobenius error of the output, in the first failing case"
        add("relative error", f"{evidence.rel_frobenius:.3g}", words)
    if verdict.precision:
        add("precision", verdict.precision, "what the reference and the tolerance are computed in")
    return rows


def environment(verdict: Verdict) -> list[NamedText]:
    env = verdict.environment
    rows = [("chip", env.chip), ("backend", env.backend), ("threads", str(env.threads or "")), ("sandbox", env.sandbox)]
    rows += [(f"{name} version", value) for name, value in env.versions.items()]
    if env.load:
        rows.append(("load average", f"{env.load:.2f}"))
    if env.disturbed:
        rows.append(("disturbed calls", f"{100 * env.disturbed:.0f} %"))
    return [{"name": name, "text": text} for name, text in rows if text]


def machine(verdict: Verdict) -> str:
    env = verdict.environment
    if env.backend == Backend.INTERPRETER.value:
        return f"Triton's interpreter, for {env.chip}"
    return f"{env.chip}, {env.threads} threads" if env.chip and env.threads else env.chip


_SHOWN = {state: state.value for state in StageState if state is not StageState.NOT_REACHED}


def stage_rows(stages: Iterable[StageResult], running: bool = False) -> list[StageRow]:
    """All stages in order, those that were not reached too; while ``running``, the next one is."""
    by_name = {stage.name: stage for stage in one_line_each(stages)}
    rows: list[StageRow] = []
    waits = running and not any(stage.state is StageState.RUNNING for stage in by_name.values())
    for name in Stage:
        stage = by_name.get(name)
        if stage is not None and stage.state in _SHOWN:
            state = _SHOWN[stage.state]
        else:
            state, waits = ("running", False) if waits else ("not reached", False)
        note, took = (stage.note, stage.seconds) if stage else ("", 0.0)
        rows.append({"name": name.value, "state": state, "seconds": round(took, 4), "note": note})
    return rows


# -- as text -----------------------------------------------------------------------------------------------------------


def verdict_text(verdict: Verdict) -> str:
    """A verdict for a terminal: outcome, stages, speedups, numbers, error map."""
    marks = {StageState.PASSED: "ok", StageState.FAILED: "FAILED", StageState.SKIPPED: "skipped"}
    lines = [f"{verdict.outcome}: {verdict.reason}"]
    stages = [f"{s.name.value} {marks.get(s.state, s.state.value)}" for s in one_line_each(verdict.stages)]
    rows = [("stages", ", ".join(stages)), *facts(verdict)]
    width = max(len(name) for name, _ in rows)
    lines += [f"{name:<{width}} {value}" for name, value in rows if value]
    evidence = verdict.evidence or Evidence()
    lines += [MAP_WORDS] if evidence.error_map else []
    lines += [f"{'':<{width}} {row}" for row in evidence.error_map]
    lines += [f"{'compiler':<{width}} {c.place}: {c.message}" for c in evidence.compiler]
    return "\n".join(lines)


def facts(verdict: Verdict) -> list[tuple[str, str]]:
    """Everything a verdict says but its stages: names and texts."""
    rows = [(f"against {baseline_name(c)}", c.text) for c in verdict.comparisons]
    rows += [(f"against {baseline_name(c)}, {again_words(c)}", c.text) for c in verdict.timed_again]
    rows += _failure_facts(verdict)
    rows += [(shown["name"], shown["text"]) for shown in figures(verdict)]
    if verdict.time is not None:
        time = verdict.time
        rows.append(("spread", f"{time.q1_ms:.3g} to {time.q3_ms:.3g} ms (quartiles of {time.samples} calls)"))
    rows.append(("trust", trust_words(verdict) + (f" ({verdict.label})" if verdict.label else "")))
    if verdict.flags:
        rows.append(("flags", "; ".join(verdict.flags)))
    if machine(verdict):
        rows.append(("measured on", machine(verdict)))
    return rows


def _failure_facts(verdict: Verdict) -> list[tuple[str, str]]:
    """What went wrong, where, and what to do about it."""
    evidence = verdict.evidence
    if evidence is None:
        return []
    rows = [("signature", evidence.signature or ""), ("fix", remedy(verdict))]
    if evidence.sizes:
        case = ", ".join(f"{name}={size}" for name, size in evidence.sizes.items())
        kind = "the task's own inputs" if evidence.family == "inputs" else f"{evidence.family} inputs"
        rows.append(("failing case", f"{case}; {kind}" if evidence.family else case))
    if evidence.first_wrong is not None:
        got, want = both(evidence.got, evidence.want)
        rows.append(("first wrong", f"{evidence.first_wrong}: got {got}, want {want}"))
    return [(name, text) for name, text in rows if text]


def headline(verdict: Verdict | None) -> str:
    """``2.90x eager [2.71, 3.02], 62% of bound, SOL score 0.70, 57% of the gap closed, T2``; else empty."""
    if verdict is None or not verdict.passed:
        return ""
    parts = [*(c.text for c in verdict.comparisons), verdict.sol_text]
    return ", ".join(filter(None, [*parts, verdict.trust.value]))


def seconds(value: float) -> str:
    if value <= 0:
        return ""
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"
