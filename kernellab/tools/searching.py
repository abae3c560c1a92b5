"""Tools of evolutionary searches: status, lineage, elites, a candidate, injecting one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from kernellab.records import Author
from kernellab.tools.context import Context
from kernellab.tools.records import MATERIAL, Page, Request, Result, Rounded, Sketch, ToolError
from kernellab.tools.results.fitting import page_of
from kernellab.tools.tool import tool

if TYPE_CHECKING:
    from kernellab.evolve.run import Run

_RUN = "A search's id, or its task's name."
#: seconds that search_inject waits for whoever runs the search to take a sketch
_PATIENCE = 5.0


class RunRequest(Request):
    run: str = Field(description=_RUN)


class Elite(BaseModel):
    number: int
    island: int
    operator: str
    parents: list[int]
    why: str
    verified: bool
    speedup: Rounded | None = Field(description="Over eager: of the verdict, where there is one.")


class RunResult(Result):
    status: str
    evaluations: int
    best: int | None
    elites: list[Elite]
    injected: list[str] = Field(
        default_factory=list, description="Each candidate that a person or an agent put in, and what became of it."
    )
    scratchpad: str = Field(default="", description="What the Analyst plans.")


@tool()
def search_status(context: Context, request: RunRequest) -> RunResult:
    """The state of a search: how far it is, the best candidates of each island, the Analyst's plan."""
    run = _run(context, request.run)
    state = run.state
    numbers = [n for island in sorted({p.island for p in state.proposals.values()}) for n in state.elites(island)[:3]]
    return RunResult(
        summary=f"{run.id}: {state.status.value}, {len(state.evaluations)} of {len(state.proposals)} candidates "
        "evaluated.",
        next=f"search_lineage shows how a candidate came about; search_inject adds a sketch. {MATERIAL}",
        status=state.status.value,
        evaluations=len(state.evaluations),
        best=state.best(),
        elites=[_elite(run, n) for n in numbers[:12]],
        injected=[_fate(run, n) for n, p in state.proposals.items() if p.injected][-12:],
        scratchpad=state.plan.text[:2000],
    )


def _elite(run: Run, number: int) -> Elite:
    proposal = run.state.proposals[number]
    verdict = run.state.verdicts.get(number)
    return Elite(
        number=number, island=proposal.island, operator=proposal.operator, parents=list(proposal.parents),
        why=proposal.why[:300], verified=verdict is not None and verdict.passed,
        speedup=verdict.speedup if verdict is not None else None,
    )  # fmt: skip


def _fate(run: Run, number: int) -> str:
    """What became of a candidate, in a sentence."""
    from kernellab.evolve.records import Step

    proposal, found = run.state.proposals[number], run.state.evaluations.get(number)
    by = f"Candidate {number}, put in by {'a person' if proposal.author is Author.HUMAN else 'an agent'}"
    if found is None:
        return f"{by}: it waits for its turn."
    if found.same_as is not None:
        return f"{by}: it repeats candidate {found.same_as}."
    verdict = run.state.verdicts.get(number)
    if verdict is not None and verdict.passed:
        return f"{by}: verified, {verdict.speedup:.2f}x eager." if verdict.speedup else f"{by}: verified."
    if found.passed and verdict is None:
        return (
            f"{by}: ranked, {found.score.speedup:.2f}x eager." if found.score else f"{by}: passed {found.step.value}."
        )
    step = Step.VERIFY if found.passed else found.step
    # what a judge's case was, only the judge's own tools tell
    told = step not in (Step.RANK, Step.VERIFY) and found.reason
    return f"{by}: failed at {step.value}" + (f": {found.reason}" if told else "; verify_source shows why.")


class CandidateRequest(RunRequest):
    number: int
    page: int = Field(default=1, ge=1)


class LineageResult(Result):
    line: list[Elite] = Field(description="From the first ancestor to the candidate.")
    sketch: Page


@tool()
def search_lineage(context: Context, request: CandidateRequest) -> LineageResult:
    """A candidate's ancestors, with the change that each made, and its sketch."""
    run = _run(context, request.run)
    if request.number not in run.state.proposals:
        raise ToolError(
            f"There is no candidate {request.number} in {run.id}.", f"It has {len(run.state.proposals)}, from 0 or 1."
        )
    line = [*reversed(run.state.lineage(request.number)), request.number]
    proposal = run.state.proposals[request.number]
    text = proposal.sketch or "\n".join((proposal.source.files if proposal.source else {}).values())
    return LineageResult(
        summary=f"Candidate {request.number}: {len(line)} in its line.",
        next=MATERIAL,
        line=[_elite(run, n) for n in line][-20:],
        sketch=page_of(text, request.page),
    )


class InjectRequest(RunRequest):
    sketch: Sketch
    island: int = 0
    why: str = Field(default="", description="The sentence that the change is meant by.")


@tool(changes=True)
def search_inject(context: Context, request: InjectRequest) -> RunResult:
    """Put a sketch among the candidates of a search; it is checked, gated and ranked as every other."""
    run = _run(context, request.run)
    known = set(run.state.proposals)
    with context.counted():
        run.inject(sketch=request.sketch, island=request.island, why=request.why, author=Author.MODEL)
    end = time.monotonic() + _PATIENCE
    while not (mine := _put(run, request.sketch, known)) and time.monotonic() < end and not context.cancel.wait(0.05):
        pass
    found = search_status(context, RunRequest(run=request.run))
    taken = _fate(run, mine[0]) if mine else "The sketch is legal and waits until the search takes it up."
    following = f"search_status tells what became of it, under injected. {MATERIAL}"
    return found.model_copy(update={"summary": f"{taken} {found.summary}", "next": following})


def _put(run: Run, sketch: str, known: set[int]) -> list[int]:
    """Candidates of that sketch that an agent put in and that were not ``known``."""
    return [n for n, p in run.state.proposals.items() if n not in known and p.injected and p.sketch == sketch]


def _run(context: Context, name: str) -> Run:
    from kernellab.evolve.begin import open_run

    if context.bound is not None and context.bound.name not in (name, name.rpartition("-")[0]):
        raise ToolError(f"{name!r} is no search of this turn's task.", f"The task's name is {context.bound.name}.")
    return open_run(name, context.workspace)
