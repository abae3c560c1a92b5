"""A session's task, target, roles and models in this process; each is made on first use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.agents.roles import is_agent, is_model, make_role, players_of
from kernellab.errors import CaptureError, JournalError, MemoryStoreError, SketchError
from kernellab.memory.recall import OFF, Recall, open_recall
from kernellab.models import (
    Budget,
    ChatModel,
    ChatReply,
    ChatRequest,
    ModelError,
    ModelFault,
    Price,
    Replay,
    ReplayModel,
    Talk,
    open_model,
)
from kernellab.models.exchanges import Exchange, Finish, Step, Usage
from kernellab.records import Role, Source, StageResult
from kernellab.session.config import model_settings
from kernellab.session.record.events import Created, Note, TargetFound
from kernellab.session.record.records import Turn, TurnState
from kernellab.session.record.state import State
from kernellab.task import Task, TaskFlag, load_task

if TYPE_CHECKING:
    from kernellab.knowledge import Knowledge
    from kernellab.target import Target


@dataclass(frozen=True)
class Channel:
    """Connects a running turn to the session: reports, records and cancellation.

    ``record`` returns when the exchange is in the journal. ``answered`` are exchanges that this turn does not repeat:
    those of an earlier attempt that was cut off.
    """

    progress: Callable[[StageResult], None] = lambda stage: None
    record: Callable[[Exchange], None] = lambda exchange: None
    text: Callable[[str], None] = lambda text: None
    #: Reports the current activity of the turn in a few words.
    say: Callable[[str], None] = lambda words: None
    cancel: threading.Event = field(default_factory=threading.Event)
    answered: tuple[Exchange, ...] = ()
    #: Whether a person is asked between turns.
    attended: bool = False
    #: All exchanges of the session so far.
    exchanges: tuple[Exchange, ...] = ()
    #: Records a step of an agent or of a model with tools; returns when it is in the journal.
    step: Callable[[Step], None] = lambda step: None
    #: Asks a person to permit an agent's action, by title and details: "once", "turn" (from now on) or "never";
    #: "" if no one is asked.
    permit: Callable[[str, str], str] = lambda title, details: ""
    #: The role's notes so far.
    notes: Callable[[], tuple[Note, ...]] = tuple
    #: The notes that the brief contains.
    briefed: tuple[Note, ...] = ()
    #: The code that the role changes.
    source: Source | None = None
    #: Calls at the end of the turn, in reverse order.
    at_end: list[Callable[[], None]] = field(default_factory=list)


def with_tools(spec: str, role: Role, *turn: Any, **options: Any) -> ChatModel:
    """Open an agent, or a model that calls tools: :func:`kernellab.tools.turn.open_player`.

    The tools package is a layer above this one, so it is imported here by name on first use.
    """
    player: ChatModel = import_module("kernellab.tools.turn").open_player(spec, role, *turn, **options)
    return player


class Bench:
    """One session's resources. Safe to use from several threads."""

    def __init__(
        self, created: Created, objects: Mapping[Role, Any], task: Task | None, target: Target | None,
        workspace: Path | None = None,
    ) -> None:  # fmt: skip
        self.created = created
        self.workspace = workspace
        self.budget = Budget.parse(created.budget)
        self._objects = dict(objects)
        self._task = task
        self._target = target
        #: The target recorded when the session began.
        self.recorded_target: TargetFound | None = None
        self._rules: dict[Role, Any] = {}
        self._replays: dict[tuple[Role, str], ChatModel] = {}
        self._knowledge: Knowledge | None = None
        self._recall: Recall | None = None
        self._recall_asked = False
        #: Why the memory is not used, in a sentence; "" while it works or is off.
        self.memory_fault = ""
        self._task_lock = threading.Lock()
        #: A separate lock: the judge starts for the target while the task imports torch.
        self._target_lock = threading.Lock()
        self._model_lock = threading.Lock()
        self._memory_lock = threading.Lock()

    def task(self) -> Task:
        """Return the task. Raises TaskError; TargetError if its requested precision depends on the machine."""
        from kernellab.designer.eager import as_asked

        with self._task_lock:
            if self._task is None:
                self._task = load_task(self.created.text, self.created.name)
            precision = self.options().precision
            if self._task.fidelity != precision:
                self._task = as_asked(self._task, precision, self.target())
            return self._task

    def admitted(self) -> tuple[TaskFlag, ...]:
        """Return the task's weaknesses as a test of kernels. Raises TaskError if no kernel can pass."""
        from kernellab.task.audit import admit

        return admit(self.task())

    def target(self) -> Target:
        """Return the target. Raises TargetError."""
        from kernellab.verifier.remote import target_at

        with self._target_lock:
            if self._target is None:
                target = target_at(self.created.target, self.created.dsl, self.created.chip)
                recorded = self.recorded_target
                self._target = recorded.rated(target) if recorded is not None else target
            return self._target

    def role(self, role: Role, spec: str, channel: Channel) -> Any:
        """Return the object that plays ``role`` in the turn of ``channel``.

        Raises:
            SessionError: the role is not available in this process.
            ModelError: its model is not configured, or its recording cannot be read.
        """
        if spec.startswith("object:") and role in self._objects:
            return self._objects[role]
        if is_model(spec):
            return make_role(role, spec, self.talk(role, spec, channel), self.knowledge())
        if role not in self._rules:
            self._rules[role] = make_role(role, spec)
        return self._rules[role]

    def by_agent(self, role: Role, spec: str, channel: Channel) -> bool:
        """Is the first player an agent or a recording of one? Raises ModelError: the recording is unreadable."""
        first = players_of(spec)[0]
        is_recorded_agent = first.startswith("replay:") and getattr(
            self._model(role, first, channel), "by_agent", False
        )
        return is_agent(first) or is_recorded_agent

    def put(self, role: Role, player: Any) -> None:
        self._objects[role] = player

    def options(self) -> Any:
        """The session's options of the Verifier."""
        from kernellab.verifier.protocol.options import VerifyOptions

        return VerifyOptions.model_validate(self.created.options)

    def talk(self, role: Role, spec: str, channel: Channel) -> Talk:
        """Return the role's conversation with its model. Raises ModelError if it is not configured or is unreadable."""
        model: ChatModel = self._model(role, spec, channel)
        record = channel.record
        if channel.answered:
            resumed = Resumed(model, role, channel.answered)
            model, record = resumed, resumed.recording(channel.record)
        # the number of requests to a recording is fixed
        attended = channel.attended and not spec.startswith("replay:")
        return Talk(model, role, record, self.budget, channel.cancel, channel.text, attended)

    def knowledge(self) -> Knowledge:
        """The documents for the session's target, loaded on first use."""
        from kernellab.knowledge import Knowledge

        if self._knowledge is None:
            self._knowledge = Knowledge.load(self.target(), self.workspace)
        return self._knowledge

    def recall(self) -> Recall | None:
        """Return the memory for this task; None if it is off, does not exist, or failed.

        A memory that fails is not used and never ends a session: :attr:`memory_fault` gives the reason.
        """
        with self._memory_lock:
            if not self._recall_asked and self.created.memory != OFF and self.workspace is not None:
                self._recall_asked = True
                with self.remembering():
                    self._recall = open_recall(
                        self.workspace, self.created.memory, self.task(), self.target(), self.created.hold_out
                    )
            return None if self.memory_fault else self._recall

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Catch a fault of the memory and store it in :attr:`memory_fault`; the session continues without memory."""
        try:
            yield
        except (MemoryStoreError, CaptureError, SketchError, JournalError) as error:
            self.memory_fault = str(error)

    def forget_replays(self) -> None:
        """Read recordings again at their next turn: a person may have extended them."""
        with self._model_lock:
            self._replays.clear()

    def _model(self, role: Role, spec: str, channel: Channel) -> ChatModel:
        if not spec.startswith("replay:"):
            # settings may have changed since the last turn
            settings = model_settings(self.workspace)
            if is_agent(spec) or self.created.tools or settings.tools:
                # an agent sees of the memory only what the session may see
                memory = self.created.memory != OFF and not self.created.hold_out
                return with_tools(
                    spec, role, self.task(), self.workspace, settings, self.budget, channel, at=self.target(),
                    memory=memory,
                )  # fmt: skip
            return open_model(spec, role, settings)
        with self._model_lock:
            key = role, spec
            if key not in self._replays:
                model = open_model(spec, role)
                if isinstance(model, ReplayModel):
                    # a reopened session continues at the recording's last position
                    model.skip(exchange for exchange in channel.exchanges if exchange.recorded_at)
                self._replays[key] = model
            return self._replays[key]


@contextmanager
def charging_gpu_time(bench: Bench, target: Target) -> Iterator[None]:
    """Charge the time within it to the session's GPU seconds, if ``target`` is a GPU."""
    began = time.perf_counter()
    try:
        yield
    finally:
        if target.chip.kind == "gpu":
            bench.budget.spend(gpu_s=time.perf_counter() - began)


# -- replies that the journal already holds ----------------------------------------------------------------------------


def answered_before(state: State, turn: Turn) -> tuple[Exchange, ...]:
    """Replies that this turn does not request again: its own from before the process was killed, and those of
    attempts that ended before a later request was answered."""
    attempts = [
        attempt.id
        for attempt in state.turns.values()
        if attempt.parent == turn.parent and attempt.role is turn.role and _lost_its_answer(attempt)
    ]
    exchanges = [exchange for turn_id in (*attempts, turn.id) for exchange in state.exchanges(turn_id)]
    return tuple(exchange for exchange in exchanges if exchange.finish is Finish.STOP)


def _lost_its_answer(turn: Turn) -> bool:
    """Whether the turn was stopped or a model request was not answered. Garbage counts as an answer, and is retried."""
    if turn.state is TurnState.STOPPED:
        return True
    has_ended = turn.state in (TurnState.FAILED, TurnState.SUPERSEDED)
    return has_ended and turn.of_model and turn.fault != "model:garbage"


class Resumed:
    """Answers a request from ``answered`` if it matches, in order; passes other requests to ``model``."""

    def __init__(self, model: ChatModel, role: Role, answered: Sequence[Exchange]) -> None:
        self._model = model
        finished = tuple(exchange for exchange in answered if exchange.finish is Finish.STOP)
        self._earlier = ReplayModel(Replay(Path("journal"), "", (), "", finished), role, by_place=False)
        self._from_journal = False

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def price(self) -> Price | None:
        return self._model.price

    @property
    def prompt_tokens(self) -> int | None:
        return getattr(self._model, "prompt_tokens", None)

    @property
    def free(self) -> bool:
        return self._model.free

    def ask(
        self,
        request: ChatRequest,
        *,
        cancel: threading.Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> ChatReply:
        """See :meth:`kernellab.models.ChatModel.ask`. A reply from the journal has no cost."""
        self._from_journal = False
        try:
            reply = self._earlier.ask(request, cancel=cancel, on_text=on_text)
        except ModelError as error:
            if error.kind is not ModelFault.NO_ANSWER:
                raise
            return self._model.ask(request, cancel=cancel, on_text=on_text)
        self._from_journal = True
        return replace(reply, usage=Usage(), seconds=0.0)

    def recording(self, record: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
        """Return ``record`` restricted to exchanges that are not in the journal yet."""

        def only_new(exchange: Exchange) -> None:
            if not self._from_journal:
                record(exchange)

        return only_new
