"""``kernellab evolve``: a search for faster kernels; begin it, watch it, stop it, from any shell of the workspace."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from pydantic import BaseModel, Field
from typer.core import TyperGroup

from kernellab.cli.output import ask_to_remember, check_folder, emit, read_text, say, write_kernel
from kernellab.cli.parameters import is_typed, with_requests
from kernellab.content import WORKSPACE, module_command, written
from kernellab.errors import EvolveError, counted
from kernellab.options import REQUEST, Option, Surface
from kernellab.options.search import SearchOptions

if TYPE_CHECKING:
    from kernellab.evolve import Run


class _AsTyped(TyperGroup):
    """A group that help and errors call `evolve`, whatever the program calls it."""

    def make_context(self, info_name: str | None, *args: Any, **options: Any) -> Any:
        return super().make_context("evolve", *args, **options)


#: commands on a run that there is: ``kernellab evolve status RUN``
run_app = typer.Typer(help="A run of `kernellab evolve`.", no_args_is_help=True, rich_markup_mode=None, cls=_AsTyped)

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Number = Annotated[int, typer.Argument(min=0)]
Words = Annotated[str, typer.Argument()]
RunId = Annotated[str, typer.Argument(help="A run's id, or its task's name for the newest.")]

_LOOK = 0.5
#: how a process says that it works on a run, and the seconds that a process we start may take until then: it imports
#: torch, and may start a cluster
_AT_WORK, _BEGINS = "At work on", 120.0
#: options that mean something where a run resumes; the others were decided when it began
_GOING_ON = frozenset({"--resume", "--cluster", "--out", "--detach", "--json"})


class SearchShell(BaseModel):
    """What only the shell's search takes."""

    model_config = REQUEST

    OPTION: ClassVar[Option] = Option(on=Surface.COMMAND)

    start: Annotated[tuple[Path, ...], Option(on=Surface.COMMAND, flag="from")] = Field(
        default=(), description="a sketch to begin with"
    )
    out: Path | None = Field(default=None, description="a folder for the best one's sketch, source and exported module")
    cluster: Annotated[str, Option(on=Surface.COMMAND, default="threads of this process")] = Field(
        default="",
        description="who does the jobs: local:N processes here, dask://HOST:PORT, or the judge at ssh://HOST",
    )
    detach: bool = Field(default=False, description="run in a background process")
    estimate: bool = Field(default=False, description="print the estimated cost and exit")
    resume: str = Field(default="", description="resume a run that was interrupted")
    json_: Annotated[bool, Option(on=Surface.COMMAND, flag="json")] = Field(
        default=False, description="one JSON object on stdout"
    )


@with_requests
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
        _check_going_on(context, shell.resume)
        run = open_run(shell.resume, cluster=shell.cluster)
    else:
        begun = _begun(task, options, shell)
        if begun is None:
            return 0
        run = begun
    detach, cluster, out, json = shell.detach, shell.cluster, shell.out, shell.json_
    if detach and not run.state.status.ended:
        log = _detached(run, cluster, out)
        done = f"{run.id} runs in the background: kernellab evolve attach {run.id}"
        emit({"run": run.id, "log": str(log)}) if json else print(done)
        return 0
    run.work()
    if run.works_here:
        say(f"{_AT_WORK} {run.id}.")
    return _watched(run, out, json)


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
        emit(cost.model_dump()) if shell.json_ else print(cost.text)
        return None
    say(cost.text)
    return recorded(begun, request)


@run_app.command("night")
def night(
    tasks: Annotated[list[Path], typer.Argument(help="The tasks' Python files.")],
    minutes: Annotated[float, typer.Option(min=0.1, help="The time that all of them have together.")] = 480.0,
    dsl: Annotated[str, typer.Option(help="The DSL of the kernels.")] = "cpp",
    cluster: Annotated[str, typer.Option(help="Who does the jobs, as for a search.")] = "",
    html: Annotated[Path, typer.Option(help="The morning's report.")] = Path("morning.html"),
    json: Json = False,
) -> int:
    """Search several tasks under one budget of time; also `evolve --night FILE...`. Exit 1 when nothing is verified."""
    from kernellab.evolve.begin import start
    from kernellab.evolve.night import Night, knobs_of_a_night, page
    from kernellab.evolve.records import SearchRequest

    options = knobs_of_a_night(SearchOptions(dsl=dsl)).model_dump(exclude_unset=True)
    runs = [start(task, SearchRequest(**options, cluster=cluster)) for task in tasks]
    outcome = Night(runs, 60 * minutes, say).work()
    written(html, page(outcome, 60 * minutes))
    if json:
        emit({"report": str(html), "operators": [one.model_dump(mode="json") for one in outcome]})
    else:
        for one in outcome:
            print(f"{one.summary.task}: {one.summary.text}. {one.summary.against_first} {one.look_at}".rstrip())
        print(html)
    return 0 if any(one.summary.passed for one in outcome) else 1


@run_app.command("list")
def list_(json: Json = False) -> int:
    """The workspace's runs, oldest first. Exit 1 when there is none."""
    from kernellab.evolve.begin import readable
    from kernellab.evolve.summary import line

    runs, faults = readable()
    if json:
        emit({"runs": [_as_json(run) for run in runs], "unreadable": faults})
    else:
        for run in runs:
            print(line(run.id, run.state, run.unattended))
    for name, why in faults.items():
        say(f"{name} cannot be read: {why}")
    return 0 if runs else 1


@run_app.command("status")
def status(run: RunId, json: Json = False) -> int:
    """A run's progress and its best kernel. Exit 0 when it has a verified kernel."""
    from kernellab.evolve.begin import open_run

    return _shown(open_run(run), json)


@run_app.command("attach")
def attach(run: RunId, json: Json = False) -> int:
    """Watch a run that another process works on, until it ends; Ctrl-C leaves it running."""
    from kernellab.evolve.begin import open_run

    return _watched(open_run(run), None, json)


@run_app.command("stop")
def stop(
    run: RunId, why: Annotated[str, typer.Option(help="The reason that is kept.")] = "", json: Json = False
) -> int:  # fmt: skip
    """End a run; what was found stays."""
    return _steered(run, json, lambda opened: opened.stop(why))


@run_app.command("pause")
def pause(run: RunId, json: Json = False) -> int:
    """Finish the running evaluations and start no new ones."""
    return _steered(run, json, lambda opened: opened.pause())


@run_app.command("resume")
def resume_(run: RunId, json: Json = False) -> int:
    """Continue after a pause."""
    return _steered(run, json, lambda opened: opened.resume())


@run_app.command("inject")
def inject(
    run: RunId,
    candidate: Annotated[Path, typer.Argument(help="A sketch's file; or a kernel's Python file, or its folder.")],
    island: Annotated[int, typer.Option(min=0)] = 0,
    json: Json = False,
) -> int:  # fmt: skip
    """Put a sketch or a kernel of your own among an island's candidates."""
    from kernellab.dsls.sources import read_source

    if candidate.is_dir() or candidate.suffix == ".py":
        return _steered(
            run, json, lambda opened: opened.inject(
                source=read_source(candidate, opened.state.begun.dsl), island=island
            )
        )  # fmt: skip
    sketch = read_text(candidate, "sketch")
    return _steered(run, json, lambda opened: opened.inject(sketch, island=island))


@run_app.command("protect")
def protect(run: RunId, candidate: Number, json: Json = False) -> int:
    """Keep a candidate among its island's elites."""
    return _steered(run, json, lambda opened: opened.protect(candidate))


@run_app.command("drop")
def drop(run: RunId, candidate: Number, json: Json = False) -> int:
    """Exclude a candidate: it has no more children and cannot be the best."""
    return _steered(run, json, lambda opened: opened.drop(candidate))


@run_app.command("freeze")
def freeze(run: RunId, island: Number, json: Json = False) -> int:
    """No proposals for an island, and no migration to or from it."""
    return _steered(run, json, lambda opened: opened.freeze(island))


@run_app.command("thaw")
def thaw(run: RunId, island: Number, json: Json = False) -> int:
    """Unfreeze an island."""
    return _steered(run, json, lambda opened: opened.thaw(island))


@run_app.command("set")
def set_(
    run: RunId,
    knobs: Annotated[list[str], typer.Argument(help="rounds=5 model=rules budget=minutes=10")],
    json: Json = False,
) -> int:
    """Change a run's knobs while it runs."""
    pairs = dict(word.partition("=")[::2] for word in knobs)
    if not all("=" in word for word in knobs):
        raise EvolveError("Say which knob and its value.", f"kernellab evolve set {run} rounds=5")
    return _steered(run, json, lambda opened: opened.set(**pairs))


@run_app.command("direct")
def direct(run: RunId, words: Words, json: Json = False) -> int:
    """A direction for what a model proposes from now on."""
    return _steered(run, json, lambda opened: opened.direct(words))


@run_app.command("scratchpad")
def scratchpad(run: RunId, words: Words, json: Json = False) -> int:
    """Set the notes that models are given in addition to the Analyst's plan."""
    return _steered(run, json, lambda opened: opened.write_scratchpad(words))


@run_app.command("accept")
def accept(
    run: RunId, words: Annotated[str, typer.Option(help="The direction in words of your own.")] = "", json: Json = False
) -> int:  # fmt: skip
    """Accept the direction that is proposed when the run stagnates."""
    return _steered(run, json, lambda opened: opened.accept(words))


@run_app.command("refuse")
def refuse(run: RunId, json: Json = False) -> int:
    """Refuse the direction that is proposed."""
    return _steered(run, json, lambda opened: opened.refuse())


@run_app.command("report")
def report(
    run: RunId, html: Annotated[Path, typer.Option(help="The file.")] = Path("run.html"), json: Json = False
) -> int:  # fmt: skip
    """A read-only HTML page of a run: its progress, lineage, candidates and words."""
    from kernellab.evolve.begin import open_run
    from kernellab.evolve.report import page

    opened = open_run(run)
    written(html, page(opened.id, opened.state))
    emit({"run": opened.id, "file": str(html)}) if json else print(html)
    return 0


@run_app.command("lab")
def lab(
    select: Annotated[list[str] | None, typer.Option(help="A policy to replay; repeatable; default: all.")] = None,
    space: Annotated[list[str] | None, typer.Option(help="A recorded space; repeatable; default: all.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 6,
    parallel: Annotated[int, typer.Option(min=1)] = 4,
    islands: Annotated[int, typer.Option(min=1)] = 2,
    elites: Annotated[int, typer.Option(min=1)] = 2,
    migrate_every: Annotated[int, typer.Option(min=0, help="Rounds between two migrations; 0: never.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="Replays of each policy on each space.")] = 5,
    noise: Annotated[
        float, typer.Option(min=0, help="Noise added, as a multiple of the measured spread; 0: none.")
    ] = 1.0,
    html: Annotated[Path | None, typer.Option(help="A page with the curves.")] = None,
    json: Json = False,
) -> int:
    """Replay search policies on recorded spaces of kernels: what each finds, after how many evaluations."""
    from kernellab.evolve.knobs import make_knobs
    from kernellab.evolve.lab.curves import CONTENDERS, USUAL, band, standing, table
    from kernellab.evolve.lab.view import page

    knobs = make_knobs(USUAL, {
        "rounds": rounds, "parallel": parallel, "islands": islands, "elites": elites, "migrate_every": migrate_every,
    })  # fmt: skip
    bands = [band(name, knobs, range(seeds), space or (), noise) for name in select or CONTENDERS]
    standings = [standing(one, space or ()) for one in bands]
    if html is not None:
        written(html, page(bands))
    if json:
        emit({"policies": [one.model_dump() for one in standings]})
    else:
        print(table(standings))
    return 0


def _check_going_on(context: typer.Context, run: str) -> None:
    """Raises EvolveError: a word of the call was decided when the run began, and would say nothing."""
    for option in context.command.params:
        if is_typed(context, option.name or "") and option.opts[0] not in _GOING_ON:
            raise EvolveError(
                f"{option.opts[0]} was decided when the run began.",
                f"Leave it out; `kernellab evolve set {run} rounds=5` changes what can be changed.",
            )


def _steered(name: str, json: bool, act: Callable[[Run], None]) -> int:
    """Does ``act`` to the run of that name, and says where the run stands then."""
    from kernellab.evolve.begin import open_run

    run = open_run(name)
    act(run)
    worker = run.worker
    if json:
        emit({"run": run.id, "status": run.state.status.value, "unattended": run.unattended, "worker": worker})
    elif worker:
        say(f"Asked of {worker}, which works on {run.id}.")
    else:
        say(f"{run.id}: {run.state.status.value}.")
        _tell_unattended(run)
    return 0


def _watched(run: Run, out: Path | None, json: bool) -> int:
    """Says on stderr what agents are and ask for, and each round's end, until the run is over or not worked on."""
    from kernellab.export import compiled, module_text, package

    printed = (0, 0)
    while not (run.state.status.ended or run.unattended):
        printed = _tell(run, printed)
        time.sleep(_LOOK)
    _tell(run, printed)
    if run.works_here:
        run.wait()
    if out is not None and run.state.best() is not None:
        best = run.taken()
        write_kernel(out, best.name, best.sketch, best.source.files)
        written(out / f"{best.name}.py", module_text(compiled(package([best]))))
    code = _shown(run, json)
    if not json and run.offers():
        ask_to_remember(run.id, run.remember)
    return code


def _tell(run: Run, printed: tuple[int, int]) -> tuple[int, int]:
    from kernellab.evolve.summary import figure

    state = run.state
    for notice in state.notices[printed[0] :]:
        say(notice)
    for end in state.rounds[printed[1] :]:
        done = sum(state.proposals[number].round <= end.round for number in state.evaluations)
        say(f"round {end.round}: {counted(done, 'candidate')}, {figure(state, end.worth)}")
    return len(state.notices), len(state.rounds)


def _tell_unattended(run: Run) -> None:
    if run.unattended:
        say(f"No process works on it. {run.how_on}")


def _shown(run: Run, json: bool) -> int:
    from kernellab.evolve.summary import summary, words

    overview = summary(run.id, run.state)
    if json:
        emit(_as_json(run))
    else:
        print(words(overview))
        _tell_unattended(run)
    return 0 if overview.passed else 1


def _as_json(run: Run) -> dict[str, Any]:
    from kernellab.evolve.summary import summary

    return {**summary(run.id, run.state).model_dump(mode="json"), "unattended": run.unattended}


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
    until, output = time.monotonic() + _BEGINS, ""
    while _AT_WORK not in output and time.monotonic() < until:
        over = process.poll() is not None
        output = log.read_text(encoding="utf-8", errors="replace").strip()
        if over and not run.unattended:  # it was done in a moment
            break
        if over:
            raise EvolveError(f"The process that was to work on {run.id} has ended.", f"It said: {output or 'nothing'}")
        time.sleep(_LOOK)
    return log
