"""Results as JUnit's XML, as one JSON object and as a summary in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from kernellab.ci.check import Result, State

#: figures of the history that the summary shows
_SHOWN = 6


def junit(results: Sequence[Result]) -> str:
    """A test suite with a case for each kernel: wrong, slow and broken ones are failures, unchecked ones skipped."""
    counts = Counter(r.state for r in results)
    suite = ElementTree.Element(
        "testsuite", name="kernellab check", tests=str(len(results)),
        failures=str(sum(n for state, n in counts.items() if state.fails)), errors="0",
        skipped=str(counts[State.UNCHECKED]), time=f"{sum(r.seconds for r in results):.3f}",
    )  # fmt: skip
    for r in results:
        case = ElementTree.SubElement(suite, "testcase", classname=r.kind, name=_xml(r.name), time=f"{r.seconds:.3f}")
        if r.state is State.UNCHECKED:
            ElementTree.SubElement(case, "skipped", message=_xml(r.reason))
        elif r.state.fails:
            ElementTree.SubElement(case, "failure", type=r.state.value, message=_xml(r.reason)).text = _xml(r.line)
        ElementTree.SubElement(case, "system-out").text = _xml(r.line)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def facts(results: Sequence[Result]) -> dict[str, Any]:
    """For one JSON object: counts by state, and every result."""
    return {
        "passed": not any(r.state.fails for r in results) and checked(results) > 0,
        "checked": checked(results),
        "counts": {state.value: n for state, n in Counter(r.state for r in results).items()},
        "kernels": [{**r.model_dump(mode="json"), "speed": r.speed, "line": r.line} for r in results],
    }


def checked(results: Sequence[Result]) -> int:
    """Kernels that were looked at: all but those that this machine cannot check."""
    return sum(r.state is not State.UNCHECKED for r in results)


def markdown(results: Sequence[Result]) -> str:
    """A table for a pull request or a job's summary; the history is that of the lock, the oldest first."""
    failed = sum(r.state.fails for r in results)
    machines = sorted({r.machine for r in results if r.machine})
    lines = [f"## Kernels: {checked(results)} checked, {failed} failed", ""]
    lines += [f"Speedups over eager with 95 % intervals, on {'; '.join(machines)}.", ""] if machines else []
    lines += ["| kernel | result | now | locked | history |", "|---|---|---|---|---|"]
    for r in results:
        history = " → ".join(f"{f.speedup:.2f}" for f in r.history[-_SHOWN:])
        cells = (f"`{r.name}`", f"{'**' * r.state.fails}{r.state.value}{'**' * r.state.fails}",
                 r.speed, r.locked.text if r.locked else "", history)  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    told = [r for r in results if r.state is not State.PASSED or r.not_checked]
    lines += ["", *(f"- {' '.join(r.line.split())}" for r in told)] if told else []
    return "\n".join(lines) + "\n"


def _xml(text: str) -> str:
    """``text`` without the characters that XML has no spelling for."""
    return "".join(c for c in text if c in "\t\n" or " " <= c < "\ud800" or "\udfff" < c < "\ufffe" or c > "\uffff")
