"""``kernellab evolve TASK``: begin or resume a search for faster kernels; ``night`` and ``lab``: many searches."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernellab.cli.output import check_folder, emit, read_text, say
from kernellab.cli.parameters import command, is_typed
from kernellab.cli.search.runs import LOOK, run_app, watched
from kernellab.content import WORKSPACE, module_command, written
from kernellab.errors import EvolveError
from kernellab.options.commands.searches import LabOptions, NightOptions, SearchShell
from kernellab.options.search import SearchOptions

if TYPE_CHECKING:
    from kernellab.evolve import Run

#: how a process says that it works on a run
_AT_WORK = "At work on"
#: seconds that a process that we start may take until it says so: it imports torch, and may start a cluster
_START_SECONDS = 120.0
#: options that mean something where a run resumes; the others were decided when it began
_AT_RESUME = frozenset({"--resume", "--cluster", "--out", "--detach", "--json"})
#: options of ``evolve lab`` that are knobs of its searches
_LAB_KNOBS = {"rounds", "parallel", "islands", "elites", "migrate_every"}


def evolve(
    context: typer.Context,
    options: SearchOptions,
    shell: SearchShell,
    task: Annotated[Path | None, typer.Argument(help="The task's Python file.")] = None,
) -> int:
    """Search for faster kernels of a task. Exit 0 when a verified kernel was found.

    The workspace's runs, from any shell: kernellab evolve list | status | attach | pause | resume | inject | protect |
    drop | freeze | thaw | set | direct | scratchpad | accept | refuse | stop | report. `kernellab evolve lab` replays
    search policies on recorded kernels.
    """
    from kernellab.evolve.begin import open_run

    if (task is None) == (not shell.resume):
        raise EvolveError("Give a task file, or a run to --resume.", "`kernellab evolve list` shows the runs.")
    if not shell.estimate:
        check_folder(shell.out)
    if task is None:
        _check_resumable_options(context, shell.resume)
        run = open_run(shell.resume, cluster=shell.cluster)
    else:
        begun = _begun(task, options, shell)
        if begun is None:
            return 0
        run = begun
    if shell.detach and not run.state.status.ended:
        log = _detached(run, shell.cluster, shell.out)
        if shell.as_json:
            emit({"run": run.id, "log": str(log)})
        else:
            print(f"{run.id} runs in the background: kernellab evolve attach {run.id}")
        return 0
    run.work()
    if run.works_here:
        say(f"{_AT_WORK} {run.id}.")
    return watched(run, shell.out, shell.as_json)


def _begun(task: Path, options: SearchOptions, shell: SearchShell) -> Run | None:
    """The run, after its greatest cost is printed; None where that was all that was asked."""
    from kernellab.evolve.begin import planned, readable, recorded
    from kernellab.evolve.estimate import estimate
    from kernellab.evolve.records import SearchRequest

    sketches = tuple(read_text(path, "sketch") for path in shell.start)
    request = SearchRequest(**options.model_dump(exclude_unset=True), sketches=sketches, cluster=shell.cluster)
    earlier = [run.state for run in readable(5)[0]]
    begun = planned(task, request)
    cost = estimate(begun.knobs, request.dsl, bool(request.model), earlier)
    if shell.estimate:
        emit(cost.model_dump()) if shell.as_json else print(cost.text)
        return None
    say(cost.text)
    return recorded(begun, request)


def _check_resumable_options(context: typer.Context, run: str) -> None:
    """Raises EvolveError: a word of the call was decided when the run began, and would say nothing."""
    for option in context.command.params:
        if is_typed(context, option.name or "") and option.opts[0] not in _AT_RESUME:
            raise EvolveError(
                f"{option.opts[0]} was decided when the run began.",
                f"Leave it out; `kernellab evolve set {run} rounds=5` changes what can be changed.",
            )


def _detached(run: Run, cluster: str, out: Path | None) -> Path:
    """A separate process continues the run when this one ends; the file next to the journal that has its words.

    Raises:
        EvolveError: it ended at once, with the last of its words.
    """
    log = written(run.workspace / WORKSPACE / "runs" / f"{run.id}.log", "")
    place = ["--out", str(out.resolve())] if out is not None else []
    with log.open("ab") as words:
        process = subprocess.Popen(
            module_command("kernellab.cli", "evolve", "--resume", run.id, "--cluster", cluster, *place),
            stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True, cwd=run.workspace,
        )  # fmt: skip
    until, output = time.monotonic() + _START_SECONDS, ""
    while _AT_WORK not in output and time.monotonic() < until:
        over = process.poll() is not None
        output = log.read_text(encoding="utf-8", errors="replace").strip()
        if over and not run.unattended:  # it was done in a moment
            break
        if over:
            raise EvolveError(f"The process that was to work on {run.id} has ended.", f"It said: {output or 'nothing'}")
        time.sleep(LOOK)
    return log


@command(run_app, "night")
def night(
    tasks: Annotated[list[Path], typer.Argument(help="The tasks' Python files.")],
    options: NightOptions,
) -> int:
    """Search several tasks under one budget of time; also `evolve --night FILE...`. Exit 1 when nothing is verified."""
    from kernellab.evolve.begin import start
    from kernellab.evolve.night import Night, knobs_of_a_night, page
    from kernellab.evolve.records import SearchRequest

    seconds = 60 * options.minutes
    search = knobs_of_a_night(SearchOptions(dsl=options.dsl)).model_dump(exclude_unset=True)
    runs = [start(task, SearchRequest(**search, cluster=options.cluster)) for task in tasks]
    outcome = Night(runs, seconds, say).work()
    written(options.html, page(outcome, seconds))
    if options.as_json:
        emit({"report": str(options.html), "operators": [one.model_dump(mode="json") for one in outcome]})
    else:
        for one in outcome:
            print(f"{one.summary.task}: {one.summary.text}. {one.summary.against_first} {one.look_at}".rstrip())
        print(options.html)
    return 0 if any(one.summary.passed for one in outcome) else 1


@command(run_app, "lab")
def lab(options: LabOptions) -> int:
    """Replay search policies on recorded spaces of kernels: what each finds, after how many evaluations."""
    from kernellab.evolve.knobs import make_knobs
    from kernellab.evolve.lab.curves import CONTENDERS, USUAL, band, standing, table
    from kernellab.evolve.lab.view import page

    knobs = make_knobs(USUAL, options.model_dump(include=_LAB_KNOBS))
    bands = [
        band(name, knobs, range(options.seeds), options.space, options.noise) for name in options.select or CONTENDERS
    ]
    standings = [standing(one, options.space) for one in bands]
    if options.html is not None:
        written(options.html, page(bands))
    if options.as_json:
        emit({"policies": [one.model_dump() for one in standings]})
    else:
        print(table(standings))
    return 0
