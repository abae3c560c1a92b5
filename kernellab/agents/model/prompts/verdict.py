"""A verdict in lines for a prompt: the failure, its place, and both sides' numbers."""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.agents.briefs import reason_of
from kernellab.agents.model.prompts.facts import verdict_figures
from kernellab.agents.rules.advice import failing_case, wrong_elements
from kernellab.agents.rules.contrast import contrast_lines
from kernellab.conditions import WeakTask, flags
from kernellab.errors import counted
from kernellab.records import CompilerLine, Evidence, Verdict

_LOG_LINES = 30
_LOG_CHARACTERS = 2500
_COMPILER_LINES = 8
#: Share of wrong elements above which a map of the output shows only crosses.
_NEARLY_ALL = 0.95


def verdict_lines(verdict: Verdict, files: Mapping[str, str] | None = None, told: str = "") -> list[str]:
    """One fact per line; a passed verdict's figures, or a failed one's evidence.

    A compiler's line is followed by the line of ``files`` to which it refers. Each message appears once, and not if the
    reason or ``told``, a suggestion elsewhere in the prompt, states it.
    """
    if verdict.passed:
        return [f"passed at {verdict.trust.value}: {verdict.reason}", *verdict_figures(verdict)]
    lines = [f"failed at {verdict.stage.value}: {reason_of(verdict)}"]
    evidence = verdict.evidence or Evidence()
    lines += _compiler_lines(evidence, files or {}, verdict.reason)
    lines += [*failing_case(verdict), *(line for line in contrast_lines(evidence) if line not in told)]
    lines += [f"with constant contents, too: {tried.words}" for tried in evidence.tried if tried.contents][:1]
    if evidence.output is not None and evidence.output:
        lines.append(f"output number {evidence.output} (from 0)")
    lines += [fact.line for fact in wrong_elements(evidence, verdict.reason)]
    lines += [f"flag: {flag}" for flag in flags(c for c in verdict.conditions if not isinstance(c, WeakTask))]
    return lines


def _compiler_lines(evidence: Evidence, files: Mapping[str, str], reason: str) -> list[str]:
    first: dict[str, CompilerLine] = {}
    for line in evidence.compiler:
        first.setdefault(line.message, line)
    return [text for line in list(first.values())[:_COMPILER_LINES] if (text := _with_source(line, files, reason))]


def _with_source(line: CompilerLine, files: Mapping[str, str], reason: str) -> str:
    """The line's place, message and text; empty if the reason contains all of it."""
    text = files.get(line.file, "").splitlines()
    source_line = f": `{text[line.line - 1].strip()}`" if line.line and 0 < line.line <= len(text) else ""
    message = "" if line.message.rstrip(".") in reason else f": {line.message}"
    return f"{line.file}:{line.line or '?'}{message}{source_line}" if message or source_line else ""


def error_map(verdict: Verdict) -> str:
    """Where the output is wrong, with the scale; empty if nearly all of it is wrong, or every sign marks wrong
    elements, so that a map adds nothing."""
    evidence = verdict.evidence
    if evidence is None or (evidence.wrong_fraction or 0.0) > _NEARLY_ALL:
        return ""
    if not any("." in row for row in evidence.error_map):
        return ""
    if len(set(evidence.error_map)) == 1 < len(evidence.error_map):
        return ""  # only columns, which the reason names
    scale = ""
    if evidence.mapped is not None:
        rows, columns = evidence.mapped
        high, wide = len(evidence.error_map), len(evidence.error_map[0])
        has_leading = len(evidence.first_wrong or ()) > 2
        scale = (
            f": {counted(rows, 'row')}{' (of all leading dimensions together)' if has_leading else ''} by "
            f"{counted(columns, 'column')}; a line is {_several(rows, high, 'row')}, "
            f"a sign {_several(columns, wide, 'column')}"
        )
    title = f"Where the output is wrong{scale}. '.' all right, 'x' some wrong, 'n' some not finite."
    return "\n".join([title, *evidence.error_map])


def _several(count: int, signs: int, what: str) -> str:
    """The number of rows or columns that one sign represents."""
    return counted(count // signs, what) if count % signs == 0 else f"{count // signs} or {count // signs + 1} {what}s"


def log_end(verdict: Verdict) -> str:
    """The log's last lines, where compilers and tracebacks report the error; empty if the lines above contain it."""
    evidence = verdict.evidence
    if evidence is None or not evidence.log.strip() or evidence.compiler:
        return ""
    return "\n".join(evidence.log.strip()[-_LOG_CHARACTERS:].splitlines()[-_LOG_LINES:])
