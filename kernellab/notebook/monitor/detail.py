"""One candidate from near, and two side by side."""

from __future__ import annotations

import difflib

from kernellab.errors import EvolveError
from kernellab.evolve.records import Proposal
from kernellab.evolve.state import RunState
from kernellab.notebook.monitor.head import figures_of
from kernellab.notebook.monitor.protocol import Candidate, Comparison
from kernellab.notebook.monitor.rows import condition
from kernellab.notebook.views.headers import own_files
from kernellab.notebook.views.verdict import facts


def candidate(state: RunState, number: int) -> Candidate:
    """Raises EvolveError: there is none."""
    proposal, evaluation = known(state, number), state.evaluations.get(number)
    going = not state.status.ended
    return {
        "number": number, "sketch": proposal.sketch,
        "files": own_files(proposal.source) if proposal.source is not None else {}, "why": proposal.why,
        "inspirations": list(proposal.inspirations),
        "steps": [
            {"name": spent.step.value, "seconds": spent.seconds, "passed": spent.passed}
            for spent in (evaluation.spent if evaluation else ())
        ],
        "facts": [{"name": name, "text": text} for name, text in known_facts(state, number).items()],
        "can": {
            "protect": going and number not in state.protected, "drop": going and number not in state.dropped,
            "open": evaluation is not None,
        },
    }  # fmt: skip


def known(state: RunState, number: int) -> Proposal:
    """Raises EvolveError: there is none."""
    proposal = state.proposals.get(number)
    if proposal is None:
        raise EvolveError(f"There is no candidate {number}.", f"There are 0 to {len(state.proposals) - 1}.")
    return proposal


def known_facts(state: RunState, number: int) -> dict[str, str]:
    """Name and text of each figure: of the verdict where there is one, else of the rank and of the cost model."""
    proposal, evaluation = state.proposals[number], state.evaluations.get(number)
    verdict, score = state.verdicts.get(number), state.scores.get(number)
    rows = {"state": condition(state, number), "operator": proposal.operator}
    if verdict is not None:
        rows |= dict(facts(verdict))
    elif score is not None:
        rows |= {
            "time": f"{score.time.median_ms:.4g} ms",
            "speedup": f"{score.speedup:.2f}x eager [{score.low:.2f}, {score.high:.2f}], ranked {score.runs} times",
        }
    if evaluation is None:
        return rows
    if evaluation.modelled_ms:
        rows["by the cost model"] = f"{evaluation.modelled_ms:.4g} ms"
    if evaluation.place.technique:
        rows |= {
            "technique": evaluation.place.technique,
            "on chip": f"{evaluation.place.footprint:,} B",
            "stages": str(evaluation.place.stages),
            "intensity": f"{evaluation.place.intensity:.3g} flop/byte",
        }
    if evaluation.worker:
        rows["measured on"] = f"{evaluation.chip} ({evaluation.worker})"
    return rows


def comparison(state: RunState, a: int, b: int) -> Comparison:
    """Raises EvolveError: one of them is not there."""
    first, second = known(state, a), known(state, b)
    one, other = known_facts(state, a), known_facts(state, b)
    left, right = _texts(first), _texts(second)
    parts = [
        "\n".join(
            difflib.unified_diff(
                left.get(name, "").splitlines(), right.get(name, "").splitlines(),
                f"candidate {a}/{name}", f"candidate {b}/{name}", lineterm="",
            )
        )
        for name in dict.fromkeys([*left, *right])
        if left.get(name) != right.get(name)
    ]  # fmt: skip
    return {
        "a": a, "b": b, "verdict": _sentence(state, a, b),
        "rows": [
            {"name": name, "a": one.get(name, ""), "b": other.get(name, ""), "title": ""}
            for name in dict.fromkeys([*one, *other])
        ],
        "diff": "\n".join(parts),
    }  # fmt: skip


def _texts(proposal: Proposal) -> dict[str, str]:
    if proposal.source is None:
        return {"sketch": proposal.sketch}
    return own_files(proposal.source)


def _sentence(state: RunState, a: int, b: int) -> str:
    failed = [n for n in (a, b) if not state.alive(n)]
    if failed:
        names = " and ".join(f"candidate {n}" for n in failed)
        return f"{names.capitalize()} did not pass: only the texts can be compared."
    first, second = state.scores.get(a), state.scores.get(b)
    if first is None or second is None:
        return f"Candidate {a}: {figures_of(state, a)}; candidate {b}: {figures_of(state, b)}."
    # each ratio is paired with the reference in its own run, so that a change of load between the runs cancels
    ratio, low, high = second.speedup / first.speedup, second.low / first.high, second.high / first.low
    if low <= 1 <= high:
        return (
            f"No difference can be told between candidates {a} and {b}: {ratio:.2f} times (95 %: {low:.2f} to "
            f"{high:.2f})."
        )
    fast, slow = (b, a) if ratio >= 1 else (a, b)
    if ratio < 1:
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    return f"Candidate {fast} is {ratio:.2f} times as fast as candidate {slow} (95 %: {low:.2f} to {high:.2f})."
