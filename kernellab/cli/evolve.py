"""``kernellab evolve``: a search for faster kernels; begin it, watch it, stop it, from any shell of the workspace."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import ask_to_remember, emit, read_text, say, write_files
from kernellab.content import find_workspace
from kernellab.errors import EvolveError
from kernellab.fidelity import PRECISION

if TYPE_CHECKING:
    from kernellab.evolve import Run

#: commands on a run that there is: ``kernellab evolve status RUN``
run_app = typer.Typer(help="A run of `kernellab evolve`.", no_args_is_help=True, rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Number = Annotated[int, typer.Argument(min=0)]
Words = Annotated[str, typer.Argument()]
RunId = Annotated[str, typer.Argument(help="A run's id, or its task's name for the newest.")]

_LOOK = 0.5


def evolve(
    task: Annotated[Path | None, typer.Argument(help="The task's Python file.")] = None,
    dsl: Annotated[str, typer.Option(help="triton, cpp, cuda_c.")] = "cpp",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds after the seeds.")] = 3,
    parallel: Annotated[int, typer.Option(min=1, help="Proposals of an island in a round.")] = 4,
    islands: Annotated[int, typer.Option(min=1, help="Islands.")] = 2,
    select: Annotated[str, typer.Option(help="islands, ucb, beam, greedy, map-elites, random.")] = "islands",
    operators: Annotated[
        list[str] | None,
        typer.Option(help="Operators that vary a candidate: rules, cross, model, or a name; repeatable."),
    ] = None,
    score: Annotated[str, typer.Option(help="rank: measured times; model: the cost model's alone.")] = "rank",
    target: Annotated[float, typer.Option(min=0, help="Stop at this speedup of a verified kernel; 0: never.")] = 0.0,
    plateau: Annotated[int, typer.Option(min=0, help="Stop after this many rounds without a gain; 0: never.")] = 0,
    budget: Annotated[str, typer.Option(help="tokens=200000,usd=1,minutes=30,gpu_s=600, of the whole run.")] = "",
    seed: Annotated[int, typer.Option(help="The same seed makes the same choices.")] = 0,
    model: Annotated[str, typer.Option(help="A model as an operator: model, model:NAME, replay:FILE.")] = "",
    from_: Annotated[list[Path] | None, typer.Option("--from", help="A sketch to begin with; repeatable.")] = None,
    allow_library: Annotated[
        bool, typer.Option("--allow-library", help="Accept kernels that call the framework's library.")
    ] = False,
    precision: Annotated[str | None, typer.Option(help=PRECISION)] = None,
    chip: Annotated[str | None, typer.Option(help="Design for a chip of knowledge/hardware.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the best one's sketch and source.")] = None,
    cluster: Annotated[str, typer.Option(help="local:N processes here, or dask://HOST:PORT; default: threads.")] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Leave the work to a process of its own.")] = False,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what it would cost, and end.")] = False,
    resume: Annotated[str, typer.Option(help="Go on with a run that was cut off.")] = "",
    json: Json = False,
) -> int:
    """Search for faster kernels of a task. Exit 0 when a verified kernel was found.

    The workspace's runs, from any shell: kernellab evolve list | status | attach | pause | resume | inject | protect |
    drop | freeze | thaw | set | direct | scratchpad | accept | refuse | stop | report. `kernellab evolve lab` replays
    search policies on recorded kernels.
    """
    from kernellab.evolve.estimate import estimate as estimated
    from kernellab.evolve.records import Knobs
    from kernellab.evolve.run import begin, make_knobs, open_run, runs

    knobs: dict[str, Any] = {
        "rounds": rounds, "parallel": parallel, "islands": islands, "select": select, "score": score,
        "operators": tuple(operators or ()), "target": target, "plateau": plateau, "budget": budget, "seed": seed,
    }  # fmt: skip
    if (task is None) == (not resume):
        raise EvolveError("Give a task file, or a run to --resume.", "`kernellab evolve list` shows the runs.")
    if resume:
        run = open_run(resume, cluster=cluster)
    else:
        earlier = [open_run(name).state for name in runs()[-5:]]
        cost = estimated(make_knobs(Knobs(), knobs), dsl, bool(model), earlier)
        if estimate:
            emit(cost.model_dump()) if json else print(cost.text)
            return 0
        say(cost.text)
        assert task is not None
        sketches = [read_text(path, "sketch") for path in from_ or ()]
        run = begin(
            task, dsl, chip=chip, sketches=sketches, model=model, allow_library=allow_library,
            precision=precision or "", cluster=cluster, **knobs,
        )  # fmt: skip
    if detach:
        _detached(run.id, cluster)
        emit({"run": run.id}) if json else print(f"{run.id} goes on by itself: kernellab evolve attach {run.id}")
        return 0
    run.work()
    return _watched(run, out, json)


@run_app.command("list")
def list_(json: Json = False) -> int:
    """The workspace's runs, oldest first. Exit 1 when there is none."""
    from kernellab.evolve.run import open_run, runs
    from kernellab.evolve.summary import summary

    found = [summary(name, open_run(name).state) for name in runs()]
    if json:
        emit({"runs": [one.model_dump(mode="json") for one in found]})
    else:
        for one in found:
            print(f"{one.run}  {one.status.value:9}  {one.evaluations} candidates  {one.text}".rstrip())
    return 0 if found else 1


@run_app.command("status")
def status(run: RunId, json: Json = False) -> int:
    """A run's progress and its best kernel. Exit 0 when it has a verified kernel."""
    from kernellab.evolve.run import open_run

    return _shown(open_run(run), json)


@run_app.command("attach")
def attach(run: RunId, json: Json = False) -> int:
    """Watch a run that another process works on, until it ends; Ctrl-C leaves it running."""
    from kernellab.evolve.run import open_run

    return _watched(open_run(run), None, json)


@run_app.command("stop")
def stop(run: RunId, why: Annotated[str, typer.Option(help="The reason that is kept.")] = "") -> int:
    """End a run; what was found stays."""
    from kernellab.evolve.run import open_run

    open_run(run).stop(why)
    return 0


@run_app.command("pause")
def pause(run: RunId) -> int:
    """Finish what runs, begin nothing new."""
    from kernellab.evolve.run import open_run

    open_run(run).pause()
    return 0


@run_app.command("resume")
def resume_(run: RunId) -> int:
    """Go on after a pause."""
    from kernellab.evolve.run import open_run

    open_run(run).resume()
    return 0


@run_app.command("inject")
def inject(
    run: RunId,
    candidate: Annotated[Path, typer.Argument(help="A sketch's file; or a kernel's Python file, or its folder.")],
    island: Annotated[int, typer.Option(min=0)] = 0,
) -> int:  # fmt: skip
    """Put a sketch or a kernel of your own among an island's candidates."""
    from kernellab.dsls.sources import read_source
    from kernellab.evolve.run import open_run

    found = open_run(run)
    if candidate.is_dir() or candidate.suffix == ".py":
        found.inject(source=read_source(candidate, found.state.begun.dsl), island=island)
    else:
        found.inject(read_text(candidate, "sketch"), island=island)
    return 0


@run_app.command("protect")
def protect(run: RunId, candidate: Number) -> int:
    """Keep a candidate among its island's elites."""
    from kernellab.evolve.run import open_run

    open_run(run).protect(candidate)
    return 0


@run_app.command("drop")
def drop(run: RunId, candidate: Number) -> int:
    """Nothing comes from a candidate any more, and it is not the best."""
    from kernellab.evolve.run import open_run

    open_run(run).drop(candidate)
    return 0


@run_app.command("freeze")
def freeze(run: RunId, island: Number) -> int:
    """No proposals for an island, and no migration to or from it."""
    from kernellab.evolve.run import open_run

    open_run(run).freeze(island)
    return 0


@run_app.command("thaw")
def thaw(run: RunId, island: Number) -> int:
    """Go on with an island that was frozen."""
    from kernellab.evolve.run import open_run

    open_run(run).thaw(island)
    return 0


@run_app.command("set")
def set_(run: RunId, knobs: Annotated[list[str], typer.Argument(help="rounds=5 model=rules budget=minutes=10")]) -> int:
    """Change a run's knobs while it goes on."""
    from kernellab.evolve.run import open_run

    pairs = dict(word.partition("=")[::2] for word in knobs)
    if not all("=" in word for word in knobs):
        raise EvolveError("Say which knob and its value.", f"kernellab evolve set {run} rounds=5")
    open_run(run).set(**pairs)
    return 0


@run_app.command("direct")
def direct(run: RunId, words: Words) -> int:
    """A direction for what a model proposes from now on."""
    from kernellab.evolve.run import open_run

    open_run(run).direct(words)
    return 0


@run_app.command("scratchpad")
def scratchpad(run: RunId, words: Words) -> int:
    """What a model is told beside the Analyst's plan."""
    from kernellab.evolve.run import open_run

    open_run(run).write_scratchpad(words)
    return 0


@run_app.command("accept")
def accept(
    run: RunId, words: Annotated[str, typer.Option(help="The direction in words of your own.")] = ""
) -> int:  # fmt: skip
    """Take up the direction that is proposed where the run gains nothing any more."""
    from kernellab.evolve.run import open_run

    open_run(run).accept(words)
    return 0


@run_app.command("refuse")
def refuse(run: RunId) -> int:
    """Refuse the direction that is proposed."""
    from kernellab.evolve.run import open_run

    open_run(run).refuse()
    return 0


@run_app.command("report")
def report(run: RunId, html: Annotated[Path, typer.Option(help="The file.")] = Path("run.html")) -> int:
    """A read-only HTML page of a run: its progress, lineage, candidates and words."""
    from kernellab.evolve.report import page
    from kernellab.evolve.run import open_run

    found = open_run(run)
    write_files(html.parent, {html.name: page(found.id, found.state)})
    print(html)
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
    noise: Annotated[float, typer.Option(min=0, help="Times the spread that the measurements had; 0: none.")] = 1.0,
    html: Annotated[Path | None, typer.Option(help="A page with the curves.")] = None,
    json: Json = False,
) -> int:
    """Replay search policies on recorded spaces of kernels: what each finds, after how many evaluations."""
    from kernellab.evolve.lab.curves import CONTENDERS, USUAL, band, standing, table
    from kernellab.evolve.lab.view import page
    from kernellab.evolve.run import make_knobs

    knobs = make_knobs(USUAL, {
        "rounds": rounds, "parallel": parallel, "islands": islands, "elites": elites, "migrate_every": migrate_every,
    })  # fmt: skip
    bands = [band(name, knobs, range(seeds), space or (), noise) for name in select or CONTENDERS]
    found = [standing(one, space or ()) for one in bands]
    if html is not None:
        write_files(html.parent, {html.name: page(bands)})
    if json:
        emit({"policies": [one.model_dump() for one in found]})
    else:
        print(table(found))
    return 0


def _watched(run: Run, out: Path | None, json: bool) -> int:
    """Says each round's end on stderr until the run is over."""
    told, ours = 0, run.works_here
    while not run.state.status.ended and (run.works_here or not ours):
        told = _tell(run, told)
        time.sleep(_LOOK)
    _tell(run, told)
    if run.works_here:
        run.wait()
    if out is not None and run.state.best() is not None:
        candidate, _ = run.best()
        files = {**candidate.source.files, **({"sketch.txt": candidate.sketch} if candidate.sketch else {})}
        write_files(out, files)
    code = _shown(run, json)
    if not json and run.offers():
        ask_to_remember(run.id, run.remember)
    return code


def _tell(run: Run, told: int) -> int:
    from kernellab.evolve.summary import figure

    state = run.state
    for end in state.rounds[told:]:
        say(f"round {end.round}: {len(state.evaluations)} candidates, {figure(state, end.worth)}")
    return len(state.rounds)


def _shown(run: Run, json: bool) -> int:
    from kernellab.evolve.summary import summary, words

    found = summary(run.id, run.state)
    if json:
        emit(found.model_dump(mode="json"))
    else:
        print(words(found))
    return 0 if found.passed else 1


def _detached(run: str, cluster: str) -> None:
    """A process of its own that goes on with the run when this one ends; its words go to a file beside the journal."""
    folder = find_workspace() / ".kernellab" / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{run}.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "kernellab.cli", "evolve", "--resume", run, "--cluster", cluster],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=find_workspace(),
        )  # fmt: skip
