"""``kernellab design`` and ``kernellab export``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli_output import emit, read_text, say, settings, write_files
from kernellab.errors import SessionError

if TYPE_CHECKING:
    from kernellab.session import Session


def design(
    task: Annotated[Path, typer.Argument(help="The task's Python file, in KernelBench's or the native form.")],
    dsl: Annotated[str | None, typer.Option(help="triton or cpp; default: triton with a GPU, else cpp.")] = None,
    roles: Annotated[str | None, typer.Option(help='"rules", or "designer=human,coder=rules".')] = None,
    max_turns: Annotated[int, typer.Option(min=1, help="Stop after so many turns.")] = 20,
    out: Annotated[Path | None, typer.Option(help="A folder for sketch, source and exported module.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of a constexpr; repeatable.")] = None,
    from_: Annotated[Path | None, typer.Option("--from", help="Start from a sketch (.sketch) or a source.")] = None,
    baseline: Annotated[list[str] | None, typer.Option(help="eager, compile; repeatable.")] = None,
    level: Annotated[str | None, typer.Option(help="T1 quick, T2 isolated (the default), T4 reproduced.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="How many times the timing is done.")] = 1,
    chip: Annotated[str | None, typer.Option(help="Design for a chip of knowledge/hardware.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the session that the same call began.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """One whole session without a person. Exit 0 when a kernel was verified, whatever its speed."""
    from kernellab.session import design as begin
    from kernellab.session.view import turn_line
    from kernellab.task import load_task

    start: dict[str, Any] = {}
    if from_ is not None:
        start = _start(from_, dsl)
    if baseline or level or repeat > 1:
        from kernellab.cli_verify import verify_options

        wanted = verify_options(baseline, level or "T2", repeat)
        start["options"] = wanted.model_dump(mode="json", exclude_defaults=True)
    values = settings(set_ or [])
    began = time.perf_counter()
    loaded = load_task(task)
    session = begin(
        loaded, dsl=dsl, roles=roles, approve="none", max_turns=max_turns, chip=chip, constexpr=values,
        fresh=not resume, **start,
    )  # fmt: skip
    session.wait(progress=True)
    found = result(session, time.perf_counter() - began)
    if out is not None:
        found["files"] = _write(session, out)
    if json:
        emit(found)
    else:
        for turn in session.turns:
            print(turn_line(turn))
        question = session.state.question
        print(f"{session.status.value}: {session.reason}" + (f"\n  -> {question.answer}" if question else ""))
        print(f"session {session.id}")
    return 0 if found["passed"] else 1


def result(session: Session, seconds: float) -> dict[str, Any]:
    """The command's JSON: the best candidate's figures, or why there is none."""
    state = session.state
    best = state.best()
    verdict = best.verdict if best else next((t.verdict for t in reversed(state.path()) if t.verdict), None)
    candidate = best.candidate if best else state.candidate()
    designed = state.sketch_turn(best.turn.id if best else None)
    eager = verdict.against("eager") if verdict else None
    compiled = verdict.against("compile") if verdict else None
    return {
        "passed": best is not None,
        "status": session.status.value,
        "reason": session.reason,
        "turns": len(session.turns),
        "seconds": round(seconds, 3),
        "speedup": verdict.speedup if verdict else None,
        "speedup_compile": compiled.speedup if compiled else None,
        "baseline_ms": eager.baseline_time.median_ms if eager else None,
        "compile_ms": compiled.baseline_time.median_ms if compiled else None,
        "time_ms": verdict.time.median_ms if verdict and verdict.time else None,
        "sol_ms": verdict.sol_ms if verdict else None,
        "label": verdict.label if verdict else "",
        "trust": verdict.trust.value if verdict else None,
        "stage": verdict.stage.value if verdict else None,
        "source_files": dict(candidate.source.files) if candidate else {},
        "sketch": designed.sketch if designed else None,
        "constexpr": dict(candidate.constexpr) if candidate else {},
        "usage": {"model_calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "cost": 0.0},
        "session": session.id,
        "dsl": state.target.dsl if state.target else state.created.dsl,
        "chip": state.target.chip if state.target else None,
    }


def export(
    session: Annotated[str, typer.Argument(help="A session's id, or its name for the newest.")],
    out: Annotated[Path, typer.Option(help="The module to write.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Write a session's best kernel as a stand-alone module: torch and the DSL's runtime, no kernellab."""
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


def _start(path: Path, dsl: str | None) -> dict[str, Any]:
    if path.suffix in (".sketch", ".txt"):
        return {"sketch": read_text(path, "sketch")}
    from kernellab.cli_verify import read_source

    return {"source": read_source(path, dsl)}


def _write(session: Session, out: Path) -> list[str]:
    state = session.state
    best = state.best()
    candidate = best.candidate if best else state.candidate()
    designed = state.sketch_turn(best.turn.id if best else None)
    files: dict[str, str] = {}
    if designed is not None and designed.sketch is not None:
        files[f"{session.name}.sketch"] = designed.sketch
    if candidate is not None:
        files |= {f"source/{name}": text for name, text in candidate.source.files.items()}
    written = write_files(out, files)
    if best is not None:
        written.append(str(session.export(out / f"{session.name}.py")))
    return written
