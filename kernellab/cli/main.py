"""The command line: the same jobs without a notebook.

Exit codes are a contract: 0 done and good, 1 done and not good, 2 the call or its input is wrong (one sentence and
the remedy, never a traceback; ``KERNELLAB_DEBUG=1`` shows it), and the shell's own 130 when a person pressed Ctrl-C.
``--json`` prints one object on stdout; everything else goes to stderr.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer

from kernellab.cli.bench import bench
from kernellab.cli.course import grade, release
from kernellab.cli.design import design
from kernellab.cli.docs import docs_app
from kernellab.cli.export import compare, export, replay_app, share
from kernellab.cli.language.lift import lift as _lift
from kernellab.cli.language.sketch import sketch_app
from kernellab.cli.language.tune import tune as _tune
from kernellab.cli.lens import lens
from kernellab.cli.mcp import mcp, skill
from kernellab.cli.memory import memory_app
from kernellab.cli.notebooks import lab
from kernellab.cli.output import emit, say
from kernellab.cli.parameters import command
from kernellab.cli.profile import profile
from kernellab.cli.search.evolve import evolve
from kernellab.cli.search.runs import run_app
from kernellab.cli.verify import check, rank, verify
from kernellab.errors import KernellabError
from kernellab.options.commands.machine import DoctorOptions

#: typer carries a private click in some versions and takes the installed one in others
_WRONG_CALL: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

#: what a shell calls a program that SIGINT ended; typer gives it as a result
STOPPED = 130
#: what is kept of a command that was cut off, and how it resumes
_KEPT = {
    "design": "Its turns are kept: the same call with --resume continues from there.",
    "evolve": "What was evaluated is kept: `kernellab evolve --resume RUN` continues.",
    "evolve-run attach": "The search continues, unwatched.",
    "bench": "Each finished task is kept: the same call with --resume runs the others.",
}

app = typer.Typer(
    name="kernellab",
    help="Design, verify and measure compute kernels; the same jobs as in the notebook.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
#: these two are commands of `sketch`, which importing them has added
_SKETCH_COMMANDS = (_lift, _tune)


def _tell_version(asked: bool) -> None:
    if asked:
        print(f"kernellab {version('kernellab')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None: ...


@command(app)
def doctor(options: DoctorOptions) -> int:
    """What this machine can do: chips, compilers, each DSL ready or why not, sandbox, models."""
    from kernellab.doctor import diagnose, report

    if options.as_json:
        findings = diagnose(options.probe)
        emit(findings.to_dict())
        return 0 if any(dsl.ready for dsl in findings.dsls.values()) else 1
    print(report(options.probe))
    return 0


# in the order of the help
command(app)(design)
command(app)(verify)
command(app)(rank)
command(app)(check)
command(app)(lens)
app.add_typer(sketch_app, name="sketch")
app.add_typer(docs_app, name="docs")
app.add_typer(memory_app, name="memory")
command(app)(compare)
command(app)(export)
command(app)(share)
app.add_typer(replay_app, name="replay")
command(app)(bench)
command(app)(evolve)
command(app)(profile)
command(app)(mcp)
command(app)(skill)
app.add_typer(run_app, name="evolve-run", hidden=True)
command(app)(grade)
command(app)(release)
# what lab does not know it hands on to JupyterLab
command(app, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(lab)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if arguments is None and not os.environ.get("KERNELLAB_DEBUG"):
        # registered first, it runs last: nanobind then counts Triton's types as leaks, which is nothing for a person
        atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["evolve"] and words[1:2] and words[1] in {c.name for c in run_app.registered_commands}:
        words[:1] = ["evolve-run"]
    elif words[:2] == ["evolve", "--night"]:
        words[:2] = ["evolve-run", "night"]
    try:
        result = typer.main.get_command(app).main(args=words, prog_name="kernellab", standalone_mode=False)
        return _stopped(words) if result == STOPPED else result if isinstance(result, int) else 0
    except KernellabError as error:
        say(error.message)
        if error.remedy:
            say(f"  -> {error.remedy}")
        _debug()
        _emit_error(words, error.message, error.remedy, error.exit_code)
        return error.exit_code
    except _WRONG_CALL as error:
        _say_wrong(error)
        _emit_error(words, error.format_message(), "", 2)
        return 2
    except KeyboardInterrupt:
        return _stopped(words)
    except typer.Abort:
        say("Nothing was begun.")
        return 2
    except BrokenPipeError:
        # the reader (head, less) went away; a second complaint at exit would be noise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        say(f"kernellab failed: {type(error).__name__}: {error}")
        say("  -> Set KERNELLAB_DEBUG=1 for the traceback, and report it.")
        _debug()
        _emit_error(words, f"kernellab failed: {type(error).__name__}: {error}", "Report it.", 2)
        return 2


def _emit_error(words: Sequence[str], message: str, remedy: str | None, code: int) -> None:
    """The one JSON object of a call with ``--json`` that ended before it had a result."""
    if "--json" in words:
        emit({"passed": False, "error": message, "remedy": remedy or "", "exit_code": code})


def _stopped(words: Sequence[str]) -> int:
    """Ctrl-C: what became of the work so far."""
    kept = _KEPT.get(" ".join(words[:2])) or _KEPT.get(words[0]) if words else None
    say("Stopped.")
    if kept:
        say(f"  -> {kept}")
    return STOPPED


def _say_wrong(error: Any) -> None:
    """A wrong call, and the command whose help says how it is right; a call without a command has got the help."""
    words = error.format_message()
    say(words)
    if not words.startswith("Usage:"):
        context = getattr(error, "ctx", None)
        what = "lists the options" if context is not None and context.parent is not None else "lists the commands"
        say(f"  -> {context.command_path if context is not None else 'kernellab'} --help {what}.")


def _debug() -> None:
    if os.environ.get("KERNELLAB_DEBUG"):
        traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
