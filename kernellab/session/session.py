"""The Session: what a person, a notebook and a script hold. Thread-safe; the work happens on the engine thread."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kernellab.agents.roles import check_spec, parse_role
from kernellab.errors import KernellabError, SessionError
from kernellab.models import Ledger
from kernellab.records import Role, Source, StageResult, Verdict
from kernellab.session.bench import Bench
from kernellab.session.byhand import ByHand
from kernellab.session.config import check_model
from kernellab.session.driver import Driver
from kernellab.session.engine import Engine, engine
from kernellab.session.journal import Journal
from kernellab.session.kernel import BestKernel, standalone
from kernellab.session.records import SessionStatus, Turn
from kernellab.session.state import State
from kernellab.session.steps import APPROVALS, Stops
from kernellab.session.view import Dumps, as_dict, target_words, turn_line
from kernellab.session.waiting import Waiting
from kernellab.target import Backend, Target

T = TypeVar("T")
log = logging.getLogger("kernellab.session")

#: seconds that a call waits for its decision to be in the journal; the engine may be slow while torch is imported
_ACKNOWLEDGE = 5.0


class Session(ByHand, Waiting):
    """A tree of turns on one Task and Target.

    ``best``, ``verdict`` and ``sketch`` wait until there is something to give. Decisions (:meth:`run`,
    :meth:`approve`, :meth:`edit_sketch` ...) are in the journal when the call returns; they raise SessionError, with
    the session unharmed, when its state does not allow them.
    """

    def __init__(
        self, journal: Journal, session_id: str, bench: Bench | None = None, stops: Stops | None = None,
        resume: bool = True,
    ) -> None:  # fmt: skip
        self._engine: Engine = engine()
        self._changed = threading.Condition()
        self._version = 0
        self._pending = 0
        self._told: set[str] = set()
        self._subscribers: list[Callable[[Session], None]] = []
        self._ledger, self._counted, self._counting = Ledger(), {}, threading.Lock()
        self._dumps = Dumps()
        self.id = session_id
        state = Driver.read(journal, session_id)
        self._bench = bench or Bench(state.created, {}, None, None, journal.workspace)
        self._driver = Driver(self._engine, journal, session_id, self._bench, stops, self._on_change)
        if not resume:
            self._driver.look_only()
        self._journal = journal
        self._engine.submit(self._driver.main())

    # -- looking -------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.state.created.name

    @property
    def state(self) -> State:
        """Everything, as the journal has it: an immutable value."""
        return self._driver.state

    @property
    def status(self) -> SessionStatus:
        return self.state.status

    @property
    def reason(self) -> str:
        """Why the status is what it is, in a sentence."""
        return self.state.reason

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every turn of the tree, by number."""
        return tuple(self.state.turns.values())

    @property
    def head(self) -> Turn | None:
        return self.state.head_turn

    @property
    def source(self) -> Source | None:
        """The newest source on the head's line; None before the first."""
        candidate = self.state.candidate()
        return candidate.source if candidate else None

    @property
    def sketch(self) -> str:
        """The newest sketch on the head's line; waits for the first one."""
        return self._wanted(lambda: t.sketch if (t := self.state.sketch_turn()) else None, "sketch", first=True)

    @property
    def verdict(self) -> Verdict:
        """The newest verdict on the head's line, once the session ends or needs a person."""
        path = self.state.path
        return self._wanted(lambda: next((t.verdict for t in reversed(path()) if t.verdict), None), "verdict")

    @property
    def best(self) -> BestKernel:
        """The fastest candidate that passed at T2 or better, callable on tensors; waits for the session."""

        def find() -> BestKernel | None:
            state = self.state
            best = state.best()
            backend = Backend(state.target.backend) if state.target else None
            return BestKernel(best, self.name, backend) if best else None

        return self._wanted(find, "kernel that passed at T2")

    @property
    def stages(self) -> Mapping[str, list[StageResult]]:
        """The stages that a running verification has behind it, by turn."""
        return {turn: list(stages) for turn, stages in list(self._driver.stages.items())}

    def snapshot(self) -> State:
        """The state now: immutable, so that a view may take its time with it."""
        return self.state

    def to_dict(self) -> dict[str, Any]:
        """The state as plain data, with the stages of a verification that runs (:mod:`kernellab.session.view`)."""
        driver = self._driver
        found = as_dict(self.state, driver.stages, driver.message, self._version, self._dumps)
        return {**found, "comparing": driver.comparing, "partial": self.partial, "ledger": self.ledger()}

    def subscribe(self, callback: Callable[[Session], None]) -> Callable[[], None]:
        """``callback(session)`` after every change, on the engine thread: it must be quick and only note the change.

        Returns the function that ends it.
        """
        self._subscribers.append(callback)

        def end() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return end

    def __repr__(self) -> str:
        state = self.state
        lines = [f"{self.name}: {state.status.value}. {state.reason}".rstrip()]
        if state.target:
            lines.append(f"  on {target_words(state)}")
        lines += [f"  {turn_line(turn)}" for turn in self.turns]
        if state.question and state.status is SessionStatus.WAITING:
            lines += [f"  ? {state.question.text}", f"    {state.question.answer}"]
        if self._driver.message:
            lines.append(f"  ! {self._driver.message}")
        return "\n".join(lines)

    # -- deciding ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One more turn, then pause; an open proposal counts as approved."""
        self._decide(self._driver.step)

    def run(self) -> None:
        """Go on until the session ends or asks; an open proposal counts as approved."""
        self._decide(self._driver.run)

    def pause(self) -> None:
        """Stop after the turn that is running."""
        self._decide(self._driver.pause)

    def cancel(self) -> None:
        """Break the running turn off and pause; run() takes it again. A model stops within a tenth of a second."""
        self._decide(self._driver.cancel)

    def stop(self) -> None:
        """End it now: a model is broken off, a verification that runs is recorded when it is done."""
        self._decide(self._driver.stop)

    def approve(self, suggestion: str | None = None, to: str | None = None, card: str | None = None) -> None:
        """Answer the open question: go on as proposed, or with another suggestion, or to another role ("me": yours).

        ``card`` is the :attr:`Question.id` that is answered; an answer to one that is no longer open changes nothing.
        """
        self._decide(lambda: self._driver.approve(suggestion, to, card))

    def redirect(self, to: str, suggestion: str = "") -> None:
        """Send the work to coder, designer, finish or stop: a Conductor's turn of yours."""
        self._decide(lambda: self._driver.redirect(to, suggestion))

    def edit_sketch(self, text: str) -> None:
        """A Designer's turn of yours; code and verification follow."""
        self._decide(lambda: self._driver.edit_sketch(text))

    def edit_source(self, files: str | Mapping[str, str] | Source) -> None:
        """A Coder's turn of yours; verification follows. Files that are not named stay as they are."""
        if isinstance(files, Source):
            source = files
            self._decide(lambda: self._driver.place_source(source))
        else:
            given = files if isinstance(files, str) else dict(files)
            self._decide(lambda: self._driver.edit_source(given))

    def fork(self, turn: int | str | Turn) -> Session:
        """Put the head on an earlier turn and pause; what came after it stays in the tree."""
        which = turn.id if isinstance(turn, Turn) else turn
        self._decide(lambda: self._driver.fork(which))
        return self

    def set_role(self, role: str | Role, spec: str | object) -> None:
        """Who plays ``role`` from the next turn on: rules, human, model[:name], replay:FILE, or an object."""
        which = parse_role(role)
        if isinstance(spec, str):
            word, player = check_spec(spec), None
            check_model(which, word, self._journal.workspace)
        else:
            word, player = f"object:{type(spec).__name__}", spec
        self._decide(lambda: self._driver.set_role(which, word, player))

    def set_approval(self, approval: str | Stops) -> None:
        """Where to stop and ask: none, routing, all, or a predicate on the turn that has just ended."""
        word, stops = approval_of(approval)
        self._decide(lambda: self._driver.set_approval(word, stops))

    def set_budget(self, budget: str) -> None:
        """What the session may spend in all, for example "tokens=200000,usd=1,minutes=30"; "" limits nothing.

        A session that stopped at its budget goes on with run() after it was raised.
        """
        self._decide(lambda: self._driver.set_budget(budget))

    def compare_when_done(self) -> None:
        """Time the best against torch.compile too when the session has finished, in the background."""
        self._driver.compares = True
        self._engine.call(self._driver.compare_best)

    @property
    def comparing(self) -> bool:
        """Is the best being timed against more baselines in the background?"""
        return self._driver.comparing

    def compare(self, *baselines: str, timeout: float | None = None) -> Verdict:
        """Time the best candidate against ``baselines`` (eager, compile) in one run; its turn's verdict becomes this.

        Raises:
            SessionError: nothing has passed yet, no such baseline, or the time is up.
            VerifierError: it could not be judged.
        """
        found: list[Verdict | BaseException] = []
        done = threading.Event()

        def tell(result: Verdict | BaseException) -> None:
            found.append(result)
            done.set()

        self._decide(lambda: self._driver.compare(baselines or ("eager", "compile"), tell))
        if not done.wait(timeout):
            raise SessionError(f"{self.name} is still being compared after {timeout:g} s.", "Wait longer.")
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    def note(self, role: str | Role, text: str) -> None:
        """Tell a role something that it is to keep in mind in each of its turns."""
        which = parse_role(role)
        self._decide(lambda: self._driver.note(which, text))

    # -- taking it away ------------------------------------------------------------------------------------------------

    def export(self, path: str | Path) -> Path:
        """Write the best kernel as one module that needs torch and the DSL's runtime but not kernellab."""
        best = self.best
        target = Path(path)
        try:
            signature = self._bench.task().signature
        except KernellabError as error:
            raise SessionError(f"The task cannot be described: {error.message}", error.remedy) from None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(standalone(best, signature, target_words(self.state)), encoding="utf-8")
        except OSError as error:
            raise SessionError(f"{target} cannot be written: {error.strerror}.", "Give another path.") from None
        return target

    @property
    def target(self) -> Target:
        """Where the kernel runs. Raises TargetError."""
        return self._bench.target()

    # -- what they share -----------------------------------------------------------------------------------------------

    def _decide(self, decision: Callable[[], None]) -> None:
        """Put a decision on the queue and wait until it is in the journal; on the engine thread only queue it."""
        done = threading.Event()
        problem: list[KernellabError] = []

        def carry_out() -> None:
            try:
                decision()
            except KernellabError as error:
                problem.append(error)
                raise
            finally:
                self._pending -= 1
                done.set()

        self._pending += 1
        self._engine.call(self._driver.post, carry_out)
        if self._engine.is_here:
            return
        done.wait(_ACKNOWLEDGE)
        if problem:
            raise problem[0]

    def _on_change(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()
        for callback in list(self._subscribers):
            try:
                callback(self)
            except Exception:  # a view that broke must not stop the session
                log.exception("a subscriber of %s raised", self.id)

    def _wanted(self, find: Callable[[], T | None], what: str, first: bool = False) -> T:
        found = find() if first else None
        if found is not None:
            return found
        if not self.resting:
            self.wait(progress=True)
        found = find()
        if found is not None:
            return found
        if self._driver.failure is not None:
            raise self._driver.failure
        question = self.state.question
        if self.status is SessionStatus.WAITING and question is not None:
            raise SessionError(f"{self.name} has no {what} yet: it waits for you. {question.text}", question.answer)
        remedy = (
            "Go on with run()." if self.status is SessionStatus.PAUSED else "Edit its sketch or code, or redirect it."
        )
        raise SessionError(f"{self.name} is {self.status.value} and has no {what}. {self.reason}", remedy)


def approval_of(approval: str | Stops | None) -> tuple[str, Stops | None]:
    """The policy's name, and the predicate where one was given; ``KERNELLAB_APPROVE`` overrides both.

    Raises:
        SessionError: an unknown policy.
    """
    chosen = os.environ.get("KERNELLAB_APPROVE") or approval or "none"
    if not isinstance(chosen, str):
        return "predicate", chosen
    if chosen not in APPROVALS:
        raise SessionError(f"There is no approval policy {chosen!r}.", f"Choose one of {', '.join(APPROVALS)}.")
    return chosen, None
