"""A coding agent as a chat model: kernellab is its client by the Agent Client Protocol (extra ``agents``).

The agent's program works in a scratch folder with the brief, and with one turn's tools (:class:`Desk`) as an MCP
server. The reply is what it submits, else its last message. It lives as long as the turn: what is wrong with a reply
goes to the same agent; then it ends with all that it started, before the kernel is verified.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from kernellab.errors import ModelError, ModelFault, lasting
from kernellab.models import Budget, ChatReply, ChatRequest, Price, faults, scrub
from kernellab.models.exchanges import Finish, Usage
from kernellab.models.loop import loop
from kernellab.options.agents import AgentOptions
from kernellab.tools.acp.client import MOST_SAID, Client
from kernellab.tools.acp.process import AgentProcess
from kernellab.tools.context import CODE
from kernellab.tools.desk import MOST_STEPS, SUBMIT, Desk
from kernellab.tools.documents import documents
from kernellab.tools.skill import skill_text
from kernellab.verifier.judge import turns

_TICK_S = 0.05
#: after its answer an agent may still say something: seconds of silence that end its turn, and seconds of all its last
#: words together; both longer on a machine with more to run than cores. Chosen, not measured
_LAST_WORDS_S, _ALL_LAST_WORDS_S = 10.0, 60.0
#: until it has started and told what it can do
_START_S = 180.0
_FINISH = {
    "end_turn": Finish.STOP, "max_tokens": Finish.TRUNCATED, "max_turn_requests": Finish.TRUNCATED,
    "refusal": Finish.FILTERED, "cancelled": Finish.CANCELLED,
}  # fmt: skip
_HOW_TO_WORK = (
    "You have tools for this, those of the MCP server `kernellab`; the name of the task is {task}. AGENTS.md in your "
    "folder says how they are used, DOCUMENTS.md which documents there are; kernels that you write into files there "
    "can be given by their path. Look, try and correct with them. When you are done, call {submit} with the whole "
    "answer in the form that is asked for above; where you cannot, answer with it as your last message. It is judged "
    "after you have ended."
)
_WITH_CODE = (
    " The code so far lies in `{code}/`: change it there and give tools path='{code}', or give them the changed files "
    "alone."
)
_SEVERAL_ANSWERS = (
    " You may call {submit} more than once, with a different answer each time: each is judged. End your turn when you "
    "have no better one."
)


class AgentModel:
    """``ask`` is one prompt to the agent. ``permit`` asks a person: "once", "turn" or "never"; "": no one is asked."""

    price: Price | None = None
    free = False

    def __init__(
        self, name: str, options: AgentOptions, desk: Desk, budget: Budget, permit: Callable[[str, str], str]
    ) -> None:
        self.name = f"agent {name}"
        self._agent, self._options, self._desk, self._budget = name, options, desk, budget
        self._client = Client(desk, permit, options.permission)
        desk.before = self._client.flush
        self._run: AgentProcess | None = None
        #: how many of the turn's steps earlier replies hold
        self._replied_steps = 0
        #: its reports take the place of a price
        self.reports_usd = "usd" in options.reports

    @turns.aside()  # a tool may verify, for which the judge takes its turn at the clock
    def ask(
        self,
        request: ChatRequest,
        *,
        cancel: threading.Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> ChatReply:
        """See :meth:`kernellab.models.ChatModel.ask`; ``steps`` are what it did, as far as it says."""
        began = time.monotonic()
        self._desk.answers.clear()
        self._client.last = ""
        fresh = self._run is None
        text = request.messages[-1].content if not fresh else "\n\n".join(m.content for m in request.messages)
        run = self._run = self._run or self._begin(text)
        done: Any = None
        try:
            if fresh:
                text += f"\n\n{self._how_to_work()}"
                self._wait(run.start(), min(_START_S, self._seconds()), cancel, on_text, "did not start")
                self._desk.note(
                    f"{self.name} started", f"held by: {run.held or 'nothing'}\n{' '.join(self._options.command)}"
                )
            done = self._wait(run.prompt(text), self._seconds(), cancel, on_text, "did not end its turn")
            if done is None:
                # so that a later prompt does not meet this one
                loop().submit(run.cancel())
        except BaseException as error:
            self.close()
            if isinstance(error, ModelError):
                error.reply = self._reply(run, None, Finish.ERROR, began)
            raise
        finish = Finish.STOP if self._desk.answers or done is None else _FINISH.get(done.stop_reason, Finish.ERROR)
        reply = self._reply(run, done, finish, began)
        if finish is Finish.TRUNCATED:
            raise ModelError(
                ModelFault.TRUNCATED, f"The {self.name} stopped at its own limit ({done.stop_reason}).",
                "Raise that limit in the agent's settings, then resume.", resumable=True, reply=reply,
            )  # fmt: skip
        for kind, reported in (("tokens", reply.usage.input_tokens), ("usd", reply.usage.usd)):
            if self._budget.left(kind) is not None and not reported:
                raise ModelError(
                    ModelFault.BUDGET, f"The budget limits {kind}, and the {self.name} told none.",
                    "Limit minutes or tool_calls instead.", reply=reply,
                )  # fmt: skip
        return reply

    def _how_to_work(self) -> str:
        code = _WITH_CODE if self._desk.context.base else ""
        several = _SEVERAL_ANSWERS if self._desk.several else ""
        return f"{_HOW_TO_WORK}{code}{several}".format(task=self._desk.task, submit=SUBMIT, code=CODE)

    def close(self) -> None:
        """End the agent and all that it started."""
        atexit.unregister(self.close)
        if self._run is not None:
            self._run.end()
            self._run = None

    def _begin(self, brief: str) -> AgentProcess:
        for package in ("acp", "mcp"):
            if find_spec(package) is None:
                raise ModelError(
                    ModelFault.CONFIG, f"An agent needs the package {package}.", "pip install 'kernellab[agents]'"
                )
        folder = self._desk.context.folder
        assert folder is not None
        (folder / "BRIEF.md").write_text(brief, encoding="utf-8")
        (folder / "AGENTS.md").write_text(skill_text(), encoding="utf-8")
        (folder / "DOCUMENTS.md").write_text("\n".join(documents(self._desk.context.workspace)), encoding="utf-8")
        loop()  # begun here, so that at the end of the process the agent ends before it
        atexit.register(self.close)
        return AgentProcess(self._agent, self._options, self._desk, self._client, folder)

    def _seconds(self) -> float:
        left = self._budget.left("minutes")
        return 60 * (self._options.minutes if left is None else min(self._options.minutes, left))

    def _wait(
        self, work: Any, most: float, cancel: threading.Event | None, on_text: Callable[[str], None] | None, late: str
    ) -> Any:
        """The work's result within ``most`` seconds, those not counted in which a person is asked; None where the agent
        submitted and did not end its turn in time. ``late`` says in an error what it did not do."""
        future, shown = loop().submit(work), ""
        watch = _Watch(self._client, most)
        try:
            while not future.done():
                time.sleep(_TICK_S)
                watch.look()
                text = "\n\n".join(filter(None, (self._desk.shown(), self._client.speaking())))
                if on_text is not None and text != shown:
                    shown = text
                    on_text(text)
                if cancel is not None and cancel.is_set():
                    raise faults.cancelled()
                self._check_limits()
                has_answered = bool(self._desk.answers)
                if has_answered and not self._desk.several:
                    watch.answered()
                if watch.last_words_over or (watch.time_over and has_answered):
                    return None
                if watch.time_over:
                    raise ModelError(
                        ModelFault.STALLED, f"The {self.name} {late} in {lasting(most)}.",
                        f"Resume to ask again, or raise minutes under [agents.{self._agent}].", resumable=True,
                    )  # fmt: skip
            return future.result()
        finally:
            future.cancel()

    def _check_limits(self) -> None:
        """Raises ModelError: the agent said or spent more than it may."""
        if self._client.too_long:
            raise ModelError(
                ModelFault.BUDGET,
                f"The {self.name} said more than {MOST_SAID / 1e6:.0f} MB in a turn or did {MOST_STEPS} steps "
                "(what is no message of the protocol counts more than its length).",
                "Ask again; its steps say what it repeats.",
            )  # fmt: skip
        spent, left = self._client.new_usd, self._budget.left("usd")
        if spent is not None and left is not None and spent > left:
            raise ModelError(
                ModelFault.BUDGET, f"The {self.name} spent {spent:.3g} dollars, which are more than are left.",
                "Raise the budget and resume.",
            )  # fmt: skip

    def _reply(self, run: AgentProcess, done: Any, finish: Finish, began: float) -> ChatReply:
        self._client.flush()
        steps = tuple(self._desk.steps[self._replied_steps :])
        self._replied_steps += len(steps)
        seconds = time.monotonic() - began
        tokens = run.new_tokens(getattr(done, "usage", None), self._client.in_context)
        calls = sum(step.kind == "tool" for step in steps)
        spent = {"usd": self._client.take_usd(), "seconds": seconds, "tool_calls": calls}
        usage = Usage().model_copy(update={**tokens, **spent, "untold": int(not tokens)})
        thoughts = "\n".join(step.text for step in steps if step.kind == "thought")
        return ChatReply(
            text=scrub((self._desk.answers or [self._client.last])[-1]), reasoning=scrub(thoughts), finish=finish,
            usage=usage, model=self.name, seconds=seconds, attempts=1, steps=steps, by_agent=True,
            shared_machine=not run.apart, others=tuple(map(scrub, self._desk.answers[:-1])),
        )  # fmt: skip


def _share_of_load() -> float:
    """How much longer than alone a process takes on this machine now; from 1 to 4."""
    return min(4.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


class _Watch:
    """The clock of a turn: when its time is over, and when the agent's words after its answer are."""

    def __init__(self, client: Client, most: float) -> None:
        self._client = client
        self._now = time.monotonic()
        self._until = self._now + most
        #: what the agent had said, and when it last said something
        self._length, self._heard = client.length, self._now
        self._answered: float | None = None

    def look(self) -> None:
        """To be called again and again: time in which a person is asked does not count."""
        earlier, self._now = self._now, time.monotonic()
        if self._client.asks:
            self._until += self._now - earlier
        if self._client.length != self._length:
            self._length, self._heard = self._client.length, self._now

    def answered(self) -> None:
        """The agent has submitted its only answer; the first call counts."""
        if self._answered is None:
            self._answered = self._now

    @property
    def time_over(self) -> bool:
        return self._now > self._until

    @property
    def last_words_over(self) -> bool:
        if self._answered is None:
            return False
        load = _share_of_load()
        is_silent = self._now - max(self._answered, self._heard) > load * _LAST_WORDS_S
        return is_silent or self._now - self._answered > load * _ALL_LAST_WORDS_S
