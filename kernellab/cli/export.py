"""``kernellab export`` and ``kernellab replay``: what leaves a session as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kernellab.cli.output import emit, say
from kernellab.cli.parameters import command
from kernellab.errors import EvolveError, KernellabError, SessionError, VerifierError, counted
from kernellab.options.commands.exports import CompareOptions, ExportOptions, ReplayOptions, ShareOptions
from kernellab.records.standing import Standing

if TYPE_CHECKING:
    from kernellab.export import Package, VerifiedKernel
    from kernellab.export.exportable import Choice
    from kernellab.session.turn.sweeping import Sweep

replay_app = typer.Typer(
    help="Record a session's exchanges with models, to replay them.", no_args_is_help=True, rich_markup_mode=None
)


def export(
    options: ExportOptions,
    sessions: Annotated[
        list[str] | None,
        typer.Argument(help="Sessions by id or name: several kernels of one task become one operator."),
    ] = None,
) -> int:
    """Write verified kernels as an operator that stands alone, or what models were asked as training data."""
    named = sessions or []
    _check_outputs(named, options)
    if options.trajectories is not None:
        return _export_trajectories(named[0] if named else None, options.trajectories, options)
    kernels = [_taken(session) for session in named]
    files: dict[str, str] = {}
    if options.out is not None or options.wheel is not None:
        files |= _write_operator(named, kernels, options)
    files |= _write_single(kernels[0], options)
    if options.as_json:
        sources = [kernel.source.hash for kernel in kernels]
        emit({
            "file": next(iter(files.values())), "files": files, "sessions": list(named), "sources": sources,
            "verified": [kernel.summary for kernel in kernels], "advice": [kernel.verdict.advice for kernel in kernels],
        })  # fmt: skip
    else:
        for path in files.values():
            say(f"wrote {path}")
        for kernel in kernels:
            if kernel.verdict.advice:
                say(f"{kernel.name}: {kernel.verdict.advice}")
    return 0


def _check_outputs(sessions: Sequence[str], options: ExportOptions) -> None:
    """Raises SessionError: the options do not say one thing to write, or say it of something else."""
    writes_kernels = any(path is not None for path in (options.out, options.wheel, options.capsule, options.solution))
    writes_trajectories = options.trajectories is not None
    if writes_kernels == writes_trajectories:
        raise SessionError(
            "Kernels and trajectories cannot be exported together." if writes_kernels else "No output is named.",
            "Pass --out, --wheel, --capsule or --solution for kernels, or --trajectories FILE.",
        )
    if writes_trajectories:
        if len(sessions) > 1:
            raise SessionError("Trajectories are exported for one session or for all.", "Name one session, or none.")
        return
    if options.form != "rows":
        raise SessionError(
            f"--form {options.form} is of trajectories, and kernels are exported.", "Pass --trajectories FILE."
        )
    if not sessions:
        raise SessionError("No session is named.", "Run kernellab export SESSION --out FILE.")
    if options.layout not in _LAYOUTS:
        raise SessionError(f"There is no layout {options.layout!r}.", f"Choose one of {', '.join(_LAYOUTS)}.")
    if len(sessions) > 1 and (options.capsule or options.solution):
        raise SessionError("A capsule and a Solution hold one kernel.", "Name one session.")
    if options.prebuilt and options.out is None and options.wheel is None:
        raise SessionError("--prebuilt is for a module or a wheel.", "Pass --out FILE or --wheel FOLDER too.")


def _write_operator(sessions: Sequence[str], kernels: list[VerifiedKernel], options: ExportOptions) -> dict[str, str]:
    """Writes the module of --out and the wheel; the files by what they are."""
    from kernellab.export import compiled, package
    from kernellab.export.wheel import write_wheel

    choice = _measured(sessions, options.over).choice if options.over is not None else None
    joined = _joined(sessions[0], kernels, choice) if len(kernels) > 1 else None
    sources = package(kernels, graph=options.graph, choice=choice, verified_as_one=joined)
    # a wheel is bound to this platform by compiled code, so it carries that only where it is asked for
    carries_code = options.prebuilt or (options.prebuilt is None and options.out is not None)
    exported = compiled(sources) if carries_code else sources
    for why in exported.source_only:
        say(why)
    if options.prebuilt and not exported.binaries:
        raise KernellabError("There is no compiled code to carry.", "Leave out --prebuilt.")
    files: dict[str, str] = {}
    if options.out is not None:
        files[options.layout] = str(_write(exported, options.layout, options.out, options.licence))
    if options.wheel is not None:
        in_wheel = exported if options.prebuilt else sources
        files["wheel"] = str(write_wheel(in_wheel, options.wheel, options.version))
    return files


def compare(
    sessions: Annotated[list[str], typer.Argument(help="Sessions by id or name: kernels of one task.")],
    options: CompareOptions,
) -> int:
    """Time the kernels of sessions next to eager over the range of a Dim, and say which to choose where. Exit 1 where
    one is wrong, or slower than eager for certain, at a size."""
    measured = _measured(sessions, options.over)
    paired = [p.ranking.paired for sweep in measured.sweeps for p in sweep.points if p.ranking.paired is not None]
    is_slower = any(comparison.standing is Standing.SLOWER for comparison in paired)
    is_wrong = any(sweep.wrong for sweep in measured.sweeps)
    if options.as_json:
        emit(_sweep_facts(sessions, options.over, measured))
    else:
        print("\n\n".join(f"{name}\n{sweep}" for name, sweep in zip(sessions, measured.sweeps, strict=True)))
        print("\n".join(("", "choose", *measured.choice.words(sessions))))
    return 1 if is_slower or is_wrong else 0


def _sweep_facts(sessions: Sequence[str], dim: str, measured: _Measured) -> dict[str, Any]:
    """The JSON of ``compare``: each kernel's points, and from which size on which is chosen."""
    points = {}
    for name, sweep in zip(sessions, measured.sweeps, strict=True):
        points[name] = [{"size": p.size, "advice": p.advice, **p.ranking.model_dump(mode="json")} for p in sweep.points]
    starts = [
        {"from": size, "kernel": "eager" if kernel is None else sessions[kernel]}
        for size, kernel in measured.choice.starts
    ]
    return {"dim": dim, "points": points, "choice": starts}


def share(
    name: Annotated[str, typer.Argument(help="A session or a search, by id or name.")],
    options: ShareOptions,
) -> int:
    """Write a session or a search as one HTML file: what was recorded, to look through without a kernel."""
    from kernellab.evolve import open_run
    from kernellab.notebook.saved.shared import share
    from kernellab.session import open_session

    try:
        path, size = share(open_session(name, resume=False), options.out)
    except SessionError as missing:
        try:
            path, size = share(open_run(name), options.out)
        except EvolveError:
            raise missing from None
    emit({"file": str(path), "bytes": size}) if options.as_json else say(f"wrote {path} ({size / 1e6:.1f} MB)")
    return 0


class _Measured(NamedTuple):
    """The sweep of each session's kernel, in the sessions' order, and which kernel is best from which size on."""

    sweeps: list[Sweep]
    choice: Choice


def _measured(sessions: Sequence[str], dim: str) -> _Measured:
    """The sessions' kernels at the same sizes of a Dim, and the choice among them."""
    from kernellab.export.package import check_same
    from kernellab.export.reference import reference_text
    from kernellab.session import open_session
    from kernellab.session.turn.sweeping import chosen, sizes_of

    opened = [open_session(name, resume=False) for name in sessions]
    first, *others = [one.taken() for one in opened]
    for other in others:
        check_same(first, reference_text(first.task), other)
    sizes = sizes_of([first.task, *(other.task for other in others)], dim)
    sweeps = [one.timings.over(dim, lambda p, name=one.name: say(f"{name} {p.text}"), sizes) for one in opened]  # type: ignore[misc]
    return _Measured(sweeps, chosen(sweeps))


def _joined(session: str, kernels: Sequence[VerifiedKernel], choice: Choice | None) -> VerifiedKernel | None:
    """The operator of all ``kernels``, verified as one on the device of ``session``; None, said, where they cannot be.

    Raises:
        VerifierError: it is wrong, or could not be judged.
    """
    from kernellab.export.joined import joined
    from kernellab.session import open_session

    try:
        one = joined(kernels, choice)
    except KernellabError as reason:
        say(f"{reason.message} {reason.remedy}")
        return None
    result = open_session(session, resume=False).timings.as_one(one)
    if not result.verdict.passed:
        raise VerifierError(f"As one operator they are wrong: {result.verdict.reason}", "Export them one by one.")
    say(f"verified as one: {result.summary}")
    return result


def _write_single(kernel: VerifiedKernel, options: ExportOptions) -> dict[str, str]:
    """Writes what holds one kernel, a capsule and a Solution; the files by what they are."""
    files: dict[str, str] = {}
    if options.capsule is not None:
        from kernellab.export.capsule import write_capsule

        files["capsule"] = str(write_capsule(kernel, options.capsule))
    if options.solution is not None:
        from kernellab.export.layouts import write_solution

        solution, definition = write_solution(kernel, options.solution)
        files |= {"solution": str(solution), "definition": str(definition)}
    return files


_NO_ROWS = {
    "rows": "No model answered in these sessions", "rl": "No model answered in these sessions",
    "sft": "No reply led to a kernel that passed", "dpo": "No prompt had two replies of different worth",
}  # fmt: skip
_LAYOUTS = ("module", "package", "kernels")


def _taken(session: str) -> VerifiedKernel:
    from kernellab.session import open_session

    opened = open_session(session, resume=False)
    if opened.state.best() is None:
        raise SessionError(
            f"{opened.name} has no kernel that passed.", "Design it to its end first, at --level T2 or above."
        )
    return opened.taken()


def _write(exported: Package, layout: str, out: Path, licence: str) -> Path:
    from kernellab.content import written
    from kernellab.export import module_text
    from kernellab.export.layouts import write_kernels

    if layout == "module":
        return written(out, module_text(exported))
    return exported.write(out) if layout == "package" else write_kernels(exported, out, licence)


def _export_trajectories(session: str | None, path: Path, options: ExportOptions) -> int:
    """Exit 1 when there is nothing to write."""
    from kernellab.session import open_session, sessions
    from kernellab.session.record.trajectories import FORMS, in_form, rows, unanswered, write_trajectories

    form = options.form
    if form not in FORMS:
        raise SessionError(f"There is no form {form!r} of trajectories.", f"Choose one of {', '.join(FORMS)}.")
    chosen = [open_session(which, resume=False) for which in ([session] if session else sessions())]
    formatted = in_form((row for each in chosen for row in rows(each.state, options.licence)), form)
    left_out = sum(unanswered(each.state) for each in chosen)
    count = write_trajectories(path, formatted) if formatted else 0
    if options.as_json:
        file = str(path) if formatted else None
        emit({"file": file, "rows": count, "left_out": left_out, "sessions": [each.id for each in chosen]})
    else:
        without = f"; {left_out} left out that no model answered" if left_out else ""
        unit = "exchange" if form == "rows" else "row"
        what = f"wrote {counted(count, unit)} to {path}" if formatted else _NO_ROWS[form]
        say(f"{what}{without}")
    return 0 if formatted else 1


@command(replay_app, "export")
def export_replay(
    session: Annotated[str, typer.Argument(help="A session's id, or its name for the newest.")],
    options: ReplayOptions,
) -> int:
    """Write a session's exchanges as a replay file: --roles replay:FILE plays them again without a key or a network."""
    from kernellab.models import read_replay, write_replay
    from kernellab.session import open_session

    opened = open_session(session, resume=False)
    exchanges = opened.trace.exchanges()
    if not exchanges:
        raise SessionError(f"{opened.name} asked no model.", "Design it with --roles model first.")
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_replay(options.out, exchanges, options.note)
    except OSError as error:
        raise SessionError(f"{options.out} cannot be written: {error.strerror}.", "Give another path.") from None
    mark = read_replay(options.out).mark
    if options.as_json:
        emit({"file": str(options.out), "exchanges": len(exchanges), "mark": mark, "session": opened.id})
    else:
        say(f"wrote {counted(len(exchanges), 'exchange')} to {options.out}, {mark}")
    return 0
