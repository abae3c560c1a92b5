"""``kernellab evolve list | status | attach | stop ...``: what a person does with a run, from any shell of a workspace.

Each command opens the run by its id, or by its task's name for the newest. A command that changes a run asks the
process that works on it, where there is one, and says which.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from kernellab.cli.output import ask_to_remember, emit, read_text, say, write_kernel
from kernellab.cli.parameters import command
from kernellab.content import written
from kernellab.errors import EvolveError, counted
from kernellab.options.commands.base import JsonOptions
from kernellab.options.commands.searches import AcceptOptions, InjectOptions, RunReportOptions, StopOptions

if TYPE_CHECKING:
    from kernellab.evolve import Run


class _Printed(NamedTuple):
    """How many of a run's notices and rounds were printed."""

    notices: int = 0
    rounds: int = 0


class _AsTyped(TyperGroup):
    """A group that help and errors call `evolve`, whatever the program calls it."""

    def make_context(self, info_name: str | None, *args: Any, **options: Any) -> Any:
        return super().make_context("evolve", *args, **options)


#: commands on a run that there is: ``kernellab evolve status RUN``
run_app = typer.Typer(help="A run of `kernellab evolve`.", no_args_is_help=True, rich_markup_mode=None, cls=_AsTyped)

Number = Annotated[int, typer.Argument(min=0)]
Words = Annotated[str, typer.Argument()]
RunId = Annotated[str, typer.Argument(help="A run's id, or its task's name for the newest.")]

#: seconds between two looks at a run's journal; chosen, not measured
LOOK = 0.5


@command(run_app, "list")
def list_(options: JsonOptions) -> int:
    """The workspace's runs, oldest first. Exit 1 when there is none."""
    from kernellab.evolve.begin import readable
    from kernellab.evolve.summary import line

    runs, faults = readable()
    if options.as_json:
        emit({"runs": [_facts(run) for run in runs], "unreadable": faults})
    else:
        for run in runs:
            print(line(run.id, run.state, run.unattended))
    for name, why in faults.items():
        say(f"{name} cannot be read: {why}")
    return 0 if runs else 1


@command(run_app, "status")
def status(run: RunId, options: JsonOptions) -> int:
    """A run's progress and its best kernel. Exit 0 when it has a verified kernel."""
    from kernellab.evolve.begin import open_run

    return shown(open_run(run), options.as_json)


@command(run_app, "attach")
def attach(run: RunId, options: JsonOptions) -> int:
    """Watch a run that another process works on, until it ends; Ctrl-C leaves it running."""
    from kernellab.evolve.begin import open_run

    return watched(open_run(run), None, options.as_json)


@command(run_app, "stop")
def stop(run: RunId, options: StopOptions) -> int:
    """End a run; what was found stays."""
    return _steered(run, options, lambda opened: opened.stop(options.why))


@command(run_app, "pause")
def pause(run: RunId, options: JsonOptions) -> int:
    """Finish the running evaluations and start no new ones."""
    return _steered(run, options, lambda opened: opened.pause())


@command(run_app, "resume")
def resume_(run: RunId, options: JsonOptions) -> int:
    """Continue after a pause."""
    return _steered(run, options, lambda opened: opened.resume())


@command(run_app, "inject")
def inject(
    run: RunId,
    candidate: Annotated[Path, typer.Argument(help="A sketch's file; or a kernel's Python file, or its folder.")],
    options: InjectOptions,
) -> int:
    """Put a sketch or a kernel of your own among an island's candidates."""
    from kernellab.dsls.sources import read_source

    if candidate.is_dir() or candidate.suffix == ".py":

        def put(opened: Run) -> None:
            opened.inject(source=read_source(candidate, opened.state.begun.dsl), island=options.island)

        return _steered(run, options, put)
    sketch = read_text(candidate, "sketch")
    return _steered(run, options, lambda opened: opened.inject(sketch, island=options.island))


@command(run_app, "protect")
def protect(run: RunId, candidate: Number, options: JsonOptions) -> int:
    """Keep a candidate among its island's elites."""
    return _steered(run, options, lambda opened: opened.protect(candidate))


@command(run_app, "drop")
def drop(run: RunId, candidate: Number, options: JsonOptions) -> int:
    """Exclude a candidate: it has no more children and cannot be the best."""
    return _steered(run, options, lambda opened: opened.drop(candidate))


@command(run_app, "freeze")
def freeze(run: RunId, island: Number, options: JsonOptions) -> int:
    """No proposals for an island, and no migration to or from it."""
    return _steered(run, options, lambda opened: opened.freeze(island))


@command(run_app, "thaw")
def thaw(run: RunId, island: Number, options: JsonOptions) -> int:
    """Unfreeze an island."""
    return _steered(run, options, lambda opened: opened.thaw(island))


@command(run_app, "set")
def set_(
    run: RunId,
    knobs: Annotated[list[str], typer.Argument(help="rounds=5 model=rules budget=minutes=10")],
    options: JsonOptions,
) -> int:
    """Change a run's knobs while it runs."""
    pairs = dict(word.partition("=")[::2] for word in knobs)
    if not all("=" in word for word in knobs):
        raise EvolveError("Say which knob and its value.", f"kernellab evolve set {run} rounds=5")
    return _steered(run, options, lambda opened: opened.set(**pairs))


@command(run_app, "direct")
def direct(run: RunId, words: Words, options: JsonOptions) -> int:
    """A direction for what a model proposes from now on."""
    return _steered(run, options, lambda opened: opened.direct(words))


@command(run_app, "scratchpad")
def scratchpad(run: RunId, words: Words, options: JsonOptions) -> int:
    """Set the notes that models are given in addition to the Analyst's plan."""
    return _steered(run, options, lambda opened: opened.write_scratchpad(words))


@command(run_app, "accept")
def accept(run: RunId, options: AcceptOptions) -> int:
    """Accept the direction that is proposed when the run stagnates."""
    return _steered(run, options, lambda opened: opened.accept(options.words))


@command(run_app, "refuse")
def refuse(run: RunId, options: JsonOptions) -> int:
    """Refuse the direction that is proposed."""
    return _steered(run, options, lambda opened: opened.refuse())


@command(run_app, "report")
def report(run: RunId, options: RunReportOptions) -> int:
    """A read-only HTML page of a run: its progress, lineage, candidates and words."""
    from kernellab.evolve.begin import open_run
    from kernellab.evolve.report import page

    opened = open_run(run)
    written(options.html, page(opened.id, opened.state))
    emit({"run": opened.id, "file": str(options.html)}) if options.as_json else print(options.html)
    return 0


def _steered(name: str, options: JsonOptions, act: Callable[[Run], None]) -> int:
    """Does ``act`` to the run of that name, and says where the run stands then."""
    from kernellab.evolve.begin import open_run

    run = open_run(name)
    act(run)
    worker = run.worker
    if options.as_json:
        emit({"run": run.id, "status": run.state.status.value, "unattended": run.unattended, "worker": worker})
    elif worker:
        say(f"Asked of {worker}, which works on {run.id}.")
    else:
        say(f"{run.id}: {run.state.status.value}.")
        _tell_unattended(run)
    return 0


def watched(run: Run, out: Path | None, as_json: bool) -> int:
    """Says on stderr what agents are and ask for, and each round's end, until the run is over or not worked on."""
    from kernellab.export import compiled, module_text, package

    printed = _Printed()
    while not (run.state.status.ended or run.unattended):
        printed = _tell(run, printed)
        time.sleep(LOOK)
    _tell(run, printed)
    if run.works_here:
        run.wait()
    if out is not None and run.state.best() is not None:
        best = run.taken()
        write_kernel(out, best.name, best.sketch, best.source.files)
        written(out / f"{best.name}.py", module_text(compiled(package([best]))))
    code = shown(run, as_json)
    if not as_json and run.offers():
        ask_to_remember(run.id, run.remember)
    return code


def _tell(run: Run, printed: _Printed) -> _Printed:
    """Prints the notices and the ends of rounds that are new since ``printed``."""
    from kernellab.evolve.summary import figure

    state = run.state
    for notice in state.notices[printed.notices :]:
        say(notice)
    for end in state.rounds[printed.rounds :]:
        evaluated = sum(state.proposals[number].round <= end.round for number in state.evaluations)
        say(f"round {end.round}: {counted(evaluated, 'candidate')}, {figure(state, end.worth)}")
    return _Printed(len(state.notices), len(state.rounds))


def _tell_unattended(run: Run) -> None:
    if run.unattended:
        say(f"No process works on it. {run.how_on}")


def shown(run: Run, as_json: bool) -> int:
    """Prints the run's summary; exit 0 when it has a verified kernel."""
    from kernellab.evolve.summary import summary, words

    overview = summary(run.id, run.state)
    if as_json:
        emit(_facts(run))
    else:
        print(words(overview))
        _tell_unattended(run)
    return 0 if overview.passed else 1


def _facts(run: Run) -> dict[str, Any]:
    from kernellab.evolve.summary import summary

    return {**summary(run.id, run.state).model_dump(mode="json"), "unattended": run.unattended}
