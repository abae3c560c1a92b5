"""``kernellab design``: one whole session without a person."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import ask_to_remember, check_folder, emit, read_text, say, settings, write_files
from kernellab.errors import CaptureError, SessionError
from kernellab.fidelity import FRAMEWORK, PRECISION

if TYPE_CHECKING:
    from kernellab.records import Role, Verdict
    from kernellab.session import DesignRequest, Session

#: what the rules Designer cannot get past, and nobody else is there to: the input is at fault, not the work
_NO_GRAPH = "CaptureError"


def design(
    task: Annotated[
        Path | None, typer.Argument(help="The task's Python file, in KernelBench's or the native form.")
    ] = None,
    words: Annotated[str | None, typer.Option(help="The operator in words instead; a model writes the task.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve the task that a model wrote from --words.")] = False,
    dsl: Annotated[str | None, typer.Option(help="triton, cpp, cuda_c; default: triton with a GPU, else cpp.")] = None,
    roles: Annotated[
        str | None,
        typer.Option(
            help='"rules", "model", "human", or "designer=model:NAME,coder=replay:FILE"; "model:A>rules" falls back.'
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="tokens=200000,usd=1,minutes=30,gpu_s=600; a request that does not fit is not sent."),
    ] = None,
    max_turns: Annotated[
        int | None, typer.Option(min=1, help="Begin no design or code after this many turns (20).")
    ] = None,
    improve: Annotated[
        bool | None, typer.Option(help="Continue after a kernel has passed; default: when a model designs or codes.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(help="Leave a part out: gate, routing, sketch, examples, intermediates; repeatable."),
    ] = None,
    tune: Annotated[
        int, typer.Option(min=0, help="Measure this many points of the rules' schedules first, and take the fastest.")
    ] = 0,
    memory: Annotated[
        str | None, typer.Option(help="on, off, or a store's place; default: kernellab.toml, else where there is one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for sketch, source and exported module.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of a constexpr; repeatable.")] = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", help="Start from a sketch (.sketch) or a source, which is lifted to a sketch."),
    ] = None,
    lift: Annotated[bool, typer.Option("--lift", help="Lift a sketch from the --from source in any case.")] = False,
    baseline: Annotated[
        list[str] | None, typer.Option(help="eager, compile, max-autotune, or a kernel's file; repeatable.")
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="T1 quick, T2 isolated (the default), T3 sealed, T4 reproduced.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="How many times to repeat the timing.")] = 1,
    allow_library: Annotated[
        bool, typer.Option("--allow-library", help="Accept kernels that call the framework's library; labelled so.")
    ] = False,
    precision: Annotated[str | None, typer.Option(help=PRECISION)] = None,
    chip: Annotated[str | None, typer.Option(help="Design for a chip of knowledge/hardware.")] = None,
    resume: Annotated[bool, typer.Option(help="Resume the session that the same call started.")] = False,
    answer: Annotated[
        Path | None, typer.Option(help="Your answer where a role is yours (- is stdin); goes on as --resume does.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Design a kernel for a task: one whole session. Exit 0 when a kernel was verified at --level, whatever its speed.

    A role that is yours (--roles designer=human) gets its brief as a file, or in $EDITOR at a terminal.
    """
    from kernellab.cli import person
    from kernellab.session import begin
    from kernellab.session.start import check_coder

    options = _options(baseline, level, repeat, allow_library, precision)
    values = settings(set_ or [])
    given = person.read_answer(answer) if answer is not None else ""
    resume = resume or answer is not None
    _check_call(dsl, roles, budget, chip)
    check_folder(out)
    if from_ is None:  # else there is code already, which the Verifier may pass
        check_coder(dsl, roles)
    began = time.perf_counter()
    request = replace(
        _asked(task, words, roles, budget, yes), dsl=dsl, roles=roles, approve="none", max_turns=max_turns, chip=chip,
        constexpr=values, options=options, fresh=not resume, budget=budget, improve=improve, ablation=without or (),
        tune=tune, memory=memory,
    )  # fmt: skip
    session = begin(_started(request, from_, lift) if from_ is not None else request)
    _run(session, resume, given, editor=not json)
    _no_graph(session)
    found = result(session, time.perf_counter() - began)
    role = person.asked(session)
    if role is not None:
        brief = person.write_brief(session, role)
        found |= {"asked": role.value, "brief": str(brief)}
    if out is not None:
        found["files"] = _write(session, out)
    found |= _backward(session, request) if session.state.best() is not None else {}
    if json:
        emit(found)
    else:
        _tell(session, found, role)
    return 0 if found["passed"] and found.get("backward", {}).get("passed", True) else 1


def _options(
    baseline: list[str] | None, level: str | None, repeat: int, allow_library: bool, precision: str | None
) -> dict[str, Any]:
    """What the Verifier is asked beside its defaults."""
    if not (baseline or level or repeat > 1 or allow_library or precision):
        return {}
    if level == "T0":
        raise SessionError("--level T0 runs no kernel, so it verifies none.", "Choose T1, T2, T3 or T4.")
    from kernellab.verifier.protocol.option_words import verify_options

    wanted = verify_options(baseline, level or "T2", repeat, allow_library, precision=precision or "")
    return wanted.model_dump(mode="json", exclude_defaults=True)


def _asked(task: Path | None, words: str | None, roles: str | None, budget: str | None, yes: bool) -> DesignRequest:
    """The request for a task's file, or for one that a model writes from words."""
    from kernellab.session import DesignRequest
    from kernellab.task import load_task

    if task is not None and words is None:
        return DesignRequest(load_task(task))
    if words is not None and task is None:
        return _worded(words, roles, budget, yes)
    what = "No task is" if task is None else "A task file and --words are both"
    raise SessionError(f"{what} given.", "Pass exactly one of TASK and --words.")


def _run(session: Session, resume: bool, given: str, editor: bool) -> None:
    """Work until the session ends or waits; a person's answer is ``given`` or, with ``editor``, written in one."""
    from kernellab.cli import person

    session.wait(progress=True)
    if resume and session.status.value in ("waiting", "paused", "stopped") and session.state.unanswered:
        session.run()
        session.wait(progress=True)
    if given:
        person.take(session, given)
    elif editor and person.has_editor():
        person.by_editor(session)


def _tell(session: Session, found: dict[str, Any], role: Role | None) -> None:
    """The session's end in words; ``role`` is the one that waits for a person."""
    from kernellab.cli import person
    from kernellab.session.record.view import turn_line

    # on a terminal each turn was told when it ended
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        for turn in session.turns:
            print(turn_line(turn))
    if found["library_faster"]:
        print(found["library_faster"])
    # the question's own remedy names calls, which a shell has not
    remedy = f"\n  -> {_WAITS}" if session.state.question and role is None else ""
    print(f"{session.status.value}: {session.reason}{remedy}")
    if role is not None:
        person.say_how(Path(found["brief"]), role)
    if session.ledger()["text"]:
        print(session.ledger()["text"])
    print(f"session {session.id}")
    if session.state.best() is not None:
        _offer(session)
    elif found["passed"]:
        say(f"{found['trust']} is a look while you edit: nothing is exported or remembered of it. --level T2 verifies.")


def _backward(session: Session, request: DesignRequest) -> dict[str, Any]:
    """What came of the backward, where the task asks for one."""
    from kernellab.cli.model.gradient import backward_of
    from kernellab.model_integration.gradient.derive import said_true

    if not said_true(session.state.created.text, "GRAD"):
        return {}
    return {"backward": backward_of(session, request)}


def _offer(session: Session) -> None:
    """A verified kernel is offered to the memory, where ``[memory]`` says to ask."""
    from kernellab.session.config import memory_defaults

    if session.state.created.memory != "off" and memory_defaults(session.workspace).offer == "ask":
        ask_to_remember(session.id, session.remember)


_WAITS = (
    "The same call with --resume asks again; in a notebook you can edit what there is, or give the role to another."
)


def _check_call(dsl: str | None, roles: str | None, budget: str | None, chip: str | None) -> None:
    """What is wrong with the call is told before the task is run.

    Raises:
        SessionError, TargetError: naming the option's word.
    """
    from kernellab.agents.roles import parse_roles
    from kernellab.dsls import get_adapter
    from kernellab.dsls.machine import named_chip
    from kernellab.models import Budget

    parse_roles(roles)
    Budget.parse(budget or "")
    if dsl is not None:
        get_adapter(dsl)
    if chip is not None:
        named_chip(chip)


def _worded(words: str, roles: str | None, budget: str | None, yes: bool) -> DesignRequest:
    """The request for a task that a model wrote and a person approved, with what was said for it."""
    from kernellab.agents.roles import is_model, parse_roles
    from kernellab.records import Role
    from kernellab.session import DesignRequest
    from kernellab.session.turn.task_from_text import propose_task

    specs, _ = parse_roles(roles)
    spec = next((s for role in (Role.DESIGNER, Role.CODER) if is_model(s := specs[role])), "model")
    found = propose_task(words, spec, budget=budget or "")
    say(found.text)
    for flag in found.flags:
        say(f"note: {flag}")
    if not yes:
        if not sys.stdin.isatty():
            raise SessionError("A task written by a model needs a person's approval.", "Read it above, then add --yes.")
        if not typer.confirm("Design a kernel for this task?", err=True):
            raise typer.Abort
    return DesignRequest(found.text, name=found.name, asked=found.exchanges)


def _no_graph(session: Session) -> None:
    """
    Raises:
        CaptureError: the rules cannot read the reference, and the session has nobody else to design.
    """
    last = session.state.standing()
    if last is not None and last.fault == _NO_GRAPH and session.state.best() is None:
        remedy = f"{last.remedy} Or design it yourself or by a model: --roles designer=model, --from FILE.sketch."
        raise CaptureError(last.error, remedy.strip())


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
        # a quick look is nobody's best, and is what --level T1 asks for
        "passed": verdict is not None and verdict.passed,
        "status": session.status.value,
        "reason": session.reason,
        "turns": len(session.turns),
        "seconds": round(seconds, 3),
        "speedup": verdict.speedup if verdict else None,
        "library_faster": library_faster(verdict),
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
        "usage": usage(session),
        "memory_fault": session.memory_fault,
        "session": session.id,
        "dsl": state.target.dsl if state.target else state.created.dsl,
        "chip": state.target.chip if state.target else None,
        "precision": state.created.options.get("precision") or FRAMEWORK,
    }


def library_faster(verdict: Verdict | None) -> str:
    """One sentence where the framework's own kernel is faster for certain; "" elsewhere."""
    eager = verdict.against("eager") if verdict is not None and verdict.passed else None
    if eager is None or eager.high >= 1.0:
        return ""
    return f"The library is faster here: this kernel runs at {eager.speedup:.2f}x eager's speed, so keep the library."


def usage(session: Session) -> dict[str, Any]:
    """The ledger; ``cost`` is in US dollars, None where a model's price is not known."""
    ledger = session.ledger()
    total = ledger["total"]
    return {
        "model_calls": total["requests"],
        "prompt_tokens": total["input_tokens"],
        "completion_tokens": total["output_tokens"],
        "cost": None if total["unpriced"] else total["usd"] or 0.0,
        **ledger,
    }


def _started(request: DesignRequest, path: Path, lift: bool) -> DesignRequest:
    """From a sketch, a source in the target's DSL, or a foreign one that a sketch is to be lifted from."""
    if path.suffix in (".sketch", ".txt"):
        return replace(request, sketch=read_text(path, "sketch"))
    from kernellab.dsls.sources import read_source

    own = read_source(path, None)
    if any(name.endswith((".cu", ".cuh")) for name in own.files):
        own = own.model_copy(update={"dsl": "cuda_c"})
    if lift or (request.dsl is not None and own.dsl != request.dsl):
        return replace(request, source=own, lift=True)
    return replace(request, source=read_source(path, request.dsl))


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
