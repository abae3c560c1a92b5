"""A verdict in words: for the live view, as text, and as HTML. Every number names its baseline and its trust level."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernellab.records import Comparison, Evidence, StageResult, StageState, Trust, Verdict, one_line_each

TRUST_WORDS = {
    Trust.T0: "T0 lint: static rules only",
    Trust.T1: "T1 quick: one process, for a look while editing",
    Trust.T2: "T2 isolated: the judge owned inputs, reference and clock",
    Trust.T3: "T3 sealed: the recorded device code was relaunched on unseen inputs",
    Trust.T4: "T4 reproduced: measured again in a new process or on another machine",
}
BASELINES = {"eager": "PyTorch eager", "compile": "torch.compile", "max-autotune": "torch.compile max-autotune"}


def verdict_state(verdict: Verdict) -> dict[str, Any]:
    """What the live view draws, as plain data."""
    evidence = verdict.evidence or Evidence()
    return {
        "passed": verdict.passed,
        "stage": verdict.stage.value,
        "reason": verdict.reason,
        "stages": stage_rows(verdict.stages),
        "speedups": [speedup_row(c, verdict.trust) for c in verdict.comparisons],
        "facts": facts(verdict),
        "error_map": evidence.error_map,
        "compiler": [f"{line.file}:{line.line or '?'}: {line.message}" for line in evidence.compiler],
    }


def stage_rows(stages: Iterable[StageResult]) -> list[dict[str, Any]]:
    return [
        {"name": s.name.value, "state": s.state.value, "seconds": seconds(s.seconds), "note": s.note}
        for s in one_line_each(stages)
    ]


def speedup_row(comparison: Comparison, trust: Trust) -> dict[str, Any]:
    name = BASELINES.get(comparison.baseline, comparison.baseline)
    text = f"{comparison.speedup:.2f}x [{comparison.low:.2f}, {comparison.high:.2f}]"
    if not comparison.distinguishable:
        text += " no difference"
    return {
        "baseline": name,
        "speedup": comparison.speedup,
        "low": comparison.low,
        "high": comparison.high,
        "text": text,
        "title": (
            f"{name} took {comparison.baseline_time.median_ms:.3g} ms (median of {comparison.baseline_time.samples}); "
            f"95 % interval of the paired ratio; {TRUST_WORDS[trust]}"
        ),
    }


def facts(verdict: Verdict) -> dict[str, str]:
    """The rest of a verdict by name, in the order a reader wants it."""
    found: dict[str, str] = {}
    evidence = verdict.evidence
    if evidence is not None:
        if evidence.signature:
            found["signature"] = evidence.signature
        if evidence.sizes:
            case = ", ".join(f"{name}={size}" for name, size in evidence.sizes.items())
            found["failing case"] = f"{case}; {evidence.family} inputs" if evidence.family else case
        if evidence.first_wrong is not None:
            found["first wrong"] = f"{evidence.first_wrong}: got {evidence.got}, want {evidence.want}"
        if evidence.wrong_fraction is not None:
            found["wrong elements"] = f"{100 * evidence.wrong_fraction:.3g} %"
    if verdict.time is not None:
        time = verdict.time
        found["time"] = (
            f"{time.median_ms:.3g} ms (quartiles {time.q1_ms:.3g} to {time.q3_ms:.3g}, {time.samples} calls)"
        )
        if verdict.sol_ms:
            share = 100 * verdict.sol_ms / time.median_ms
            found["bound"] = f"{verdict.sol_ms:.3g} ms on this chip; {share:.0f} % of it reached"
    if verdict.own_share is not None:
        found["own kernels"] = f"{100 * verdict.own_share:.0f} % of the time"
    if verdict.precision:
        found["precision"] = verdict.precision
    found["trust"] = TRUST_WORDS[verdict.trust] + (f" ({verdict.label})" if verdict.label else "")
    if verdict.flags:
        found["flags"] = "; ".join(verdict.flags)
    if verdict.environment.chip:
        threads = f", {verdict.environment.threads} threads" if verdict.environment.threads else ""
        found["measured on"] = f"{verdict.environment.chip}{threads}"
    return found


def verdict_text(verdict: Verdict) -> str:
    """A verdict for a terminal: outcome, stages, speedups, facts, error map."""
    state = verdict_state(verdict)
    marks = {StageState.PASSED: "ok", StageState.FAILED: "FAILED", StageState.SKIPPED: "skipped"}
    lines = [f"{'passed' if verdict.passed else 'failed at ' + verdict.stage.value}: {verdict.reason}"]
    stages = [f"{s.name.value} {marks.get(s.state, s.state.value)}" for s in one_line_each(verdict.stages)]
    if stages:
        lines.append("stages      " + ", ".join(stages))
    lines += [f"against     {row['baseline']}: {row['text']}" for row in state["speedups"]]
    lines += [f"{name:<11} {value}" for name, value in state["facts"].items()]
    lines += [f"            {row}" for row in state["error_map"]]
    lines += [f"compiler    {line}" for line in state["compiler"]]
    return "\n".join(lines)


def headline(verdict: Verdict | None) -> str:
    """``2.9x eager  1.4x compile  62% of bound`` when timed, else empty."""
    if verdict is None or not verdict.passed:
        return ""
    parts = [f"{c.speedup:.2f}x {c.baseline}" for c in verdict.comparisons]
    if verdict.sol_ms and verdict.time:
        parts.append(f"{100 * verdict.sol_ms / verdict.time.median_ms:.0f}% of bound")
    return "  ".join([*parts, verdict.trust.value])


def seconds(value: float) -> str:
    if value <= 0:
        return ""
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"
