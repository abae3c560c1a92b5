"""``kernellab export`` and ``kernellab replay``: what leaves a session as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernellab.cli.output import emit, say
from kernellab.errors import SessionError, counted

replay_app = typer.Typer(
    help="Recorded exchanges with models, to be played again.", no_args_is_help=True, rich_markup_mode=None
)

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


def export(
    session: Annotated[str | None, typer.Argument(help="A session's id, or its name for the newest.")] = None,
    out: Annotated[Path | None, typer.Option(help="The module to write.")] = None,
    trajectories: Annotated[
        Path | None, typer.Option(help="A .jsonl or .parquet file for what models were asked; all sessions if none.")
    ] = None,
    licence: Annotated[str, typer.Option(help="Under which the trajectories may be used.")] = "unspecified",
    json: Json = False,
) -> int:
    """Write a session's best kernel as a stand-alone module, or what its models were asked as training data."""
    if (out is None) == (trajectories is None):
        raise SessionError("There is nothing to write.", "Pass --out FILE, --trajectories FILE, or both.")
    if trajectories is not None:
        return _trajectories(session, trajectories, licence, json)
    if session is None:
        raise SessionError("Which session's kernel?", "kernellab export SESSION --out FILE.")
    assert out is not None
    from kernellab.session import open_session

    found = open_session(session, resume=False)
    best = found.state.best()
    if best is None:
        raise SessionError(f"{found.name} has no kernel that passed.", "Design it to its end first.")
    path = found.export(out)
    if json:
        emit({"file": str(path), "session": found.id, "turn": best.turn.number, "source": best.candidate.source.hash})
    else:
        say(f"wrote {path}")
    return 0


def _trajectories(session: str | None, path: Path, licence: str, json: bool) -> int:
    """Exit 1 when no model ever answered: there is nothing to write."""
    from kernellab.session import open_session, sessions
    from kernellab.session.record.trajectories import rows, unanswered, write_trajectories

    chosen = [open_session(which, resume=False) for which in ([session] if session else sessions())]
    found = [row for each in chosen for row in rows(each.state, licence)]
    left_out = sum(unanswered(each.state) for each in chosen)
    count = write_trajectories(path, found) if found else 0
    if json:
        file = str(path) if found else None
        emit({"file": file, "rows": count, "left_out": left_out, "sessions": [each.id for each in chosen]})
    else:
        without = f"; {left_out} left out that no model answered" if left_out else ""
        what = f"wrote {counted(count, 'exchange')} to {path}" if found else "No model answered in these sessions"
        say(f"{what}{without}")
    return 0 if found else 1


@replay_app.command("export")
def export_replay(
    session: Annotated[str, typer.Argument(help="A session's id, or its name for the newest.")],
    out: Annotated[Path, typer.Option(help="The replay file to write (JSON lines).")],
    note: Annotated[str, typer.Option(help="A line about the recording, kept in its header.")] = "",
    json: Json = False,
) -> int:
    """Write a session's exchanges as a replay file: --roles replay:FILE plays them again without a key or a network."""
    from kernellab.models import read_replay, write_replay
    from kernellab.session import open_session

    found = open_session(session, resume=False)
    exchanges = found.exchanges()
    if not exchanges:
        raise SessionError(f"{found.name} asked no model.", "Design it with --roles model first.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_replay(out, exchanges, note)
    except OSError as error:
        raise SessionError(f"{out} cannot be written: {error.strerror}.", "Give another path.") from None
    if json:
        emit({"file": str(out), "exchanges": len(exchanges), "mark": read_replay(out).mark, "session": found.id})
    else:
        say(f"wrote {counted(len(exchanges), 'exchange')} to {out}, {read_replay(out).mark}")
    return 0
