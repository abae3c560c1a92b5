"""``kernellab export`` and ``kernellab replay``: what leaves a session as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernellab.cli.output import emit, say
from kernellab.errors import EvolveError, KernellabError, SessionError, VerifierError, counted
from kernellab.records.standing import Standing

if TYPE_CHECKING:
    from kernellab.export import Package, VerifiedKernel
    from kernellab.export.exportable import Choice
    from kernellab.session.turn.sweeping import Sweep

replay_app = typer.Typer(
    help="Record a session's exchanges with models, to replay them.", no_args_is_help=True, rich_markup_mode=None
)

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


def export(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(help="Sessions by id or name: several kernels of one task become one operator."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The module to write, or the folder of --layout.")] = None,
    layout: Annotated[
        str,
        typer.Option(help="Layout of --out: module (one file), package (a folder), kernels (Hugging Face's kernels)."),
    ] = "module",
    wheel: Annotated[Path | None, typer.Option(help="A folder for a wheel.")] = None,
    prebuilt: Annotated[
        bool | None,
        typer.Option(
            "--prebuilt/--no-prebuilt",
            help="Carry compiled code, so that an import compiles nothing. [default: with --out; not in a wheel, which "
            "it binds to this platform]",
        ),
    ] = None,
    version: Annotated[str, typer.Option(help="The wheel's version.")] = "0.1.0",
    capsule: Annotated[
        Path | None,
        typer.Option(
            help="A capsule: task, sketch, source and verdict in one file; `kernellab verify FILE` repeats it."
        ),
    ] = None,
    solution: Annotated[
        Path | None, typer.Option(help="A file for flashinfer-bench's Solution; its Definition is written next to it.")
    ] = None,
    graph: Annotated[
        bool, typer.Option("--graph", help="Launch several kernels of one call as one CUDA graph.")
    ] = False,
    trajectories: Annotated[
        Path | None, typer.Option(help="A .jsonl or .parquet file for what models were asked; all sessions if none.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            help="Form of --trajectories: rows (all that is known), sft (chats of what passed), dpo "
            "(preference pairs of one prompt), rl (prompts with replies and rewards); as TRL takes them."
        ),
    ] = "rows",
    over: Annotated[
        str | None, typer.Option(help="Choose among the kernels by the size of this Dim, as measured now.")
    ] = None,
    licence: Annotated[
        str, typer.Option(help="Licence of the trajectories, or of a kernels repository.")
    ] = "unspecified",
    json: Json = False,
) -> int:
    """Write verified kernels as an operator that stands alone, or what models were asked as training data."""
    writes_files = any(path is not None for path in (out, wheel, capsule, solution))
    if writes_files == (trajectories is not None):
        raise SessionError(
            "No output is named." if not writes_files else "Kernels and trajectories cannot be exported together.",
            "Pass --out, --wheel, --capsule or --solution for kernels, or --trajectories FILE.",
        )
    if trajectories is not None:
        if len(sessions or []) > 1:
            raise SessionError("Trajectories are exported for one session or for all.", "Name one session, or none.")
        return _trajectories(sessions[0] if sessions else None, trajectories, form, licence, json)
    if form != "rows":
        raise SessionError(f"--form {form} is of trajectories, and kernels are exported.", "Pass --trajectories FILE.")
    if not sessions:
        raise SessionError("No session is named.", "Run kernellab export SESSION --out FILE.")
    if layout not in _LAYOUTS:
        raise SessionError(f"There is no layout {layout!r}.", f"Choose one of {', '.join(_LAYOUTS)}.")
    if len(sessions) > 1 and (capsule or solution):
        raise SessionError("A capsule and a Solution hold one kernel.", "Name one session.")
    if prebuilt and out is None and wheel is None:
        raise SessionError("--prebuilt is for a module or a wheel.", "Pass --out FILE or --wheel FOLDER too.")
    kernels = [_taken(session) for session in sessions]
    files: dict[str, str] = {}
    if out is not None or wheel is not None:
        from kernellab.export import compiled, package

        choice = _measured(sessions, over)[1] if over is not None else None
        one = _as_one(sessions[0], kernels, choice) if len(kernels) > 1 else None
        exported = package(kernels, graph=graph, choice=choice, one=one)
        with_code = exported if prebuilt is False or (wheel and not out and not prebuilt) else compiled(exported)
        for why in with_code.source_only:
            say(why)
        if prebuilt and not with_code.binaries:
            raise KernellabError("There is no compiled code to carry.", "Leave out --prebuilt.")
        if out is not None:
            files[layout] = str(_write(with_code, layout, out, licence))
        if wheel is not None:
            from kernellab.export.wheel import write_wheel

            files["wheel"] = str(write_wheel(with_code if prebuilt else exported, wheel, version))
    files |= _of_one(kernels[0], capsule, solution)
    if json:
        sources = [kernel.source.hash for kernel in kernels]
        emit({
            "file": next(iter(files.values())), "files": files, "sessions": list(sessions), "sources": sources,
            "verified": [kernel.said for kernel in kernels], "advice": [kernel.verdict.advice for kernel in kernels],
        })  # fmt: skip
    else:
        for path in files.values():
            say(f"wrote {path}")
        for kernel in kernels:
            if kernel.verdict.advice:
                say(f"{kernel.name}: {kernel.verdict.advice}")
    return 0


def compare(
    sessions: Annotated[list[str], typer.Argument(help="Sessions by id or name: kernels of one task.")],
    over: Annotated[str, typer.Option(help="The Dim whose range is measured.")],
    json: Json = False,
) -> int:
    """Time the kernels of sessions next to eager over the range of a Dim, and say which to choose where. Exit 1 where
    one is wrong, or slower than eager for certain, at a size."""
    sweeps, choice = _measured(sessions, over)
    paired = [p.ranking.paired for one in sweeps for p in one.points if p.ranking.paired is not None]
    slower = [comparison for comparison in paired if comparison.standing is Standing.SLOWER]
    if json:
        named = dict(zip(sessions, sweeps, strict=True))
        points = {
            n: [{"size": p.size, "advice": p.advice, **p.ranking.model_dump(mode="json")} for p in s.points]
            for n, s in named.items()
        }
        starts = [{"from": at, "kernel": "eager" if k is None else sessions[k]} for at, k in choice.starts]
        emit({"dim": over, "points": points, "choice": starts})
    else:
        print("\n\n".join(f"{name}\n{one}" for name, one in zip(sessions, sweeps, strict=True)))
        print("\n".join(("", "choose", *choice.words(sessions))))
    return 1 if slower or any(one.wrong for one in sweeps) else 0


def share(
    name: Annotated[str, typer.Argument(help="A session or a search, by id or name.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; default: the name.")] = None,
    json: Json = False,
) -> int:
    """Write a session or a search as one HTML file: what was recorded, to look through without a kernel."""
    from kernellab.evolve import open_run
    from kernellab.notebook.saved.shared import share
    from kernellab.session import open_session

    try:
        path, size = share(open_session(name, resume=False), out)
    except SessionError as missing:
        try:
            path, size = share(open_run(name), out)
        except EvolveError:
            raise missing from None
    emit({"file": str(path), "bytes": size}) if json else say(f"wrote {path} ({size / 1e6:.1f} MB)")
    return 0


def _measured(sessions: Sequence[str], dim: str) -> tuple[list[Sweep], Choice]:
    """The sessions' kernels at the same sizes of a Dim, and the choice among them."""
    from kernellab.export.package import same
    from kernellab.export.reference import reference_text
    from kernellab.session import open_session
    from kernellab.session.turn.sweeping import chosen, sizes_of

    opened = [open_session(name, resume=False) for name in sessions]
    first, *others = [one.taken() for one in opened]
    for other in others:
        same(first, reference_text(first.task), other)
    sizes = sizes_of([first.task, *(other.task for other in others)], dim)
    sweeps = [one.timings.over(dim, lambda p, name=one.name: say(f"{name} {p.text}"), sizes) for one in opened]  # type: ignore[misc]
    return sweeps, chosen(sweeps)


def _as_one(session: str, kernels: Sequence[VerifiedKernel], choice: Choice | None) -> VerifiedKernel | None:
    """The operator of all ``kernels``, verified as one on the device of ``session``; None, said, where they cannot be.

    Raises:
        VerifierError: it is wrong, or could not be judged.
    """
    from kernellab.export.joined import joined
    from kernellab.session import open_session

    try:
        one = joined(kernels, choice)
    except KernellabError as apart:
        say(f"{apart.message} {apart.remedy}")
        return None
    result = open_session(session, resume=False).timings.as_one(one)
    if not result.verdict.passed:
        raise VerifierError(f"As one operator they are wrong: {result.verdict.reason}", "Export them one by one.")
    say(f"verified as one: {result.said}")
    return result


def _of_one(kernel: VerifiedKernel, capsule: Path | None, solution: Path | None) -> dict[str, str]:
    """Writes what holds one kernel; the files by what they are."""
    files: dict[str, str] = {}
    if capsule is not None:
        from kernellab.export.capsule import write_capsule

        files["capsule"] = str(write_capsule(kernel, capsule))
    if solution is not None:
        from kernellab.export.layouts import write_solution

        one, other = write_solution(kernel, solution)
        files |= {"solution": str(one), "definition": str(other)}
    return files


_NOTHING = {
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


def _trajectories(session: str | None, path: Path, form: str, licence: str, json: bool) -> int:
    """Exit 1 when there is nothing to write."""
    from kernellab.session import open_session, sessions
    from kernellab.session.record.trajectories import FORMS, in_form, rows, unanswered, write_trajectories

    if form not in FORMS:
        raise SessionError(f"There is no form {form!r} of trajectories.", f"Choose one of {', '.join(FORMS)}.")
    chosen = [open_session(which, resume=False) for which in ([session] if session else sessions())]
    formatted = in_form((row for each in chosen for row in rows(each.state, licence)), form)
    left_out = sum(unanswered(each.state) for each in chosen)
    count = write_trajectories(path, formatted) if formatted else 0
    if json:
        file = str(path) if formatted else None
        emit({"file": file, "rows": count, "left_out": left_out, "sessions": [each.id for each in chosen]})
    else:
        without = f"; {left_out} left out that no model answered" if left_out else ""
        unit = "exchange" if form == "rows" else "row"
        what = f"wrote {counted(count, unit)} to {path}" if formatted else _NOTHING[form]
        say(f"{what}{without}")
    return 0 if formatted else 1


@replay_app.command("export")
def export_replay(
    session: Annotated[str, typer.Argument(help="A session's id, or its name for the newest.")],
    out: Annotated[Path, typer.Option(help="The replay file to write (JSON lines).")],
    note: Annotated[str, typer.Option(help="A description of the recording, stored in its header.")] = "",
    json: Json = False,
) -> int:
    """Write a session's exchanges as a replay file: --roles replay:FILE plays them again without a key or a network."""
    from kernellab.models import read_replay, write_replay
    from kernellab.session import open_session

    opened = open_session(session, resume=False)
    exchanges = opened.trace.exchanges()
    if not exchanges:
        raise SessionError(f"{opened.name} asked no model.", "Design it with --roles model first.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_replay(out, exchanges, note)
    except OSError as error:
        raise SessionError(f"{out} cannot be written: {error.strerror}.", "Give another path.") from None
    if json:
        emit({"file": str(out), "exchanges": len(exchanges), "mark": read_replay(out).mark, "session": opened.id})
    else:
        say(f"wrote {counted(len(exchanges), 'exchange')} to {out}, {read_replay(out).mark}")
    return 0
