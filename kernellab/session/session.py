"""The Session: the interface for a person, a notebook and a script. Thread-safe; work runs on the engine thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kernellab.agents.roles import check_spec, parse_role
from kernellab.content import written
from kernellab.errors import KernellabError, SessionError, lasting
from kernellab.export import VerifiedKernel, compiled, module_text, package
from kernellab.records import Author, Role, Source, Verdict
from kernellab.session.config import check_model
from kernellab.session.engine import decisions, placing
from kernellab.session.engine.approval import Stops, policy_of
from kernellab.session.engine.driver import Driver
from kernellab.session.engine.engine import Engine, engine
from kernellab.session.engine.recorder import Recorder
from kernellab.session.engine.requests import Requests
from kernellab.session.kernel import BestKernel
from kernellab.session.manual import answer, brief_of_role
from kernellab.session.memory_export import SessionMemory
from kernellab.session.record.journal import Journal
from kernellab.session.record.records import SessionStatus, Turn
from kernellab.session.record.render import Candidates, SketchText, Turns, candidates_of
from kernellab.session.record.state import State
from kernellab.session.record.view import Dumps, as_dict, target_words, turn_line
from kernellab.session.timings import Timings
from kernellab.session.trace import Trace
from kernellab.session.turn.context import Bench
from kernellab.session.waiting import ProgressPrinter, rest, wait, why_missing
from kernellab.target import Backend, Target

if TYPE_CHECKING:
    from typing_extensions import Self


T = TypeVar("T")
log = logging.getLogger("kernellab.session")


class Session:
    """A tree of turns on one Task and Target. Lines and turns count from 1; timeouts are in seconds.

    Properties do not wait: ``best``, ``verdict`` and ``sketch`` raise SessionError while there is no value; ``await
    session`` or :meth:`wait` waits. Decisions (:meth:`run`, :meth:`approve`, :meth:`edit_sketch` ...) are in the
    journal when the call returns. They raise SessionError, and leave the session unchanged, if its state does not allow
    them.
    """

    def __init__(
        self, journal: Journal, session_id: str, bench: Bench | None = None, stops: Stops | None = None,
        resume: bool = True,
    ) -> None:  # fmt: skip
        self._engine: Engine = engine()
        self._changed = threading.Condition()
        self._version = 0
        self._subscribers: list[Callable[[Session], None]] = []
        self._dumps = Dumps()
        self.id = session_id
        state = Recorder.read(journal, session_id)
        self._bench = bench or Bench(state.created, {}, None, None, journal.workspace)
        self._print_progress = ProgressPrinter(self)
        self._driver = Driver(self._engine, journal, session_id, self._bench, stops, self._on_change)
        if not resume or self.state.awaits_permission:
            self._driver.look_only()
        self._requests = Requests(self._engine, self._driver)
        self._timings = Timings(self._driver, self._bench, self._requests)
        self._trace = Trace(self._driver, self._bench)
        self._memory = SessionMemory(self._driver, self._bench, journal.workspace)
        self._journal = journal
        self._engine.submit(self._driver.main())

    # -- properties ----------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The task's name, which also reopens the session."""
        return self.state.created.name

    @property
    def workspace(self) -> Path:
        """The folder whose journal contains the session."""
        return self._journal.workspace

    @property
    def state(self) -> State:
        """The complete state from the journal: an immutable value."""
        return self._driver.state

    @property
    def status(self) -> SessionStatus:
        """The current status: running, waiting for a person, paused, or ended."""
        return self.state.status

    @property
    def reason(self) -> str:
        """The reason for the status, in a sentence."""
        return self.state.reason

    @property
    def turns(self) -> Turns:
        """Every turn of the tree, by number."""
        return Turns.of(self.state)

    @property
    def candidates(self) -> Candidates:
        """Every kernel of the tree with its verdict, by the number of the turn that wrote it."""
        return candidates_of(self.state)

    @property
    def timings(self) -> Timings:
        """Its kernels timed against baselines, against each other, and over a range of sizes."""
        return self._timings

    @property
    def trace(self) -> Trace:
        """Its roles' model exchanges and steps, with tokens, dollars and seconds."""
        return self._trace

    @property
    def memory(self) -> SessionMemory:
        """The memory that the session queries and extends."""
        return self._memory

    @property
    def head(self) -> Turn | None:
        """The turn from which the work continues; None before the first turn."""
        return self.state.head_turn

    @property
    def source(self) -> Source | None:
        """The newest source on the head's line; None before the first source."""
        candidate = self.state.candidate()
        return candidate.source if candidate else None

    @property
    def sketch(self) -> SketchText:
        """The newest sketch on the head's line. Raises SessionError if there is none yet."""
        turn = self.state.sketch_turn()
        return SketchText(self._required(turn.sketch if turn else None, "sketch"))

    @property
    def verdict(self) -> Verdict:
        """The newest verdict on the head's line. Raises SessionError if there is none yet or the session still runs."""
        path = self.state.path() if self.resting else []
        return self._required(next((t.verdict for t in reversed(path) if t.verdict), None), "verdict")

    @property
    def best(self) -> BestKernel:
        """The fastest candidate that passed at T2 or better, callable on tensors.
        Raises SessionError if there is none yet or the session still runs."""
        state = self.state
        best = self._required(state.best() if self.resting else None, "kernel that passed at T2")
        backend = Backend(state.target.backend) if state.target else None
        return BestKernel(best, self.name, backend, self._bench.task)

    def to_dict(self) -> dict[str, Any]:
        """The state as plain data, with the stages of a running verification (``record.view``)."""
        driver = self._driver
        fields = as_dict(self.state, driver.running.stages, driver.message, self._version, self._dumps)
        return {
            **fields,
            "comparing": self.timings.running,
            "partial": self.trace.partial,
            "ledger": self.trace.ledger(),
        }

    def subscribe(self, callback: Callable[[Session], None]) -> Callable[[], None]:
        """Call ``callback(session)`` after every change, on the engine thread: it must be quick and only note the
        change.

        Returns a function that ends the subscription.
        """
        self._subscribers.append(callback)

        def end() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return end

    def __repr__(self) -> str:
        state = self.state
        question = state.question if state.status is SessionStatus.WAITING else None
        # the question already contains the reason
        reason = state.reason if question is None or state.reason not in question.text else ""
        lines = [f"{self.name}: {state.status_words}. {reason}".rstrip()]
        if state.target:
            lines.append(f"  on {target_words(state)}")
        lines += [f"  {turn_line(turn)}" for turn in self.turns]
        if question is not None:
            lines += [f"  ? {question.text}", f"    {question.answer}"]
        if self._driver.message:
            lines.append(f"  ! {self._driver.message}")
        return "\n".join(lines)

    # -- decisions -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Run one turn, then pause; an open proposal counts as approved."""
        self._requests.put(lambda: self._driver.go_on(one=True))

    def resume(self) -> None:
        """Repeat the turn during which the session's process ended, if any; otherwise do nothing."""
        if self.state.cut_off:
            self._requests.put(self._driver.resume)

    def run(self) -> None:
        """Run until the session ends or asks a question; an open proposal counts as approved."""
        self._requests.put(lambda: self._driver.go_on(one=False))

    def pause(self) -> None:
        """Pause after the running turn."""
        self._requests.put(self._driver.pause)

    def cancel(self) -> None:
        """Stop the running turn and pause; run() repeats it. A model or a judge ends at once.
        Raises SessionError if no turn is running."""
        self._requests.decide(decisions.cancel)

    def stop(self) -> None:
        """End the session now, with the running model or judge: the running turn's result is not recorded."""
        self._requests.put(self._driver.stop)

    def approve(self, suggestion: str | None = None, to: str | None = None, card: str | None = None) -> None:
        """Answer the open question: continue as proposed, with another suggestion, or with another role ("me": you).

        ``card`` is the :attr:`Question.id` that is answered; an answer to a question that is no longer open has no
        effect. Raises SessionError if nothing waits for approval, or the question does not accept the answer."""
        self._requests.decide(
            lambda state: decisions.approve(state, self._driver.stops, self._bench.budget, suggestion, to, card)
        )

    def redirect(self, to: str, suggestion: str = "", author: Author = Author.HUMAN) -> None:
        """Send the work to coder, designer, finish or stop: a Conductor's turn by you, or by ``author``.
        Raises SessionError if ``to`` is none of these."""
        self._requests.decide(lambda state: decisions.redirect(state, to, suggestion, author))

    def tune(self, limit: int | str = 20, author: Author = Author.HUMAN) -> None:
        """Have the rules Designer measure its designs against each other, at most ``limit`` points (20) or seconds
        ("20s"), and verify the fastest; the session ends again where that was tried already.
        Raises SessionError if another plays the Designer, lines are pinned or kernels run in Triton's interpreter, and
        KernellabError for a wrong limit."""
        self._requests.decide(lambda state: decisions.tune(state, str(limit), author))

    def edit_sketch(self, text: str, author: Author = Author.HUMAN) -> None:
        """Place a Designer's turn; code and verification follow. An agent's ``author`` may not change pinned lines."""
        self._requests.decide(lambda state: placing.place_sketch(state, text, author))

    def edit_source(self, files: str | Mapping[str, str] | Source, author: Author = Author.HUMAN) -> None:
        """Place a Coder's turn by you, or by ``author``; verification follows. Unnamed files are unchanged."""
        sources = files if isinstance(files, str | Source) else dict(files)
        self._requests.put(lambda: self._driver.edit_source(sources, author))

    def fork(self, turn: int | str | Turn, author: Author = Author.HUMAN) -> Session:
        """Move the head to an earlier turn (number, id or record) and pause; later turns stay in the tree.
        Raises SessionError if there is no such turn, it is not done yet, or an agent leaves a person's pin by it."""
        self._requests.decide(lambda state: decisions.fork(state, state.id_of(turn), author))
        return self

    def undo(self) -> None:
        """Revert your last approval, edit, pin, redirection or fork; the turns that followed stay in the tree.
        Raises SessionError if there is no such decision."""
        self._requests.decide(decisions.undo)

    def set_role(self, role: str | Role, spec: str | object) -> None:
        """Set who plays ``role`` from the next turn on: a spec (:mod:`kernellab.agents.roles`) or an object."""
        parsed_role = parse_role(role)
        if isinstance(spec, str):
            word = check_spec(spec)
            check_model(parsed_role, word, self._journal.workspace, self.state.budget)
        else:
            word = f"object:{type(spec).__name__}"
            self._bench.put(parsed_role, spec)
        self._requests.decide(lambda state: decisions.set_role(state, parsed_role, word))

    def set_approval(self, approval: str | Stops, stops: Stops | None = None) -> None:
        """Set where to stop and ask: none, routing, all, roles and limits of a turn (``coder,tokens=10k,minutes=1``),
        or a predicate on the turn that has just ended. ``stops`` replaces the policy's choice of turns; its limits
        still apply."""
        word, policy_stops = policy_of(approval)
        self._requests.put(lambda: self._driver.set_approval(word, stops or policy_stops))

    def set_budget(self, budget: str) -> None:
        """Set the session's total budget, for example "tokens=200000,usd=1,minutes=30"; "" sets no limit.

        A session that stopped at its budget continues with run() after the budget is raised.
        Raises ModelError if the text is not a budget."""
        self._requests.decide(lambda _: decisions.set_budget(budget))

    def note(self, role: str | Role, text: str, author: Author = Author.HUMAN) -> None:
        """Give a role a note to read in each of its turns, with its author."""
        parsed_role = parse_role(role)
        self._requests.decide(lambda _: decisions.note(parsed_role, text, author))

    def remove_note(self, role: str | Role, text: str) -> None:
        """Remove a note of a role. Raises SessionError if the role has no note with that text."""
        parsed_role = parse_role(role)
        self._requests.decide(lambda state: decisions.remove_note(state, parsed_role, text))

    # -- playing a role ------------------------------------------------------------------------------------------------

    def brief(self, role: str | Role | None = None) -> str:
        """The prompt of ``role`` as a model would receive it now (default: the role that a person is asked to play).

        Raises:
            SessionError: no role is asked for or named, or the role has nothing to work on yet.
            TaskError, TargetError: the session cannot run.
        """
        return brief_of_role(self._bench, self.state, role)

    def answer(self, text: str, role: str | Role | None = None, card: str | None = None) -> None:
        """Place a reply in a model's format (pasted from another chat, or typed) as your turn.

        ``card`` is the id of the answered question; an answer to a question that is no longer open has no effect.

        Raises:
            SessionError: no question, or another question, is open.
            AnswerError: the reply does not contain what the role must answer.
        """
        question = self.state.question
        if card is not None and (question is None or question.id != card):
            raise SessionError("That question is no longer open.", question.text if question else "Nothing is asked.")
        self._requests.decide(answer(self._bench, self.state, text, role))

    def analyse(self, question: str = "", wait: float | None = None) -> Turn | None:
        """Run the Analyst to explain the session, or answer ``question``: a turn outside the line that moves nothing.

        Returns at once; with ``wait`` (seconds), returns the finished turn.
        Raises SessionError if it takes longer than ``wait``."""
        done = threading.Event()
        turn_ids: list[str] = []
        self._requests.put(lambda: turn_ids.append(self._driver.analyse(question, done.set)))
        if wait is None:
            return None
        if not done.wait(wait):
            raise SessionError(f"The Analyst is still busy after {lasting(wait)}.", "Wait longer.")
        return self.state.turns[turn_ids[0]]

    def pin(self, line: int, reason: str = "") -> None:
        """Pin a line of the sketch (from 1): agents' revisions must keep it. The next action does not change.
        Raises SessionError if there is no sketch."""
        self._requests.decide(lambda state: placing.pin(state, line, True, reason))

    def unpin(self, line: int) -> None:
        """Unpin a line of the sketch (from 1) for agents' revisions. Raises SessionError if there is no sketch."""
        self._requests.decide(lambda state: placing.pin(state, line, False, ""))

    # -- waiting -------------------------------------------------------------------------------------------------------

    @property
    def resting(self) -> bool:
        """Whether the session has ended or waits for a person."""
        return self._requests.pending == 0 and (self._driver.at_rest or self.state.awaits_permission)

    @property
    def failure(self) -> KernellabError | None:
        """The error that ended the session."""
        return self._driver.failure

    def wait(self, timeout: float | None = None, progress: bool = False) -> Self:
        """Block until the session ends or needs a person. ``progress`` prints each turn's line on stderr.

        Raises:
            TaskError, TargetError, JournalError: the error that ended the session.
            SessionError: it was still running after ``timeout`` seconds.
        """
        wait(self, self._changed, timeout, self._print_progress if progress else lambda: None)
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        yield from rest(self).__await__()
        return self

    def workbench(self) -> Any:
        """The session's workbench, an anywidget: end a cell with it, or wrap it (``mo.ui.anywidget(...)``)."""
        # the notebook is a layer above this one; it is loaded only on first use
        return import_module("kernellab.notebook.board.registry").workbench_of(self)

    # -- exporting -----------------------------------------------------------------------------------------------------

    def export(self, path: str | Path) -> Path:
        """Write the best kernel as one module that needs torch and the DSL's runtime but not kernellab. Return its
        path. The module contains compiled code, except of a kernel that a model wrote.

        Raises SessionError if there is no such kernel yet, or the task cannot be described."""
        return written(Path(path), self.exported())

    def exported(self) -> str:
        """The text of that module."""
        return module_text(compiled(package([self.taken()])))

    def taken(self) -> VerifiedKernel:
        """The best kernel with all facts that an export states."""
        best = self.best
        try:
            task, target = self._bench.task(), self._bench.target()
        except KernellabError as error:
            raise SessionError(f"The task cannot be described: {error.message}", error.remedy) from None
        target_text = target_words(self.state)
        return VerifiedKernel(self.name, task, best.source, best.verdict, target.backend, target_text, best.sketch)

    @property
    def target(self) -> Target:
        """Where the kernel runs. Raises TargetError."""
        return self._bench.target()

    # -- shared helpers ------------------------------------------------------------------------------------------------

    def _on_change(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()
        for callback in list(self._subscribers):
            try:
                callback(self)
            except Exception:  # a broken view must not stop the session
                log.exception("a subscriber of %s raised", self.id)

    def _required(self, value: T | None, what: str) -> T:
        if value is None:
            raise self.failure if self.resting and self.failure is not None else why_missing(self, what)
        return value
