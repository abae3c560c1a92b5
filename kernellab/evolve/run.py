"""A search of a workspace, from any of its processes: watch it, work on it, steer it, and take its best.

A run is a stream of events in the workspace's journal. The process that holds the stream's lease works on it, in a
background thread (:mod:`kernellab.evolve.scheduler`); every other process reads the events, and sends a person's
actions as wishes, which the working process turns into events.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.errors import EvolveError, KernellabError, SketchError, counted
from kernellab.evolve.assembly import assembled
from kernellab.evolve.fold import apply_event
from kernellab.evolve.jobs import job_of, source_of, target_of, task_of
from kernellab.evolve.knobs import make_knobs
from kernellab.evolve.records import RULES, Action, Begun, Proposal, Status, Steered
from kernellab.evolve.report import part
from kernellab.evolve.scheduler import Scheduler
from kernellab.evolve.state import RunState
from kernellab.evolve.stream import Stream, wish_events_at_rest
from kernellab.evolve.summary import summary, words
from kernellab.evolve.vary import memory
from kernellab.export import VerifiedKernel
from kernellab.memory.memory import Memory
from kernellab.memory.recall import OFF, place_named
from kernellab.options.memory import memory_defaults
from kernellab.options.search import CHANGEABLE, Knobs
from kernellab.records import Author, Candidate, Role, Source, Verdict
from kernellab.session.config import check_model
from kernellab.session.start import design
from kernellab.sketch.check import check
from kernellab.verifier.remote import SSH

if TYPE_CHECKING:
    from kernellab.session.session import Session
    from kernellab.target import Target

log = logging.getLogger("kernellab.evolve")

#: Polling interval in seconds while a run of another process is waited for.
_LOOK = 0.3
#: Seconds that the workers of an ended run may take to close.
_CLOSING = 30.0
#: Maximum number of an injected sketch's errors that are reported.
_REPORTED = 5


class Run:
    """A search of the workspace's journal. One process works on it; all others may watch and steer.

    ``cluster`` runs the jobs if this process works on the search ("local:4", "dask://HOST:PORT"). By default threads of
    this process run them, with the judge of another machine if the run began with it ("ssh://HOST").
    """

    def __init__(self, workspace: Path, run: str, cluster: str = "") -> None:
        """Raises EvolveError if there is no such run, or its judge is not that of ``cluster``; JournalError."""
        self.id = run
        self.workspace = workspace
        self._stream = Stream(workspace, run)
        self._state = self._stream.state()
        self._lock = threading.RLock()
        self._cluster = "" if cluster == _judge_of(self._state.begun) else cluster
        if self._cluster and (self._state.begun.target or cluster.startswith(SSH)):
            original_judge = _judge_of(self._state.begun) or "this machine or a cluster"
            raise EvolveError(
                f"The run {run} began with the judge of {original_judge}, so that {cluster} cannot measure for it.",
                "Leave out --cluster, or begin another run there.",
            )
        self._thread: threading.Thread | None = None
        #: Wakes the scheduler of this process when a wish was sent.
        self._nudge = threading.Event()
        #: Why this process had to leave the run; "" if it did not.
        self._lost = ""
        self._watchers: list[Callable[[], None]] = []

    # -- properties ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> RunState:
        """The current state. Raises JournalError."""
        if not self.works_here:
            with self._lock:
                for seq, event in self._stream.read(self._state.seq):
                    apply_event(self._state, seq, event)
        return self._state

    @property
    def works_here(self) -> bool:
        """Whether this process works on it."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def worker(self) -> str:
        """The other process that works on it (``host, process``); "" if there is none."""
        return self._stream.holder()

    @property
    def unattended(self) -> bool:
        """Whether it has not ended and no process works on it, so that it waits for :meth:`work`."""
        # the state last: the process that works on it writes the end before it releases the lease
        return not (self.works_here or self.worker or self.state.status.ended)

    @property
    def how_on(self) -> str:
        """How a person continues a run on which no process works."""
        return f"Go on with it: `kernellab evolve --resume {self.id}`, or work() in Python."

    def candidate(self, number: int) -> Candidate:
        """Return a candidate's sketch and kernel. Raises EvolveError if it is unknown; SketchError, LoweringError."""
        self._check_candidate(number)
        proposal, begun = self.state.proposals[number], self.state.begun
        task, target = task_of(begun), target_of(begun)
        parent = f"p{proposal.parents[0]}" if proposal.parents else None
        return Candidate(
            id=f"p{number}", source=source_of(job_of(begun, proposal), task, target), sketch=proposal.sketch or None,
            parent=parent, author=proposal.author,
        )  # fmt: skip

    def best(self) -> tuple[Candidate, Verdict | None]:
        """Return the fastest candidate with a clean verdict. Raises EvolveError if there is none yet."""
        number = self.state.best()
        if number is None:
            raise EvolveError(
                f"The run {self.id} has no verified candidate.",
                f"Wait for one; `kernellab evolve status {self.id}` says how far it is.",
            )
        return self.candidate(number), self.state.verdicts.get(number)

    def taken(self) -> VerifiedKernel:
        """The best candidate with all facts that an export states. Raises EvolveError if there is none yet."""
        candidate, verdict = self.best()
        begun = self.state.begun
        target = target_of(begun)
        assert verdict is not None  # the best candidate has a verdict
        target_text = f"{target.dsl} on {target.chip.name} ({target.backend.value})"
        return VerifiedKernel(
            begun.name, task_of(begun), candidate.source, verdict, target.backend, target_text, candidate.sketch
        )  # fmt: skip

    def open(self, number: int, name: str | None = None) -> Session:
        """Open a design session that begins with a candidate; ``name`` is the task's by default.

        Raises:
            EvolveError, SessionError.
        """
        begun, candidate = self.state.begun, self.candidate(number)
        return design(
            begun.text, dsl=begun.dsl, chip=begun.chip, target=_judge_of(begun),
            name=name or begun.name, workspace=self.workspace,
            sketch=candidate.sketch, source=None if candidate.sketch else candidate.source, fresh=True,
            options=_options(begun),
        )  # fmt: skip

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` after every event of this process, on the search's thread; it must be quick."""
        self._watchers.append(changed)

    def __repr__(self) -> str:
        figures = summary(self.id, self._stream.state())
        best = f"best candidate {figures.best}, {figures.text}" if figures.best is not None else "nothing verified yet"
        return f"<Run {self.id}: {figures.status.value}, {figures.evaluations} candidates, {best}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Text and HTML that need no front end, from the stream: during a search, its thread owns the state."""
        state = self._stream.state()
        return {"text/plain": words(summary(self.id, state)), "text/html": part(self.id, state)}

    # -- work ----------------------------------------------------------------------------------------------------------

    def work(self) -> Run:
        """Continue the search in this process, in the background; does nothing if it has ended.

        Raises:
            EvolveError: another process works on it.
            TaskError, TargetError, ModelError: the run cannot begin here.
        """
        with self._lock:
            if self.works_here or self.state.status.ended:
                return self
            self._check_known()
            self._stream.acquire()
            try:
                if self.state.status is Status.RUNNING and self.state.evaluations:
                    # it was cut off: the time since then does not count as work
                    self._stream.append([Steered(action=Action.RESUME)])
                scheduler = assembled(self._stream, self.workspace, self._cluster, self._changed, self._nudge)
            except BaseException:
                self._stream.release()
                raise
            self._state, self._lost = scheduler.state, ""
            self._thread = threading.Thread(target=self._run, args=(scheduler,), name="kernellab-evolve", daemon=True)
            self._thread.start()
        return self

    def wait(self, seconds: float | None = None) -> Run:
        """Wait until the run ends, or for ``seconds``. Raises EvolveError if it failed, or no process works on it."""
        deadline = time.monotonic() + seconds if seconds is not None else None
        while not self.state.status.ended and (deadline is None or time.monotonic() < deadline):
            if self.unattended:
                raise EvolveError(self._lost or f"No process works on the run {self.id}.", self.how_on)
            time.sleep(_LOOK)
        if self.works_here and self._thread is not None and self.state.status.ended:
            # a cluster that closes while the interpreter exits leaves its processes running, and prints a traceback
            self._thread.join(_CLOSING)
        if self.state.status is Status.FAILED:
            raise EvolveError(self.state.reason, f"`kernellab evolve report {self.id}` shows each candidate's reason.")
        return self

    def _run(self, scheduler: Scheduler) -> None:
        try:
            scheduler.work()
            self._remember()
        except KernellabError as error:
            # the run is unchanged: a process with another lease, or another cluster, can continue it
            log.error("the run %s is left: %s", self.id, error)
            self._lost = error.message
        finally:
            self._stream.release()
            self._changed()

    def offers(self) -> bool:
        """Whether the run has ended with something to remember, and ``[memory]`` says to ask."""
        return memory.may_remember(self.state) and memory_defaults(self.workspace).offer == "ask"

    def remember(self, into: Memory | None = None) -> int:
        """Store the verified candidates in ``into``, by default the workspace's memory. Return the number of new ones.

        Raises:
            MemoryStoreError: the store cannot be written. TaskError, CaptureError, SketchError, LoweringError.
        """
        begun, state = self.state.begun, self.state
        task, target = task_of(begun), target_of(begun)
        verified = [(self.candidate(number), verdict) for number, verdict in state.verdicts.items() if verdict.passed]
        into = into or Memory.open(self.workspace, place_named(begun.memory))
        return memory.offer_run(into, self.id, state, task, target, verified)

    def _remember(self) -> None:
        """At the end, update the memory about its seeds, and store the candidates if ``[memory]`` says "always"."""
        memory_name, state = self._state.begun.memory, self._stream.state()
        memory.at_end(self.workspace, memory_name, self.id, state)
        with suppress(KernellabError):
            if memory_name != OFF and state.status is Status.FINISHED and memory.wants_all(self.workspace):
                self.remember()

    def _changed(self) -> None:
        for changed in self._watchers:
            changed()

    # -- steering ------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Finish running work and begin nothing new."""
        self._wish(Steered(action=Action.PAUSE))

    def resume(self) -> None:
        """Begin new evaluations again after a pause."""
        self._wish(Steered(action=Action.RESUME))

    def stop(self, why: str = "") -> None:
        """End the run; its results are kept."""
        self._wish(Steered(action=Action.STOP, text=why))

    def inject(
        self, sketch: str = "", source: Source | None = None, island: int = 0, why: str = "",
        author: Author = Author.HUMAN,
    ) -> None:  # fmt: skip
        """Add a sketch or a kernel of a person, or of their agent (``Author.MODEL``), as a candidate.

        Raises:
            EvolveError: neither is given, or there is no such island.
            SketchError: the sketch has errors, listed in its diagnostics; nothing is sent.
        """
        if not sketch and source is None:
            raise EvolveError("Nothing to inject.", "Give a sketch, or a source.")
        self._check_island(island)
        if sketch:
            _check_sketch(sketch, target_of(self.state.begun))
        proposal = Proposal(
            number=0, round=0, island=island, operator="person" if author is Author.HUMAN else "agent", author=author,
            sketch=sketch, source=source, why=why,
        )  # fmt: skip
        self._wish(Steered(action=Action.INJECT, proposal=proposal))

    def protect(self, number: int) -> None:
        """Keep a candidate among its island's elites."""
        self._check_candidate(number)
        self._wish(Steered(action=Action.PROTECT, number=number))

    def drop(self, number: int) -> None:
        """Exclude a candidate: it has no more children and cannot be the best."""
        self._check_candidate(number)
        self._wish(Steered(action=Action.DROP, number=number))

    def freeze(self, island: int) -> None:
        """Stop proposals for an island, and migration to and from it."""
        self._check_island(island)
        self._wish(Steered(action=Action.FREEZE, number=island))

    def thaw(self, island: int) -> None:
        """Resume proposals for a frozen island. Raises EvolveError if there is no such island."""
        self._check_island(island)
        self._wish(Steered(action=Action.THAW, number=island))

    def set(self, **knobs: Any) -> None:
        """Change knobs while it runs, and who takes part: ``model="model:NAME"``, or ``"rules"`` for no model.

        Raises:
            EvolveError: the knob or its value is invalid. SessionError: the model is not available.
        """
        unchangeable = [name for name in knobs if name in Knobs.model_fields and name not in CHANGEABLE]
        if unchangeable:
            raise EvolveError(
                f"{unchangeable[0]!r} cannot be changed while a search runs.", f"Change one of {', '.join(CHANGEABLE)}."
            )
        chosen = make_knobs(self.state.knobs, knobs)
        for spec in {chosen.model, *chosen.shares} - {"", RULES, self.state.knobs.model, *self.state.knobs.shares}:
            check_model(Role.DESIGNER, spec, self.workspace, chosen.budget)
        self._wish(Steered(action=Action.KNOBS, knobs={name: getattr(chosen, name) for name in knobs}))

    def write_scratchpad(self, text: str) -> None:
        """Set text that models receive with later proposals, in addition to the Analyst's plan."""
        self._wish(Steered(action=Action.SCRATCHPAD, text=text))

    def direct(self, text: str) -> None:
        """Set a direction for models' later proposals; an open suggestion counts as accepted, in these words."""
        self._wish(Steered(action=Action.DIRECTION, text=text))

    def accept(self, text: str = "") -> None:
        """Accept the suggested direction, unchanged or as ``text``. Raises EvolveError if there is none."""
        self.direct(text or self._suggestion())

    def refuse(self) -> None:
        """Reject the suggested direction. Raises EvolveError if there is none."""
        self._suggestion()
        self._wish(Steered(action=Action.REFUSE))

    def _suggestion(self) -> str:
        if self.state.suggestion is None:
            raise EvolveError(f"No direction is proposed in the run {self.id}.", "Give one of your own: direct WORDS.")
        return self.state.suggestion.text

    def _wish(self, wish: Steered) -> None:
        status = self.state.status
        if status.ended:
            raise EvolveError(f"The run {self.id} is {status.value}: {self.state.reason}", "Begin another one.")
        self._check_known()
        if not self._at_rest(wish):
            self._stream.wish(wish)
            self._nudge.set()

    def _at_rest(self, wish: Steered) -> bool:
        """Apply a wish at once if no process works on the run. Return whether it was applied."""
        with self._lock:
            if self.works_here or not (events := wish_events_at_rest(self.state, wish)):
                return False
            try:
                self._stream.acquire()
            except EvolveError:
                return False
            try:
                self._stream.append(events)
            finally:
                self._stream.release()
        return True

    def _check_known(self) -> None:
        if self.state.unknown:
            raise EvolveError(
                f"The run {self.id} holds events of a later kernellab ({', '.join(sorted(self.state.unknown))}), so it "
                "can only be looked at here.", "Go on with it in the version that wrote it."
            )  # fmt: skip

    def _check_candidate(self, number: int) -> None:
        if number not in self.state.proposals:
            raise EvolveError(
                f"There is no candidate {number} in the run {self.id}.", _valid_numbers(len(self.state.proposals))
            )

    def _check_island(self, island: int) -> None:
        if island not in self.state.islands:
            raise EvolveError(
                f"There is no island {island} in the run {self.id}.", _valid_numbers(len(self.state.islands))
            )


def _check_sketch(text: str, target: Target) -> None:
    """Raise SketchError with the sketch's errors, each with its line."""
    result = check(text, chip=target.chip)
    if result.errors:
        messages = list(dict.fromkeys(f"Line {d.line}: {d.message} {d.remedy}".strip() for d in result.errors))
        more = [f"{counted(len(messages) - _REPORTED, 'more error')}."] if len(messages) > _REPORTED else []
        raise SketchError(" ".join([*messages[:_REPORTED], *more]), "Nothing was injected.", result.diagnostics)


def _valid_numbers(count: int) -> str:
    """The valid numbers, in a sentence."""
    return f"Choose one of 0 to {count - 1}." if count > 1 else "There is only 0." if count else "It has none yet."


def _judge_of(begun: Begun) -> str:
    """The other machine whose judge measures, as ssh://HOST; "" if there is none."""
    return begun.target.host if begun.target else ""


def _options(begun: Begun) -> dict[str, Any]:
    """The Verifier's options in addition to its defaults."""
    options = {"allow_library": begun.allow_library, "precision": begun.precision}
    return {name: value for name, value in options.items() if value}
