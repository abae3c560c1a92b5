"""How large is a journal of many candidates of six exchanges each, and how much of that are prompts said before?

    python -m tests.agents.journal_size [--candidates 400] [--of 5000] [--anew] [--only REGEX]

The prompts are those of the roles for built-in tasks, with the documents; each candidate is a session and has a sketch
and a source of its own, a verdict that fails and one that passes. They differ from others' of the task in a few lines,
as revisions do, or, with ``--anew``, in every name of their own, as if nobody had looked at another. Prints the file's
size at a half and at all of ``--candidates``, what the same lines take whole, and the size that ``--of`` candidates
come to at that rate.
"""

from __future__ import annotations

import argparse
import random
import re
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
from kernellab.models.exchanges import ChatMessage, Exchange, Usage
from kernellab.records import (
    Author,
    Candidate,
    Evidence,
    GateResult,
    GateState,
    Role,
    Source,
    Stage,
    Timing,
    Trust,
    Verdict,
)
from kernellab.session.record.events import Created, Event, Exchanged, TurnEnded, TurnStarted
from kernellab.session.record.journal import Journal
from kernellab.session.record.records import Turn
from kernellab.task import Task, load_task
from kernellab.task.sample.inputs import Family
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.stages.evidence import reproduction
from tests.agents.model_parts import CPU

#: as long as kernels are on average; ``--only attention`` takes the longest
ONLY = (
    "^(softmax/softmax|normalisation/layer_norm|matmul/linear_relu|pointwise/silu|loss/cross_entropy|scan/cumsum|"
    "convolution/conv2d|attention/causal)$"
)


@dataclass(frozen=True)
class Seed:
    """A task with the rules' sketch and source of it, from which candidates are made."""

    task: Task
    sketch: str
    source: Source


def seeds(only: str = ONLY) -> list[Seed]:
    found = []
    for entry in load_suite("builtin", only)[:8]:
        task = load_task(entry.text, entry.name)
        found.append(seed_of(task, RulesDesigner().design(DesignBrief(task=task, target=CPU)).sketch))
    return found


def seed_of(task: Task, sketch: str) -> Seed:
    return Seed(task, sketch, RulesCoder().code(CodeBrief(task=task, target=CPU, sketch=sketch)).source)


def varied(text: str, chance: random.Random) -> str:
    """``text`` with three lines changed, as revisions change them."""
    lines = text.splitlines()
    for _ in range(3):
        at = chance.randrange(len(lines))
        lines[at] += f"  // {chance.random():.6f}"
    return "\n".join(lines) + "\n"


def renamed(sketch: str, chance: random.Random) -> str:
    """``sketch`` with other names of its tiles and loops, which its code has too: few lines are another candidate's."""
    names = set(re.findall(r"-> (\w+)[,)]|^ *(\w+) = |\bfor (\w+) in ", sketch, re.MULTILINE))
    ending = f"_{chance.getrandbits(40):x}"
    for name in sorted(filter(None, (name for found in names for name in found))):
        sketch = re.sub(rf"\b{name}\b(?!=)", name + ending, sketch)
    return sketch


def exchange(role: Role, prompt: Prompt, reply: str, more: tuple[ChatMessage, ...] = ()) -> Exchange:
    return Exchange(
        id=f"{random.getrandbits(128):032x}", role=role, purpose=prompt.purpose or "route", model="a-model",
        messages=(*prompt.messages, *more), sections=prompt.sections, reply=reply, started=time.time(),
        usage=Usage(input_tokens=4000, output_tokens=900, seconds=20.0),
    )  # fmt: skip


def candidate_events(
    seed: Seed, number: int, library: Library, chance: random.Random, anew: bool = False
) -> list[Event]:
    """A design, its repair, code that fails, its fix, a route and a last edit; each turn begun and ended."""
    task, options = seed.task, Options()
    if anew:
        seed = seed_of(task, renamed(seed.sketch, chance))
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
    roles = dict.fromkeys((Role.DESIGNER, Role.CODER, Role.CONDUCTOR), "model")
    events: list[Event] = [Created(name=task.name, text=task.text, key=f"{number}", roles=roles)]
    works = (
        (Role.DESIGNER, {"sketch": sketch, "gate": gate}), (Role.CODER, {"candidate": failed}),
        (Role.VERIFIER, {"verdict": wrong}), (Role.CONDUCTOR, {}), (Role.CODER, {"candidate": passed}),
        (Role.VERIFIER, {"verdict": right}),
    )  # fmt: skip
    for place, (role, fields) in enumerate(works):
        turn = Turn(
            id=f"{number}t{place}",
            number=place + 1,
            parent=f"{number}t{place - 1}" if place else None,
            role=role,
            author=Author.MODEL,
        )
        asked = said.get(role, ()) if place < 4 else ()
        exchanged = [Exchanged(turn=turn.id, exchange=each) for each in asked]
        events += [TurnStarted(turn=turn), *exchanged, TurnEnded(turn=turn.model_copy(update=fields))]
    return events


@dataclass(frozen=True)
class Size:
    """Of a journal with ``candidates`` candidates: the file's bytes, and those of its lines if none shared anything."""

    candidates: int
    file: int
    whole: int
    exchanges: int


def written(journal: Journal, count: int, anew: bool = False, only: str = ONLY) -> tuple[Size, Size]:
    """What the journal of ``count`` candidates takes, at a half of them and at all."""
    random.seed(0)
    library, chance, starts = Library(Knowledge.load(CPU, None)), random.Random(0), seeds(only)
    whole = exchanges = 0
    sizes = []
    for number in range(count):
        events = candidate_events(starts[number % len(starts)], number, library, chance, anew)
        whole += sum(len(event.model_dump_json()) for event in events)
        exchanges += sum(isinstance(event, Exchanged) for event in events)
        journal.acquire(f"s{number}", "me")
        journal.append(f"s{number}", "me", events)
        journal.release(f"s{number}", "me")
        if number + 1 in (count // 2, count):
            sizes.append(Size(number + 1, _bytes(journal), whole, exchanges))
    return sizes[0], sizes[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=400)
    parser.add_argument("--of", type=int, default=5000)
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--only", default=ONLY, help="which built-in tasks, as a regular expression; the first eight")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder))
        half, size = written(journal, given.candidates, given.anew, given.only)
        began = time.perf_counter()
        read = sum(len(journal.read(session)) for session in journal.sessions())
        seconds = time.perf_counter() - began
    count = size.candidates
    rate = (size.file - half.file) / (count - half.candidates)
    print(f"{count} candidates of {size.exchanges / count:.0f} exchanges: {size.file / 1e6:.1f} MB")
    print(f"the same lines whole: {size.whole / 1e6:.1f} MB")
    print(f"{rate / 1e3:.1f} kB a candidate from the {half.candidates}th on")
    print(f"{given.of} candidates: {(size.file + (given.of - count) * rate) / 1e6:.0f} MB")
    print(f"{read} events are read in {seconds:.1f} s")


def _bytes(journal: Journal) -> int:
    """Of the file, with what its write-ahead log still holds brought in."""
    with closing(sqlite3.connect(journal.path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return journal.path.stat().st_size


if __name__ == "__main__":
    main()
