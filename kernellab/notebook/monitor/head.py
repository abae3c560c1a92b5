"""What a glance at a run must tell, and what is known of it as a whole."""

from __future__ import annotations

from kernellab.errors import counted
from kernellab.evolve.policies import POLICIES
from kernellab.evolve.policies.map_elites import grid
from kernellab.evolve.records import Status
from kernellab.evolve.state import RunState
from kernellab.evolve.summary import summary
from kernellab.evolve.vary.memory import may_remember
from kernellab.models.budget import Budget
from kernellab.models.ledger import reported, tokens
from kernellab.notebook.monitor.follow import Follower
from kernellab.notebook.monitor.protocol import PROTOCOL, Cell, Figures, Head, Knob, Line, Round
from kernellab.notebook.monitor.rows import value
from kernellab.notebook.protocol import NamedText
from kernellab.options import Entry
from kernellab.options.search import CHANGEABLE, Knobs


def head(follower: Follower, works_here: bool, worker: str = "", message: str = "") -> Head:
    """``worker`` names another process that works on it."""
    state, run = follower.state, follower.run
    begun, knobs, best = state.begun, state.knobs, state.best()
    going = not state.status.ended
    done, used = len(state.evaluations), tokens(state.usage)
    return {
        "protocol": PROTOCOL, "run": run, "name": begun.name, "dsl": begun.dsl, "target": begun.chip or "",
        "status": state.status.value, "status_text": _status(state, works_here, worker), "reason": state.reason,
        "message": message, "measure": "speedup" if knobs.score == "rank" else "modelled", "policy": knobs.select,
        "works_here": works_here,
        "can": {
            "pause": state.status is Status.RUNNING, "resume": state.status is Status.PAUSED, "stop": going,
            "steer": going, "work": going and not works_here,
            "remember": may_remember(state),
        },
        "best": best, "best_text": figures_of(state, best), "first_text": _compared(state, best),
        "tied": state.tied(),
        "candidates": done, "waiting": len(state.proposals) - done, "round": state.round,
        "islands": [
            {
                # one that has migrated to it is counted where it came from
                "number": number, "size": sum(state.proposals[n].island == number for n in members),
                "frozen": number in state.frozen, "best": best_of(state, members),
            }
            for number, members in sorted(state.islands.items())
        ],
        "lines": lines(state), "improvements": [[at, number] for at, number in state.improvements],
        "suggestion": state.suggestion.text if state.suggestion and going else "",
        "began": begun.time + state.idle, "spent": round(state.spent, 1), "left": left(state),
        "tokens": reported(f"{used:,} tokens" if used else "", used, state.usage.untold),
    }  # fmt: skip


def left(state: RunState) -> float | None:
    """Seconds for what waits and the further rounds, at the pace of its work up to now; None before the first round and
    after the last, when verdicts come whose number is not known."""
    done = len(state.evaluations)
    if state.status.ended or not 0 < state.round <= state.knobs.rounds or not done:
        return None
    more = max(0, state.knobs.size - state.made[state.round]) + (state.knobs.rounds - state.round) * state.knobs.size
    return round(state.spent / done * (len(state.proposals) - done + more), 1)


def figures_of(state: RunState, number: int | None) -> str:
    """A candidate's figures as they are shown everywhere, "" for none."""
    if number is None:
        return ""
    verdict, score = state.verdicts.get(number), state.scores.get(number)
    if verdict is not None and verdict.text:
        return verdict.text
    if score is not None:
        return f"{score.speedup:.2f}x eager [{score.low:.2f}, {score.high:.2f}]"
    modelled = state.evaluations[number].modelled_ms if number in state.evaluations else None
    return f"{modelled:.4g} ms by the cost model" if modelled else ""


def lines(state: RunState) -> list[Line]:
    """Levels of eager, torch.compile and the bound, as speedups over eager; where a verdict knows them."""
    if state.knobs.score != "rank":
        return []
    levels: list[Line] = [{"name": "eager", "value": 1.0, "title": "the reference, run by PyTorch eager"}]
    verdict = next((state.verdicts[n] for n in reversed(state.verdicts) if state.verdicts[n].against("eager")), None)
    eager = verdict.against("eager") if verdict else None
    if verdict is None or eager is None:
        return levels
    eager_ms = eager.baseline_time.median_ms
    levels += [
        {
            "name": other.against, "value": eager_ms / other.baseline_time.median_ms,
            "title": f"{other.against}: {other.baseline_time.median_ms:.4g} ms next to eager's {eager_ms:.4g} ms",
        }
        for other in verdict.comparisons
        if other.baseline != "eager" and other.baseline_time.median_ms > 0
    ]  # fmt: skip
    if verdict.sol_ms and verdict.bound_share is not None:
        title = f"the task's speed-of-light bound: {verdict.sol_ms:.4g} ms next to eager's {eager_ms:.4g} ms"
        levels.append({"name": "bound", "value": eager_ms / verdict.sol_ms, "title": title})
    return levels


def figures(follower: Follower) -> Figures:
    state = follower.state
    totals = summary(follower.run, state)
    return {
        "rounds": [_round(follower, at, totals.rounds[at].evaluations) for at in range(len(state.rounds))],
        "steps": [
            {"name": name, "seen": step.seen, "refused": step.refused, "seconds": step.seconds}
            for name, step in totals.stages.items()
        ],
        "operators": [
            {
                "name": one.name, "tries": one.tries, "gain": one.gain, "seconds": one.seconds,
                "tokens": reported(f"{one.tokens:,}" if one.tokens else "", one.tokens, one.untold),
            }
            for one in totals.operators
        ],
        "cells": cells(state), "knobs": knobs_of(state.knobs), "ledger": ledger(state),
        "scratchpad": state.scratchpad, "direction": state.direction,
    }  # fmt: skip


def cells(state: RunState) -> list[Cell]:
    return [
        {"technique": technique, "footprint": footprint, "stages": stages, "intensity": intensity, "number": number}
        for (technique, footprint, stages, intensity), number in grid(state, list(state.islands)).items()
    ]


def knobs_of(knobs: Knobs) -> list[Knob]:
    return [
        {
            "name": name, "value": _shown(getattr(knobs, name)), "title": _title(entry),
            "options": list(POLICIES) if name == "select" else list(entry.choices),
        }
        for name, entry in CHANGEABLE.items()
    ]  # fmt: skip


def _title(entry: Entry) -> str:
    """The help, and what an empty value stands for."""
    return f"{entry.help}; empty: {entry.option.default}" if entry.option.default else entry.help


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def ledger(state: RunState) -> list[NamedText]:
    usage = state.usage
    spent = state.latest - state.begun.time
    rows = [
        ("wall clock", f"{spent / 60:.1f} min"),
        ("measuring", f"{state.device_seconds:.1f} s"),
        ("tokens", reported(f"{usage.input_tokens:,} in, {usage.output_tokens:,} out", tokens(usage), usage.untold)),
        ("exchanges with models", str(sum(state.exchanges.values()))),
        ("budget", _budget(state.knobs)),
        ("seed", str(state.knobs.seed)),
    ]
    return [
        {"name": name, "text": text}
        for name, text in (*rows, *state.doing.items(), *(("an agent", text) for text in state.notices))
    ]


def _budget(knobs: Knobs) -> str:
    """The limits; of time, with what may come after them: the wall clock then shows more."""
    limits = Budget.parse(knobs.budget).limits
    timed = limits.minutes is not None or limits.gpu_s is not None
    return f"{limits}; the verdict on the leader comes after it" if timed else str(limits) or "none"


def _round(follower: Follower, at: int, evaluations: int) -> Round:
    end = follower.state.rounds[at]
    return {
        "round": end.round, "evaluations": evaluations, "after": follower.round_ends[at], "best": end.best,
        "value": value(follower.state, end.best) if end.best is not None else None,
        "text": figures_of(follower.state, end.best), "plan": end.plan.text, "author": end.plan.author.value,
        "prefer": list(end.plan.prefer),
    }  # fmt: skip


def _status(state: RunState, works_here: bool, worker: str) -> str:
    if state.status.ended:
        return state.status.value
    where = "" if works_here else ", in another process" if worker else ", with no process at work on it"
    at = "seeds" if state.round == 0 else f"round {state.round} of {state.knobs.rounds}"
    if state.round > state.knobs.rounds:
        at = "timing the best ones"
    waiting = len(state.proposals) - len(state.evaluations)
    words = f", {waiting} of them waiting" if waiting else ""
    is_worked_on = state.status is Status.RUNNING and bool(works_here or worker)
    if state.judges_leaders and is_worked_on and state.round <= state.knobs.rounds:
        words = ", verifying the best of them"
    return f"{state.status.value}{where}: {at}, {counted(len(state.proposals), 'candidate')}{words}"


def _first(state: RunState) -> int | None:
    return next((n for n in state.proposals if state.alive(n) and not state.proposals[n].parents), None)


def _compared(state: RunState, best: int | None) -> str:
    """The first design's figures, or that the best is the first design."""
    first, paired = _first(state), state.pairing()
    over = paired.comparison if paired else None
    if best is not None and best == first:
        # who ranked higher at another minute is not the best: this is where one reads why
        if paired is None or over is None:
            return "it is the first design"
        timed = f"{paired.number} in turn with it {over.low:.2f}x to {over.high:.2f}x as fast"
        return f"it is the first design: none is certainly faster, {timed}"
    return f"first design {figures_of(state, first)}" if figures_of(state, first) else ""


def best_of(state: RunState, members: list[int]) -> int | None:
    """The run's best where it is one of them, then who is verified, then who is fastest as ranked."""
    best = state.best()
    living = (n for n in members if state.alive(n))
    return max(living, key=lambda n: (n == best, state.clean(n), state.worth(n), -n), default=None)
