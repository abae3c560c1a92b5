"""How large is a journal of many candidates of six exchanges each, and how much of that are prompts said before?

    python -m tests.agents.journal_size [--candidates 400] [--of 5000]

The prompts are those of the roles for built-in tasks, with the documents; each candidate has a sketch and a source of
its own, a verdict that fails and one that passes. Prints the file's size at a half and at all of ``--candidates``, what
the same lines take whole, and the size that ``--of`` candidates come to at that rate.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from kernellab.agents.briefs import Attempt, CodeBrief, DesignBrief, RouteBrief
from kernellab.agents.model import Options
from kernellab.agents.model.prompts.assembly import Prompt
from kernellab.agents.model.prompts.code import code_prompt
from kernellab.agents.model.prompts.design import design_prompt
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.model.prompts.route import route_prompt
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.conductor import RulesConductor
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.bench.suites.load import load_suite
from kernellab.knowledge import Knowledge
from kernellab.records import (
    Author,
    Candidate,
    ChatMessage,
    Evidence,
    Exchange,
    GateResult,
    GateState,
    Role,
    Source,
    Stage,
    Timing,
    Trust,
    Usage,
    Verdict,
)
from kernellab.session.record.journal import Journal
from kernellab.session.record.records import Created, Event, Exchanged, Turn, TurnEnded, TurnStarted
from kernellab.task import Task, load_task
from kernellab.task.sample.inputs import Family
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.stages.evidence import reproduction
from tests.agents.model_parts import CPU

ONLY = "^(softmax|layer_norm|rms_norm|matmul|gelu|cross_entropy|conv2d|attention)"


@dataclass(frozen=True)
class Seed:
    """A task with the rules' sketch and source of it, from which candidates are made."""

    task: Task
    sketch: str
    source: Source


def seeds() -> list[Seed]:
    found = []
    for entry in load_suite("builtin", ONLY)[:8]:
        task = load_task(entry.text, entry.name)
        reply = RulesDesigner().design(DesignBrief(task=task, target=CPU))
        code = RulesCoder().code(CodeBrief(task=task, target=CPU, sketch=reply.sketch, constexpr=reply.constexpr))
        found.append(Seed(task, reply.sketch, code.source))
    return found


def varied(text: str, chance: random.Random) -> str:
    """``text`` with three lines changed, as revisions change them."""
    lines = text.splitlines()
    for _ in range(3):
        at = chance.randrange(len(lines))
        lines[at] += f"  // {chance.random():.6f}"
    return "\n".join(lines) + "\n"


def exchange(role: Role, prompt: Prompt, reply: str, more: tuple[ChatMessage, ...] = ()) -> Exchange:
    return Exchange(
        id=f"{random.getrandbits(128):032x}", role=role, purpose=prompt.purpose or "route", model="a-model",
        messages=(*prompt.messages, *more), sections=prompt.sections, reply=reply, started=time.time(),
        usage=Usage(input_tokens=4000, output_tokens=900, seconds=20.0),
    )  # fmt: skip


def candidate_events(seed: Seed, number: int, library: Library, chance: random.Random) -> list[Event]:
    """A design, its repair, code that fails, its fix, a route and a last edit; each turn begun and ended."""
    task, options = seed.task, Options()
    sketch = varied(seed.sketch, chance).replace("//", "#")
    files = dict(seed.source.files)
    main = next(name for name in files if name.endswith(".cpp"))
    bad = seed.source.model_copy(update={"files": {**files, main: varied(files[main], chance)}})
    good = seed.source.model_copy(update={"files": {**files, main: varied(bad.files[main], chance)}})
    case = Case(task, tuple(task.module().default_sizes().items()), Family.OWN, chance.getrandbits(31))
    wrong = Verdict(
        passed=False, stage=Stage.CORRECT, reason=f"{chance.randrange(9999)} of 16384 elements are wrong.",
        evidence=Evidence(
            signature="wrong-values", sizes=dict(task.module().default_sizes()), family="inputs", seed=case.seed,
            first_wrong=[0] * len(task.outputs[0].shape), got=0.5, want=chance.random(),
            reproduction=reproduction(bad, case),
            error_map=["".join(chance.choice(".x") for _ in range(48)) for _ in range(16)],
        ),
    )  # fmt: skip
    median = chance.uniform(0.5, 2.0)
    timing = Timing(median_ms=median, q1_ms=0.99 * median, q3_ms=1.02 * median, samples=40)
    right = Verdict(passed=True, stage=Stage.FAST, reason="1.8x eager.", trust=Trust.T2, time=timing)
    gate = GateResult(state=GateState.RIGHT, reason="Right on 8 small cases.", cases=8)
    failed = Candidate(id=f"c{number}", source=bad, sketch=sketch)
    passed = Candidate(id=f"c{number}b", source=good, sketch=sketch, parent=failed.id)
    design = design_prompt(DesignBrief(task=task, target=CPU), library, options)
    code = CodeBrief(task=task, target=CPU, sketch=sketch)
    tried = (Attempt(failed, sketch, gate, wrong),)
    mend = replace(code, previous=bad, previous_sketch=sketch, history=tried)
    better = replace(mend, previous=good, history=(*tried, Attempt(passed, sketch, gate, right)))
    route = RouteBrief(task=task, target=CPU, sketch=sketch, gate=gate, candidate=failed, verdict=wrong, history=tried)
    told = ChatMessage(role="assistant", content=f"```sketch\n{sketch}```")
    said = {
        Role.DESIGNER: (
            exchange(Role.DESIGNER, design, told.content),
            exchange(Role.DESIGNER, design, told.content, (told, ChatMessage(role="user", content="line 7: wrong"))),
        ),
        Role.CODER: tuple(
            exchange(Role.CODER, code_prompt(b, library, options), f"FILE: {main}\n```cpp\n{text}```")
            for b, text in ((code, bad.files[main]), (mend, good.files[main]), (better, varied(files[main], chance)))
        ),
        Role.CONDUCTOR: (
            exchange(Role.CONDUCTOR, route_prompt(route, RulesConductor().route(route), library, options), "{}"),
        ),
    }  # fmt: skip
    events: list[Event] = []
    works = (
        (Role.DESIGNER, {"sketch": sketch, "gate": gate}), (Role.CODER, {"candidate": failed}),
        (Role.VERIFIER, {"verdict": wrong}), (Role.CONDUCTOR, {}), (Role.CODER, {"candidate": passed}),
        (Role.VERIFIER, {"verdict": right}),
    )  # fmt: skip
    for place, (role, fields) in enumerate(works):
        turn = Turn(id=f"t{6 * number + place}", number=6 * number + place, parent=None, role=role, author=Author.MODEL)
        asked = said.get(role, ()) if place < 4 else ()
        exchanged = [Exchanged(turn=turn.id, exchange=each) for each in asked]
        events += [TurnStarted(turn=turn), *exchanged, TurnEnded(turn=turn.model_copy(update=fields))]
    return events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=400)
    parser.add_argument("--of", type=int, default=5000)
    given = parser.parse_args()
    random.seed(0)
    library, chance, starts = Library(Knowledge.load(CPU, None)), random.Random(0), seeds()
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder))
        journal.acquire("s", "me")
        journal.append("s", "me", [Created(name="op", text="x", key="k")])
        whole = exchanges = 0
        sizes = []
        for number in range(given.candidates):
            events = candidate_events(starts[number % len(starts)], number, library, chance)
            whole += sum(len(event.model_dump_json()) for event in events)
            exchanges += sum(isinstance(event, Exchanged) for event in events)
            journal.append("s", "me", events)
            if number + 1 in (given.candidates // 2, given.candidates):
                sizes.append((number + 1, _bytes(journal)))
        began = time.perf_counter()
        read = len(journal.read("s"))
        seconds = time.perf_counter() - began
    (half, before), (count, after) = sizes
    rate = (after - before) / (count - half)
    print(f"{count} candidates of {exchanges / count:.0f} exchanges on {len(starts)} tasks: {after / 1e6:.1f} MB")
    print(f"the same lines whole: {whole / 1e6:.1f} MB; {rate / 1e3:.1f} kB a candidate from the {half}th on")
    print(f"{given.of} candidates: {(after + (given.of - count) * rate) / 1e6:.0f} MB")
    print(f"{read} events are read in {seconds:.1f} s")


def _bytes(journal: Journal) -> int:
    """Of the file, with what its write-ahead log still holds brought in."""
    with closing(sqlite3.connect(journal.path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return journal.path.stat().st_size


if __name__ == "__main__":
    main()
