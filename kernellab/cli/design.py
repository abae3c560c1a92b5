"""``kernellab design``: one whole session without a person."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import ask_to_remember, check_folder, emit, read_text, say, write_kernel
from kernellab.errors import CaptureError, KernellabError, SessionError, names_of
from kernellab.options.commands.designs import DesignShell
from kernellab.options.design import DesignCall, DesignVerification
from kernellab.options.fidelity import FRAMEWORK
from kernellab.records import Role, Verdict
from kernellab.task import load_task

if TYPE_CHECKING:
    from kernellab.session import DesignRequest, Session
    from kernellab.session.turn.task_from_text import Proposal


def design(
    call: DesignCall,
    verification: DesignVerification,
    shell: DesignShell,
    task: Annotated[
        Path | None, typer.Argument(help="The task's Python file, in KernelBench's or the native form.")
    ] = None,
) -> int:
    """Design a kernel for a task: one whole session. Exit 0 when a kernel was verified at --level, whatever its speed.

    A role that is yours (--roles designer=human) gets its brief as a file, or in $EDITOR at a terminal.
    """
    from kernellab.cli import person
    from kernellab.session import begin
    from kernellab.session.start import check_coder
    from kernellab.verifier.protocol.option_words import for_design

    options = for_design(verification)
    answer = person.read_answer(shell.answer) if shell.answer is not None else ""
    _check_call(call)
    if call.lift and shell.start is None:
        raise SessionError("--lift says how the --from source is read.", "Give the source: --from FILE.")
    check_folder(shell.out)
    if shell.start is None:  # else there is code already, which the Verifier may pass
        check_coder(call.dsl, call.roles)
    began = time.perf_counter()
    request = _request_of(task, call, shell).model_copy(
        update={
            "approve": "permission" if person.at_terminal() else "none",
            "options": options,
            "fresh": not shell.continues,
        }
    )
    session = begin(_with_start(request, shell.start) if shell.start is not None else request)
    _run(session, shell.continues, answer, editor=not shell.as_json)
    _raise_unread_reference(session)
    role = person.asked(session)
    report = replace(
        _report(session, time.perf_counter() - began),
        brief=_Brief(role, person.write_brief(session, role)) if role is not None else None,
        files=_write(session, shell.out) if shell.out is not None else None,
        backward=_backward(session, request, shell.out) if session.state.best() is not None else None,
    )
    if shell.as_json:
        emit(report.to_json())
    else:
        _print_end(session, report)
    return 0 if report.passed and (report.backward is None or report.backward["passed"]) else 1


def _request_of(task: Path | None, call: DesignCall, shell: DesignShell) -> DesignRequest:
    """The request for a task's file, or for one that a model writes from words."""
    from kernellab.session import DesignRequest

    options = call.model_dump(exclude_unset=True)
    if task is not None and shell.words is None:
        return DesignRequest(task=load_task(task), **options)
    if shell.words is not None and task is None:
        proposal = _task_from_words(shell.words, call, shell.yes)
        return DesignRequest(task=proposal.text, name=proposal.name, asked=tuple(proposal.exchanges), **options)
    what = "No task is" if task is None else "A task file and --words are both"
    raise SessionError(f"{what} given.", "Pass exactly one of TASK and --words.")


def _run(session: Session, resume: bool, answer: str, editor: bool) -> None:
    """Work until the session ends or waits; a person's answer is ``answer`` or, with ``editor``, written in one."""
    from kernellab.cli import person

    person.wait(session)
    if resume and session.status.value in ("waiting", "paused", "stopped") and session.state.unanswered:
        session.run()
        person.wait(session)
    if answer:
        person.take(session, answer)
    elif editor and person.has_editor():
        person.by_editor(session)


def _print_end(session: Session, report: DesignReport) -> None:
    """The session's end in words."""
    from kernellab.cli import person
    from kernellab.session.record.view import turn_line

    # on a terminal each turn was told when it ended
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        for turn in session.turns:
            print(turn_line(turn))
    if report.library_faster:
        print(report.library_faster)
    # the question's own remedy names calls, which a shell has not
    remedy = f"\n  -> {_RESUME_HINT}" if session.state.question and report.brief is None else ""
    print(f"{session.state.status_words}: {session.reason}{remedy}")
    if report.brief is not None:
        person.say_how(report.brief.path, report.brief.role)
    if session.trace.ledger()["text"]:
        print(session.trace.ledger()["text"])
    print(f"session {session.id}")
    if session.state.best() is not None:
        _offer_to_memory(session)
    elif report.passed:
        say(f"{report.trust} is a look while you edit: nothing is exported or remembered of it. --level T2 verifies.")


def _backward(session: Session, request: DesignRequest, out: Path | None) -> dict[str, Any] | None:
    """What came of the backward; None if the task asks for none. The module in ``out`` becomes the pair's."""
    from kernellab.model_integration.gradient import said_true

    if not said_true(session.state.created.text, "GRAD"):
        return None
    return backward_of(session, request, out)


def _offer_to_memory(session: Session) -> None:
    """A verified kernel is offered to the memory, where ``[memory]`` says to ask."""
    from kernellab.options.memory import memory_defaults

    if session.state.created.memory != "off" and memory_defaults(session.workspace).offer == "ask":
        ask_to_remember(session.id, session.memory.remember)


_RESUME_HINT = (
    "The same call with --resume asks again; in a notebook you can edit what there is, or give the role to another."
)


def _check_call(call: DesignCall) -> None:
    """What is wrong with the call is reported before the task is run.

    Raises:
        SessionError, TargetError: naming the option's word.
    """
    from kernellab.agents.roles import parse_roles
    from kernellab.dsls import get_adapter
    from kernellab.dsls.machine import named_chip
    from kernellab.models import Budget

    parse_roles(call.roles)
    Budget.parse(call.budget)
    if call.dsl is not None:
        get_adapter(call.dsl)
    if call.chip is not None:
        named_chip(call.chip)


def _task_from_words(words: str, call: DesignCall, yes: bool) -> Proposal:
    """A task that a model wrote and a person approved."""
    from kernellab.agents.roles import is_model, parse_roles
    from kernellab.session.turn.task_from_text import propose_task

    specs, _ = parse_roles(call.roles)
    spec = next((s for role in (Role.DESIGNER, Role.CODER) if is_model(s := specs[role])), "model")
    proposal = propose_task(words, spec, budget=call.budget)
    say(proposal.text)
    for flag in proposal.flags:
        say(f"note: {flag}")
    if not yes:
        if not sys.stdin.isatty():
            raise SessionError("A task written by a model needs a person's approval.", "Read it above, then add --yes.")
        if not typer.confirm("Design a kernel for this task?", err=True):
            raise typer.Abort
    return proposal


def _raise_unread_reference(session: Session) -> None:
    """Report a reference that the rules could not read as an error of the input, where the session ended with it.

    Raises:
        CaptureError: the rules cannot read the reference, and the session has no one else to design.
    """
    last = session.state.standing()
    # no one else is there to get past it: the input is at fault, not the work
    if last is not None and last.fault in names_of(CaptureError) and session.state.best() is None:
        remedy = f"{last.remedy} Or design it yourself or by a model: --roles designer=model, --from FILE.sketch."
        raise CaptureError(last.error, remedy.strip())


@dataclass(frozen=True)
class _Brief:
    """The brief of a role that a person is asked to play."""

    role: Role
    path: Path


@dataclass(frozen=True)
class DesignReport:
    """The command's JSON: the best candidate's figures, or why there is none. Times are milliseconds."""

    #: a quick look is never the best, and is what --level T1 asks for
    passed: bool
    status: str
    reason: str
    turns: int
    seconds: float
    speedup: float | None
    library_faster: str
    speedup_compile: float | None
    baseline_ms: float | None
    compile_ms: float | None
    time_ms: float | None
    sol_ms: float | None
    label: str
    trust: str | None
    stage: str | None
    source_files: Mapping[str, str]
    sketch: str | None
    constexpr: Mapping[str, int | float]
    usage: Mapping[str, Any]
    memory_fault: str
    session: str
    dsl: str | None
    chip: str | None
    precision: str
    #: of these the JSON has those that there are
    brief: _Brief | None = None
    files: list[str] | None = None
    backward: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields by name; of a brief the role (``asked``) and the path."""
        optional = ("brief", "files", "backward")
        facts = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in optional}
        if self.brief is not None:
            facts |= {"asked": self.brief.role.value, "brief": str(self.brief.path)}
        if self.files is not None:
            facts["files"] = self.files
        if self.backward is not None:
            facts["backward"] = self.backward
        return facts


def _report(session: Session, seconds: float) -> DesignReport:
    state = session.state
    best = state.best()
    verdict = best.verdict if best else next((t.verdict for t in reversed(state.path()) if t.verdict), None)
    candidate = best.candidate if best else state.candidate()
    designed = state.sketch_turn(best.turn.id if best else None)
    eager = verdict.against("eager") if verdict else None
    compiled = verdict.against("compile") if verdict else None
    return DesignReport(
        passed=verdict is not None and verdict.passed,
        status=session.status.value,
        reason=session.reason,
        turns=len(session.turns),
        seconds=round(seconds, 3),
        speedup=verdict.speedup if verdict else None,
        library_faster=library_faster(verdict),
        speedup_compile=compiled.speedup if compiled else None,
        baseline_ms=eager.baseline_time.median_ms if eager else None,
        compile_ms=compiled.baseline_time.median_ms if compiled else None,
        time_ms=verdict.time.median_ms if verdict and verdict.time else None,
        sol_ms=verdict.sol_ms if verdict else None,
        label=verdict.label if verdict else "",
        trust=verdict.trust.value if verdict else None,
        stage=verdict.stage.value if verdict else None,
        source_files=dict(candidate.source.files) if candidate else {},
        sketch=designed.sketch if designed else None,
        constexpr=dict(candidate.constexpr) if candidate else {},
        usage=usage(session),
        memory_fault=session.memory.fault,
        session=session.id,
        dsl=state.target.dsl if state.target else state.created.dsl,
        chip=state.target.chip if state.target else None,
        precision=state.created.options.get("precision") or FRAMEWORK,
    )


def library_faster(verdict: Verdict | None) -> str:
    """The advice with its figure where the framework's own kernel is faster, or no gain is shown; "" elsewhere."""
    eager = verdict.against("eager") if verdict is not None and verdict.keeps_eager else None
    return f"{verdict.advice} This kernel: {eager.figure}." if verdict is not None and eager is not None else ""


def usage(session: Session) -> dict[str, Any]:
    """The ledger; ``cost`` is in US dollars, None where a model's price is not known."""
    ledger = session.trace.ledger()
    total = ledger["total"]
    return {
        "model_calls": total["requests"],
        "prompt_tokens": total["input_tokens"],
        "completion_tokens": total["output_tokens"],
        "cost": None if total["unpriced"] else total["usd"] or 0.0,
        **ledger,
    }


def _with_start(request: DesignRequest, path: Path) -> DesignRequest:
    """Return the request with its start: a sketch, a source in the target's DSL, or one of another DSL, from which a
    sketch is lifted."""
    if path.suffix in (".sketch", ".txt"):
        return request.model_copy(update={"sketch": read_text(path, "sketch"), "lift": False})
    from kernellab.dsls.sources import read_source

    own = read_source(path, None)
    if any(name.endswith((".cu", ".cuh")) for name in own.files):
        own = own.model_copy(update={"dsl": "cuda_c"})
    if request.lift or (request.dsl is not None and own.dsl != request.dsl):
        return request.model_copy(update={"source": own, "lift": True})
    return request.model_copy(update={"source": read_source(path, request.dsl)})


def _write(session: Session, out: Path) -> list[str]:
    """Write sketch, source and exported module into ``out``; return the paths."""
    state = session.state
    best = state.best()
    candidate = best.candidate if best else state.candidate()
    designed = state.sketch_turn(best.turn.id if best else None)
    sketch = designed.sketch if designed is not None else None
    written = write_kernel(out, session.name, sketch, candidate.source.files if candidate is not None else {})
    if best is not None:
        written.append(str(session.export(out / f"{session.name}.py")))
    return written


# -- the backward of a task that says ``GRAD = True``: designed behind its forward, and verified with it ---------------


def backward_of(session: Session, request: DesignRequest, out: Path | None = None) -> dict[str, Any]:
    """Designs the backward with the same request (and the forward that saves what it reads), checks all as a pair, and
    says what came of it. A pair that is right is written into ``out``, as one module."""
    from kernellab.model_integration.gradient.derive import PairTexts, backward_text, pair_texts
    from kernellab.model_integration.gradient.pair import designed
    from kernellab.session import begin

    def design(text: str, name: str) -> Session:
        alone = {"task": text, "name": name, "asked": (), "sketch": None, "source": None}
        session = begin(request.model_copy(update=alone))
        session.wait(progress=True)
        return session

    try:
        task = load_task(session.state.created.text, session.name)
        pair = designed(task, session, pair_texts(task), design)
        if pair.saving is not None and not all(s.state.best() for s in pair.sessions[1:]):
            say("The backward of saved tensors has no kernel that passed: one of the inputs alone is designed.")
            pair = designed(task, session, PairTexts(backward_text(task)), design)
        verdict = pair.backward.best.verdict
        together = pair.verify()
        module = pair.export(out / f"{session.name}.py") if out is not None else None
    except KernellabError as error:
        say(f"backward: {error.message}")
        if error.remedy:
            say(f"  -> {error.remedy}")
        return {"passed": False, "reason": error.message}
    say(f"backward: {verdict.text}; {together.text}")
    if module is not None:
        say(f"{module} is an operator of torch whose gradients are the backward's kernel.")
    return {
        "passed": True, "session": pair.backward.id, "forward": pair.saving.id if pair.saving else None,
        "speedup": verdict.speedup, "pair_speedup": together.time.speedup,
        "pair_low": together.time.low, "pair_high": together.time.high, "backward_speedup": together.backward.speedup,
    }  # fmt: skip
