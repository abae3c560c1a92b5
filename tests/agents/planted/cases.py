"""The planted faults as briefs for a Conductor: each goes through the real sketch gate and the real Verifier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernellab.agents.briefs import CodeBrief, DesignBrief, RouteBrief
from kernellab.agents.coder import RulesCoder
from kernellab.agents.designer import RulesDesigner
from kernellab.records import Author, Candidate, GateResult, GateState, RouteKind, Source, Trust, Verdict
from kernellab.sketch.gate import gate
from kernellab.target import Target
from kernellab.task import Task, load_task
from kernellab.verifier import Verifier, VerifyOptions
from tests.agents.planted.lowerings import LOWERINGS, Lowering

HERE = Path(__file__).resolve().parent
TASKS = HERE.parents[2] / "kernellab" / "bench" / "builtin"
#: correctness in full, timing as short as it gets
OPTIONS = VerifyOptions(level=Trust.T2, budget=0.05)


@dataclass(frozen=True)
class Planted:
    """One fault: ``owner`` is the role that has to mend it. A wrong sketch has no ``lowering``, wrong code has."""

    name: str
    task: str
    fault: str
    owner: RouteKind
    sketch: str = ""
    lowering: Lowering | None = None


def planted() -> list[Planted]:
    """The twenty wrong sketches and the twenty wrong lowerings."""
    found = []
    for path in sorted(HERE.glob("sketches/*.sketch")):
        head = dict(line[2:].split(": ", 1) for line in path.read_text().splitlines()[:2])
        found.append(Planted(path.stem, head["task"], head["fault"], RouteKind.DESIGNER, sketch=path.read_text()))
    found += [Planted(w.name, w.task, w.fault, RouteKind.CODER, lowering=w) for w in LOWERINGS]
    return found


def brief_of(fault: Planted, target: Target, verifier: Verifier | None) -> RouteBrief | None:
    """What a session would hand its Conductor for ``fault``; None when it needs a Verifier and there is none.

    A wrong sketch that the gate refuses never becomes code. One that it lets through is lowered and judged.
    """
    task = load_task(TASKS / f"{fault.task}.py")
    sketch = fault.sketch or RulesDesigner().design(DesignBrief(task, target)).sketch
    found = gate(sketch, task, chip=target.chip)
    if fault.lowering is None and found.state is GateState.WRONG:
        return _brief(task, target, sketch, found, None, None)
    if verifier is None:
        return None
    source = RulesCoder().code(CodeBrief(task, target, sketch)).source
    author = Author.RULES
    if fault.lowering is not None:
        source, author = edited(source, fault.lowering), Author.MODEL
    verdict = verifier.verify(task, source, target, options=OPTIONS)
    candidate = Candidate(id="c1", source=source, sketch=sketch, author=author)
    return _brief(task, target, sketch, found, candidate, verdict)


def _brief(
    task: Task, target: Target, sketch: str, found: GateResult, candidate: Candidate | None, verdict: Verdict | None
) -> RouteBrief:
    return RouteBrief(task, target, sketch, found, candidate, verdict, turns_left=9)


def edited(source: Source, fault: Lowering) -> Source:
    """``source`` with the fault in it. Raises ValueError when the lowering no longer writes what it replaces."""
    text = source.files[fault.file]
    if fault.old not in text:
        raise ValueError(f"{fault.name}: the lowered code has no {fault.old!r} any more; plant the fault anew.")
    files = {**source.files, fault.file: text.replace(fault.old, fault.new, -1 if fault.everywhere else 1)}
    return source.model_copy(update={"files": files, "origin": Author.MODEL})


def described(brief: RouteBrief) -> str:
    """What was seen of the fault, in a few words."""
    if brief.verdict is None:
        return "gate: " + (brief.gate.reason if brief.gate else "")
    signature = brief.verdict.evidence.signature if brief.verdict.evidence else ""
    passed = "passed" if brief.verdict.passed else f"{brief.verdict.stage.value} {signature or ''}"
    return f"gate {brief.gate.state.value if brief.gate else '?'}; verifier: {passed}"


def chosen(names: Iterator[str] | tuple[str, ...]) -> list[Planted]:
    """The planted faults whose names hold one of ``names``; all for none."""
    wanted = tuple(names)
    return [p for p in planted() if not wanted or any(word in p.name for word in wanted)]
