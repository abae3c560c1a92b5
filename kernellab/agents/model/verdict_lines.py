"""A verdict in lines for a prompt: what failed, where, and both sides' numbers."""

from __future__ import annotations

from kernellab.agents.model.facts import verdict_figures
from kernellab.records import Evidence, Verdict

_LOG_LINES = 30
_LOG_CHARACTERS = 2500
_COMPILER_LINES = 8


def verdict_lines(verdict: Verdict) -> list[str]:
    """One fact a line; a passed verdict's figures, or a failed one's evidence."""
    if verdict.passed:
        return [f"passed at {verdict.trust.value}: {verdict.reason}", *verdict_figures(verdict)]
    lines = [f"failed at {verdict.stage.value}: {verdict.reason}"]
    evidence = verdict.evidence or Evidence()
    lines += [f"{c.file}:{c.line or '?'}: {c.message}" for c in evidence.compiler[:_COMPILER_LINES]]
    if evidence.signature:
        lines.append(f"pattern of the error: {evidence.signature}")
    if evidence.sizes:
        case = ", ".join(f"{name}={size}" for name, size in evidence.sizes.items())
        lines.append(f"failing case: {case}" + (f", {evidence.family} inputs" if evidence.family else ""))
    if evidence.output is not None and evidence.output:
        lines.append(f"output number {evidence.output} (from 0)")
    if evidence.first_wrong is not None:
        lines.append(f"first wrong element {evidence.first_wrong}: got {evidence.got}, want {evidence.want}")
    if evidence.wrong_fraction is not None:
        lines.append(f"wrong elements: {100 * evidence.wrong_fraction:.3g} %")
    if evidence.rel_frobenius is not None:
        lines.append(f"relative error: {evidence.rel_frobenius:.3g}")
    lines += [f"flag: {flag}" for flag in verdict.flags if not flag.startswith("task:")]
    return lines


def error_map(verdict: Verdict) -> str:
    return "\n".join(verdict.evidence.error_map) if verdict.evidence else ""


def log_end(verdict: Verdict) -> str:
    """The log's last lines, where compilers and tracebacks say what is wrong; nothing when the lines above say it."""
    evidence = verdict.evidence
    if evidence is None or not evidence.log.strip() or evidence.compiler:
        return ""
    return "\n".join(evidence.log.strip()[-_LOG_CHARACTERS:].splitlines()[-_LOG_LINES:])
