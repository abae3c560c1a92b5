"""The magic of a search over many candidates: begin one, watch it, steer it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core.error import UsageError
from IPython.core.magic import magics_class
from IPython.core.magic_arguments import argument

from kernellab.content import written
from kernellab.errors import EvolveError
from kernellab.notebook.magics.arguments import takes, typed
from kernellab.notebook.magics.base import KernelMagic, counted_as_shown, line_cell_command
from kernellab.options import build
from kernellab.options.search import SearchOptions

if TYPE_CHECKING:
    from kernellab.evolve import Run
    from kernellab.notebook.saved.receipt import Shown


class Subject(NamedTuple):
    """What is searched for (a task, or its text), and the options that it brings: of a session its name, its DSL, its
    chip and its best sketch."""

    task: Any
    options: dict[str, Any]


@magics_class
class EvolveMagics(KernelMagic):
    """evolve."""

    @line_cell_command
    @argument("name", help="a session, a variable or a file with a task; or one of the words that steer a run")
    @argument("run", nargs="?", help="after such a word: the run, by variable, id or task's name; default the newest")
    @argument("value", nargs="*", help="a candidate (protect, drop), an island, NAME=VALUE (set), a file, or words")
    @takes(SearchOptions)
    @argument("--estimate", action="store_true", help="print the estimated cost and do not start")
    def kernel_evolve(self, args: argparse.Namespace, cell: str | None = None) -> Any:
        """Search for faster kernels of a task: many candidates at once, on islands, in rounds.

        Prints the greatest cost, then returns at once; the monitor shows the run, and
        NAME_run is the Run. A cell's text is the task, or the sketch to inject.

            %kernel_evolve rms_norm --rounds 3 --parallel 4 --islands 2
            %kernel_evolve list
            %kernel_evolve pause rms_norm
            %kernel_evolve protect rms_norm 7

        `%kernel_evolve lab` replays policies on recorded spaces: change a knob, and the curves follow.

        The words that steer: list, show, summary, report FILE, pause, resume, stop, work, inject, protect N, drop N,
        freeze ISLAND, thaw ISLAND, set KNOB=VALUE, scratchpad WORDS, direct WORDS, accept, refuse (what the
        supervisor proposes), open N.
        """
        if args.name == "list":
            return _list()
        if args.name == "lab":
            return _lab(args)
        if args.name == "open":
            return self._open(args)
        act = _WORDS.get(args.name)
        if act is not None:
            return act(self.find(args.run), args, cell)
        if args.run is not None:
            raise UsageError(f"{args.name!r} is not a command for a run; choose one of {', '.join(WORDS)}")
        return self._begin(args, cell)

    def find(self, name: str | None) -> Run:
        """The run of that variable, id or task's name; the newest without a name. Raises EvolveError."""
        from kernellab.evolve import Run, open_run, runs
        from kernellab.notebook.monitor.registry import known

        held = self.namespace.get(name) if name else None
        if isinstance(held, Run):
            return held
        there = runs()
        if name is None and not there:
            raise EvolveError("There is no run in this workspace.", "Begin one: %kernel_evolve NAME.")
        run = open_run(name or there[-1])
        return known(run.id) or run

    def _open(self, args: argparse.Namespace) -> None:
        run, number = self.find(args.run), _number(args, "candidate")
        name = f"{run.state.begun.name}_{number}"
        self.namespace[name] = session = run.open(number, name)
        self.show_live(session)

    def _begin(self, args: argparse.Namespace, cell: str | None) -> None:
        # before the search starts: its threads import torch at once, and would keep the view waiting
        from kernellab.evolve.begin import planned, readable, start
        from kernellab.evolve.estimate import estimate
        from kernellab.evolve.records import SearchRequest
        from kernellab.notebook.monitor import monitor  # noqa: F401
        from kernellab.notebook.monitor.registry import show

        subject = self._subject(args, cell)
        dsl = subject.options.get("dsl") or self.lab.dsl or _usual_dsl()
        budget = {"budget": self.lab.budget} if self.lab.budget else {}
        options = {**subject.options, "dsl": dsl, **budget, **typed(args, SearchOptions)}
        request = build(SearchRequest, options, EvolveError, "knob")
        earlier = [run.state for run in readable(5)[0]]
        print(estimate(planned(subject.task, request).knobs, request.dsl, bool(request.model), earlier).text)
        if request.sketches:
            print(f"It begins with the best sketch of session {args.name}, measured again, and the rules' designs.")
        if args.estimate:
            return
        run = start(subject.task, request)
        self.namespace[f"{run.state.begun.name}_run"] = run
        run.work()
        show(run)

    def _subject(self, args: argparse.Namespace, cell: str | None) -> Subject:
        """What the line's first word or the cell says."""
        from kernellab.notebook.magics.verify_cell import named_task
        from kernellab.session import Session

        if cell is not None:
            if not args.name.isidentifier():
                raise UsageError(f"{args.name!r} is no name: use letters, digits and _, and begin with a letter")
            self.check_name(f"{args.name}_run")
            return Subject(counted_as_shown(cell), {"name": args.name})
        held = self.namespace.get(args.name)
        if isinstance(held, Session):
            created, best = held.state.created, held.state.best()
            sketches = (best.candidate.sketch,) if best is not None and best.candidate.sketch else ()
            wrote = held.state.sketch_turn(best.turn.id) if best is not None else None
            author = {"author": wrote.author} if wrote is not None else {}
            return Subject(created.text, {
                "name": created.name, "dsl": created.dsl, "chip": created.chip, "sketches": sketches, **author,
                "precision": created.options.get("precision") or "",
            })  # fmt: skip
        name = {"name": args.name} if args.name in self.namespace else {}
        return Subject(named_task(args.name, self.namespace), name)


def _lab(args: argparse.Namespace) -> Any:
    """Recorded spaces after the word, all without any."""
    from kernellab.evolve.lab.view import lab

    return lab([name for name in (args.run, *args.value) if name])


def _usual_dsl() -> str:
    from kernellab.verifier.protocol.option_words import plain_dsl

    return plain_dsl()


def _list() -> Shown:
    from kernellab.evolve.begin import readable
    from kernellab.evolve.summary import line
    from kernellab.notebook.saved.receipt import plain

    runs, faults = readable()
    lines = [line(run.id, run.state, run.unattended) for run in runs]
    lines += [f"{name} cannot be read: {why}" for name, why in faults.items()]
    return plain("\n".join(lines) or "There is no run in this workspace. Begin one: %kernel_evolve NAME.")


# -- words that steer --------------------------------------------------------------------------------------------------


def _show(run: Run) -> None:
    from kernellab.notebook.monitor.registry import show

    show(run)


def _report(run: Run, args: argparse.Namespace) -> None:
    from kernellab.evolve.report import page

    file = Path(args.value[0] if args.value else f"{run.id}.html")
    print(f"wrote {written(file, page(run.id, run.state))}")


def _inject(run: Run, args: argparse.Namespace, cell: str | None) -> None:
    if cell is None:
        raise UsageError("write the sketch in a cell: %%kernel_evolve inject RUN [ISLAND]")
    run.inject(cell, island=_number(args, "island", 0))


def _set(run: Run, args: argparse.Namespace) -> None:
    pairs = dict(word.partition("=")[::2] for word in args.value)
    if not pairs or not all("=" in word for word in args.value):
        raise UsageError("say which knob and its value: %kernel_evolve set RUN rounds=5")
    run.set(**pairs)


def _text(args: argparse.Namespace, cell: str | None) -> str:
    return cell if cell is not None else " ".join(args.value)


def _number(args: argparse.Namespace, what: str, usual: int | None = None) -> int:
    if not args.value and usual is not None:
        return usual
    if not args.value or not args.value[0].isdigit():
        raise UsageError(f"say which {what}: %kernel_evolve {args.name} RUN NUMBER")
    return int(args.value[0])


_WORDS: Mapping[str, Callable[[Run, argparse.Namespace, str | None], Any]] = {
    "show": lambda run, args, cell: _show(run),
    "summary": lambda run, args, cell: run,
    "report": lambda run, args, cell: _report(run, args),
    "pause": lambda run, args, cell: run.pause(),
    "resume": lambda run, args, cell: run.resume(),
    "stop": lambda run, args, cell: run.stop(" ".join(args.value)),
    "work": lambda run, args, cell: _show(run.work()),
    "inject": _inject,
    "protect": lambda run, args, cell: run.protect(_number(args, "candidate")),
    "drop": lambda run, args, cell: run.drop(_number(args, "candidate")),
    "freeze": lambda run, args, cell: run.freeze(_number(args, "island")),
    "thaw": lambda run, args, cell: run.thaw(_number(args, "island")),
    "set": lambda run, args, cell: _set(run, args),
    "scratchpad": lambda run, args, cell: run.write_scratchpad(_text(args, cell)),
    "direct": lambda run, args, cell: run.direct(_text(args, cell)),
    "accept": lambda run, args, cell: run.accept(_text(args, cell)),
    "refuse": lambda run, args, cell: run.refuse(),
}
WORDS = ("list", "lab", *_WORDS, "open")
