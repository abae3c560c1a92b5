"""A dry run of a suite: tasks are read, audited, designed by the rules, gated and lowered, but not built or timed.

It shows in seconds for each task what the rules can do: which tasks are refused, and the reason."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

from kernellab.bench.rows import Row
from kernellab.conditions import LibraryShare
from kernellab.errors import KernellabError, SketchError
from kernellab.records import GateState
from kernellab.target import Target
from kernellab.task import Task

#: the stages in order; a row's ``stage`` is where the task stopped, "" if it completed all
STAGES = ("read", "design", "gate", "lower")
#: most designs of a task that are gated before it counts as wrong; chosen, not measured
_MOST_GATED = 3


def dry_row(name: str, category: str, dynamic: bool, task: Task, target: Target) -> Row:
    """Return the row of ``task`` by the rules alone. ``passed``: a design is right at the gate and is lowered."""
    from kernellab.agents.briefs import CodeBrief, DesignBrief
    from kernellab.agents.rules.coder import RulesCoder
    from kernellab.agents.rules.designer import RulesDesigner
    from kernellab.sketch.gate import gate
    from kernellab.task.audit import admit

    began = time.perf_counter()

    def row(stage: str, reason: str, proves: bool = True, note: str = "") -> Row:
        dry = Row.of(name, category, dynamic, None, 0, time.perf_counter() - began, reason)
        return dry.model_copy(update={"passed": not stage, "stage": stage, "discriminating": proves, "note": note})

    try:
        flags = [flag for flag in admit(task) if flag.rule != "not-audited"]
    except KernellabError as error:
        return row("read", str(error))
    proves, note = not flags, "; ".join(flag.reason for flag in flags)
    try:
        designs = RulesDesigner().designs(DesignBrief(task, target))
    except KernellabError as error:
        return row("design", str(error), proves, note)
    stage, reason = "design", "The rules have no schedule for it."
    for reply in islice(designs, _MOST_GATED):
        stage = "gate"
        try:
            gated = gate(reply.sketch, task, chip=target.chip, constexpr=dict(reply.constexpr))
        except SketchError as error:
            reason = str(error)
            continue
        if gated.state is not GateState.RIGHT:
            reason = f"{gated.state.value}: {gated.reason}"
            continue
        try:
            RulesCoder().code(CodeBrief(task, target, reply.sketch, constexpr=dict(reply.constexpr)))
        except KernellabError as error:
            stage, reason = "lower", str(error)
            continue
        done = row("", "", proves, note)
        return done.model_copy(update={"conditions": (LibraryShare(),)}) if reply.library_calls else done
    return row(stage, reason, proves, note)


def table(rows: Sequence[Row], heading: str) -> str:
    """Return Markdown: the number of tasks at each stage by category, then each incomplete task with its reason."""
    lines = [
        f"# {heading}", "",
        "| category | tasks | read | not passed by a trivial kernel | designed | right at the gate | lowered | "
        "of these with calls of the framework |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(c, [r for r in rows if r.category == c]) for c in sorted({r.category for r in rows})),
        _line("**all**", rows), "",
    ]  # fmt: skip
    stopped = [r for r in rows if not r.passed]
    lines += ["Stopped:", "", *(f"- {r.category}/{r.shown} at {r.stage or 'read'}: {r.reason}" for r in stopped), ""]
    weak = [r for r in rows if not r.discriminating]
    return "\n".join([*lines, "Trivial:", "", *(f"- {r.category}/{r.shown}: {r.note}" for r in weak), ""])


def _line(category: str, rows: Sequence[Row]) -> str:
    # without a stage: the worker died or was stopped
    reached = [len(STAGES) if r.passed else STAGES.index(r.stage or STAGES[0]) for r in rows]
    counts = [sum(n > STAGES.index(stage) for n in reached) for stage in STAGES]
    # those that no trivial kernel passes
    telling = sum(n > 0 and r.discriminating for n, r in zip(reached, rows, strict=True))
    composed = sum(r.passed and r.composed for r in rows)
    read, designed, right, lowered = counts
    return f"| {category} | {len(rows)} | {read} | {telling} | {designed} | {right} | {lowered} | {composed} |"
