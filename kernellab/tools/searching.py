"""Tools of evolutionary searches: status, lineage, elites, a candidate, injecting one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from kernellab.records import Author
from kernellab.tools.tool import MATERIAL, Context, Page, Request, Result, Sketch, ToolError, page_of, tool

if TYPE_CHECKING:
    from kernellab.evolve.run import Run

_RUN = "A search's id, or its task's name."


class RunRequest(Request):
    run: str = Field(description=_RUN)


class Elite(BaseModel):
    number: int
    island: int
    operator: str
    parents: list[int]
    why: str
    verified: bool
    speedup: float | None = Field(description="Over eager: of the verdict, where there is one.")


class RunResult(Result):
    status: str
    evaluations: int
    best: int | None
    elites: list[Elite]
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
    context.count()
    run.inject(sketch=request.sketch, island=request.island, why=request.why, author=Author.MODEL)
    return search_status(context, RunRequest(run=request.run))


def _run(context: Context, name: str) -> Run:
    from kernellab.evolve.run import open_run

    if context.bound is not None and context.bound.name not in (name, name.rpartition("-")[0]):
        raise ToolError(f"{name!r} is no search of this turn's task.", f"The task's name is {context.bound.name}.")
    return open_run(name, context.workspace)
