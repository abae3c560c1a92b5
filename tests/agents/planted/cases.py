"""The planted faults as briefs for a Conductor, from what the real sketch gate and the real Verifier say of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernellab.agents.briefs import CodeBrief, DesignBrief, RouteBrief
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.records import Author, Candidate, GateResult, GateState, Record, RouteKind, Source, Trust, Verdict
from kernellab.sketch.gate import gate
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from kernellab.verifier import Verifier, VerifyOptions
from tests.agents.planted.lowerings import LOWERINGS, Lowering
from tests.agents.planted.second import SECOND, SKETCHINGS, Sketching
from tests.agents.planted.third import THIRD

HERE = Path(__file__).resolve().parent
TASKS = HERE.parents[2] / "kernellab" / "bench" / "builtin"
EVIDENCE = HERE / "evidence.json"
TARGET = Target(
    "cpp", Backend.CPU,
    Chip("a CPU", "cpu", 2, simd_bits=512, l1_bytes=48 << 10, l2_bytes=1 << 21, bandwidth=30e9,
         peak_flops={"f32": 2e11}),
)  # fmt: skip
#: correctness in full, timing as short as it gets
OPTIONS = VerifyOptions(level=Trust.T2, budget=0.05)


@dataclass(frozen=True)
class Planted:
    """One fault: ``owner`` is the role that has to correct it. A wrong sketch has no ``lowering``, wrong code has.

    A wrong sketch is a whole one, or an edit of the rules' own.
    """

    name: str
    task: str
    fault: str
    owner: RouteKind
    sketch: str = ""
    lowering: Lowering | None = None
    sketching: Sketching | None = None


@dataclass(frozen=True)
class Seen:
    """What the gate and, where it let the sketch through, the Verifier said of one fault."""

    gate: GateResult
    verdict: Verdict | None = None


def planted() -> list[Planted]:
    """The twenty wrong sketches and the twenty wrong lowerings."""
    found = []
    for path in sorted(HERE.glob("sketches/*.sketch")):
        lines = path.read_text().splitlines(keepends=True)
        head = dict(line[2:].rstrip().split(": ", 1) for line in lines[:2])
        # what the file says of its fault is not for the role to read, nor that it said something
        sketch = "".join(lines[2:])
        found.append(Planted(path.stem, head["task"], head["fault"], RouteKind.DESIGNER, sketch=sketch))
    found += [Planted(w.name, w.task, w.fault, RouteKind.CODER, lowering=w) for w in LOWERINGS]
    return found


def second() -> list[Planted]:
    """Forty others, of operators that the first forty have not."""
    wrong = [Planted(w.name, w.task, w.fault, RouteKind.DESIGNER, sketching=w) for w in SKETCHINGS]
    return wrong + [Planted(w.name, w.task, w.fault, RouteKind.CODER, lowering=w) for w in SECOND]


def third() -> list[Planted]:
    """Forty of operators that neither has; the wrong sketches were written from the language's documents alone."""
    return [wrong for wrong, _ in by_documents()] + [
        Planted(w.name, w.task, w.fault, RouteKind.CODER, lowering=w) for w in THIRD
    ]


def by_documents() -> list[tuple[Planted, str]]:
    """The third set's wrong sketches, each with the same sketch without its fault.

    A file has the right sketch, and above it which of its words are replaced by which; a role reads neither.
    """
    found = []
    for path in sorted(HERE.glob("sketches/third/*.sketch")):
        lines = path.read_text().splitlines(keepends=True)
        head = dict(line[2:].rstrip().split(": ", 1) for line in lines[:4])
        right = "".join(lines[4:])
        wrong = right.replace(head["right"], head["wrong"])
        found.append((Planted(path.stem, head["task"], head["fault"], RouteKind.DESIGNER, sketch=wrong), right))
    return found


#: each set of faults by its name, with the file of what was seen of them
SETS: dict[str, tuple[Callable[[], list[Planted]], Path]] = {
    "first": (planted, EVIDENCE),
    "second": (second, HERE / "second.json"),
    "third": (third, HERE / "third.json"),
}


def chosen(names: Iterable[str], of: str = "first") -> list[Planted]:
    """The faults of a set whose names hold one of ``names``; all for none."""
    wanted = tuple(names)
    return [p for p in SETS[of][0]() if not wanted or any(word in p.name for word in wanted)]


def look(fault: Planted, verifier: Verifier | None) -> Seen | None:
    """Sends a fault through the gate and the Verifier; None when it needs a Verifier and there is none.

    A wrong sketch that the gate refuses never becomes code. One that it lets through is lowered and judged.
    """
    task, sketch = _stated(fault)
    found = gate(sketch, task, chip=TARGET.chip)
    if fault.lowering is None and found.state is GateState.WRONG:
        return Seen(found)
    if verifier is None:
        return None
    return Seen(found, verifier.verify(task, _source(fault, task, sketch), TARGET, options=OPTIONS))


def brief_of(fault: Planted, seen: Seen) -> RouteBrief:
    """What a session would hand its Conductor."""
    task, sketch = _stated(fault)
    candidate = None
    if seen.verdict is not None:
        author = Author.MODEL if fault.lowering else Author.RULES
        candidate = Candidate(id="c1", source=_source(fault, task, sketch), sketch=sketch, author=author)
    return RouteBrief(task, TARGET, sketch, seen.gate, candidate, seen.verdict, turns_left=9)


def edited(source: Source, fault: Lowering) -> Source:
    """``source`` with the fault in it. Raises ValueError when the lowering no longer writes what it replaces."""
    text = source.files[fault.file]
    if fault.old not in text:
        raise ValueError(f"{fault.name}: the lowered code has no {fault.old!r} any more; plant the fault anew.")
    files = {**source.files, fault.file: text.replace(fault.old, fault.new, -1 if fault.everywhere else 1)}
    return source.model_copy(update={"files": files, "origin": Author.MODEL})


def read_evidence(path: Path = EVIDENCE) -> dict[str, Seen]:
    """What ``routing_accuracy.py --keep`` recorded: the same evidence again, with nothing built."""
    rows = json.loads(path.read_text())
    return {
        name: Seen(
            GateResult.model_validate(row["gate"]),
            Verdict.model_validate(row["verdict"]) if row["verdict"] else None,
        )
        for name, row in rows.items()
    }


def write_evidence(seen: dict[str, Seen], path: Path = EVIDENCE) -> None:
    """Without the cells that reproduce a failure and the machine that it was seen on: no Conductor reads them."""
    rows = {
        name: {"gate": _plain(s.gate), "verdict": s.verdict and _plain(s.verdict)} for name, s in sorted(seen.items())
    }
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _plain(record: Record) -> Any:
    return record.model_dump(
        mode="json", exclude_defaults=True, exclude={"evidence": {"reproduction"}, "environment": True}
    )


def described(seen: Seen) -> str:
    """What was seen of a fault, in a few words."""
    if seen.verdict is None:
        return f"gate: {seen.gate.reason}"
    signature = seen.verdict.evidence.signature if seen.verdict.evidence else ""
    said = "passed" if seen.verdict.passed else f"{seen.verdict.stage.value} {signature or ''}"
    return f"gate {seen.gate.state.value}; verifier: {said}"


def _stated(fault: Planted) -> tuple[Task, str]:
    task = load_task(TASKS / f"{fault.task}.py")
    if fault.sketch:
        return task, fault.sketch
    sketch = RulesDesigner().design(DesignBrief(task, TARGET)).sketch
    wrong = fault.sketching
    if wrong is None:
        return task, sketch
    if wrong.old not in sketch:
        raise ValueError(f"{fault.name}: the sketch has no {wrong.old!r} any more; plant the fault anew.")
    return task, sketch.replace(wrong.old, wrong.new, 1)


def _source(fault: Planted, task: Task, sketch: str) -> Source:
    source = RulesCoder().code(CodeBrief(task, TARGET, sketch)).source
    return edited(source, fault.lowering) if fault.lowering else source
