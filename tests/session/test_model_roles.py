"""Sessions whose roles are played by a chat model behind a real server on the loopback."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from session_parts import SKETCH, TASK, WRONG_SKETCH, OneSketch

from kernellab.agents.briefs import CodeBrief, RouteBrief
from kernellab.agents.rules.coder import RulesCoder
from kernellab.content import content
from kernellab.errors import SessionError
from kernellab.models import write_replay
from kernellab.models.exchanges import Finish
from kernellab.records import Author, Role, Route, RouteKind
from kernellab.session import QuestionKind, Session, SessionStatus, TurnState, design, open_session
from kernellab.session.record.events import Created
from kernellab.session.record.journal import Journal
from kernellab.session.record.state import State
from kernellab.session.record.view import turn_line
from kernellab.session.turn.briefing import improving_roles
from kernellab.session.turn.fallback import unverified_lowering
from kernellab.task import load_task
from tests.agents.model_parts import CPU
from tests.models.fake_server import Act, FakeServer, answer, cut, raw, silent, status
from tests.waiting import until

RIGHT = answer(f"Each row on its own.\n```sketch\n{SKETCH}```\n")
WRONG = answer(f"```sketch\n{WRONG_SKETCH}```\n")
#: what one request of the loopback server costs
TOKENS = 120

ENDPOINT = """
[models]
base_url = "{url}"
model = "fake-1"
retries = 0
first_token_s = 2.0
stall_s = 2.0
[models.prices]
"fake-*" = {{ input = 10.0, output = 10.0 }}
"""


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("KERNELLAB_MODEL", "OPENAI_")):
            monkeypatch.delenv(name)


@pytest.fixture
def speak(tmp_path: Path) -> Iterator[Callable[..., tuple[Session, FakeServer]]]:
    """``speak(act, ...) -> (session, server)``: a session whose Designer is a model that acts so."""
    servers: list[FakeServer] = []
    started: list[Session] = []

    def make(*acts: Act, **options: Any) -> tuple[Session, FakeServer]:
        server = FakeServer(*acts)
        server.__enter__()
        servers.append(server)
        (tmp_path / "kernellab.toml").write_text(ENDPOINT.format(url=server.url))
        roles = {"designer": "model", "coder": "rules", **options.pop("roles", {})}
        options.setdefault("options", {"level": "T1"})
        session = design(TASK, dsl="cpp", roles=roles, name="twice", workspace=tmp_path, **options)
        started.append(session)
        return session, server

    yield make
    for session in started:
        if not session.resting:
            session.stop()
    for server in servers:
        server.__exit__(None, None, None)


# -- to the end --------------------------------------------------------------------------------------------------------


def test_a_models_sketch_becomes_a_kernel_and_each_exchange_is_in_the_journal(speak: Any, tmp_path: Path) -> None:
    session, server = speak(WRONG, RIGHT)
    assert session.wait(120).status is SessionStatus.FINISHED
    designed = session.turns[0]
    assert (designed.role, designed.author) == (Role.DESIGNER, Author.MODEL)
    assert designed.sketch == SKETCH
    assert session.verdict.passed
    first, second = session.trace.exchanges(1)
    assert (first.purpose, second.purpose) == ("design", "repair-sketch")
    assert first.sections and first.reply.strip().endswith("```")
    assert len(server.requests) == 2
    kinds = [event.kind for _, event in Journal(tmp_path).read(session.id)]
    # each is there before the turn that it belongs to has ended
    assert kinds[:5] == ["created", "turn_started", "target", "exchanged", "exchanged"]
    ledger = session.trace.ledger()
    assert ledger["total"]["requests"] == 2
    assert ledger["turns"]["t1"]["input_tokens"] == 200
    assert ledger["total"]["usd"] == pytest.approx(2 * TOKENS * 10e-6)
    assert "240 tokens" in ledger["text"] and "seems to cut prompts" in ledger["text"], "100 of some thousand"
    assert "seems to cut" not in designed.rationale, "it is a person's to read, and other turns are told the rationale"
    again = open_session(session.id, tmp_path)
    assert again.state.exchanges("t1") == (first, second)


@pytest.mark.parametrize(("approval", "requests"), [("all", 2), ("designer", 2), ("none", 4)])
def test_a_person_who_attends_is_asked_after_the_second_reply_that_cannot_be_used(
    speak: Any, approval: str, requests: int
) -> None:
    # each in other words: of equal replies the second is the last
    session, server = speak(
        *(answer(f"```sketch\n{WRONG_SKETCH}```\nTry {n}.") for n in range(4)), approve=approval, max_turns=1
    )
    assert until(lambda: "t1" in session.state.turns and session.state.turns["t1"].state is TurnState.DONE)
    assert len(server.requests) == requests
    if approval != "none":
        assert until(lambda: session.status is SessionStatus.WAITING)
        assert session.state.question.kind is QuestionKind.TURN
        assert "Still open after 1 repair" in session.turns[0].rationale


class Sends:
    """Sends the work along ``route``, then stops."""

    author = Author.RULES

    def __init__(self, *route: RouteKind) -> None:
        self.route_ = list(route)
        self.briefs: list[RouteBrief] = []

    def route(self, brief: RouteBrief) -> Route:
        self.briefs.append(brief)
        to = self.route_.pop(0) if self.route_ else RouteKind.STOP
        return Route(to=to, error_class="performance", reason="Slow.", suggestion="Use wider tiles.")


def test_the_lowering_is_verified_before_a_model_coder_is_asked(speak: Any) -> None:
    session, server = speak(answer("KEEP"), roles={"designer": OneSketch(), "coder": "model"})
    assert session.wait(120).status is SessionStatus.FINISHED
    coded = session.turns[1]
    assert (coded.role, coded.author) == (Role.CODER, Author.RULES)
    assert session.verdict.passed
    assert server.requests == []


def test_a_model_coder_is_asked_to_improve_the_verified_lowering(speak: Any) -> None:
    kernel = "def kernel(x):\n    return x * 2.0 + 1.0\n"
    session, server = speak(
        answer(f"```python kernel.py\n{kernel}```\n"),
        roles={"designer": OneSketch(), "coder": "model", "conductor": Sends(RouteKind.CODER)},
        max_turns=8,
    )
    session.wait(120)
    lowered, coded = (turn for turn in session.turns if turn.role is Role.CODER)
    assert (lowered.author, coded.author) == (Author.RULES, Author.MODEL)
    assert session.trace.exchanges(coded)[0].role is Role.CODER
    assert "passed at T1" in server.requests[0].body["messages"][-1]["content"]


def test_after_a_redesign_the_new_sketch_is_lowered_and_verified_first(speak: Any) -> None:
    wider = SKETCH.replace("BLOCK = 16 in", "BLOCK = 32 in")
    designer = OneSketch(SKETCH, wider)
    session, server = speak(
        answer("KEEP"), roles={"designer": designer, "coder": "model", "conductor": Sends(RouteKind.DESIGNER)},
    )  # fmt: skip
    session.wait(120)
    first, second = (turn for turn in session.turns if turn.role is Role.CODER)
    assert first.candidate is not None and second.candidate is not None
    assert second.candidate.sketch == wider
    assert second.candidate.source.hash != first.candidate.source.hash
    assert second.author is Author.RULES
    assert server.requests == []


def test_a_role_that_knows_no_better_answer_ends_the_session_with_the_best(speak: Any) -> None:
    session, _ = speak(
        RIGHT, answer('{"done": "Every byte is moved once."}'), roles={"conductor": Sends(RouteKind.DESIGNER)}
    )
    assert session.wait(120).status is SessionStatus.FINISHED
    assert session.reason == "Every byte is moved once."
    assert session.verdict.passed


def test_a_role_falls_back_along_its_list_and_says_why(speak: Any) -> None:
    session, server = speak(FAULTS["filtered"], roles={"designer": "model:a>model:b>rules"})
    assert session.wait(120).status is SessionStatus.FINISHED
    designed = session.turns[0]
    assert designed.author is Author.RULES
    assert "model:a gave no answer" in designed.rationale and "model:b gave no answer" in designed.rationale
    assert turn_line(designed).endswith("(model:a and model:b gave no answer)")
    # each is asked once more before the next is
    assert [request.body["model"] for request in server.requests] == ["a", "a", "b", "b"]


def test_settings_that_must_be_put_right_are_no_reason_to_fall_back(speak: Any) -> None:
    session, server = speak(FAULTS["auth"], roles={"designer": "model:a>rules"})
    assert session.wait(120).status is SessionStatus.WAITING
    assert session.turns[0].fault == "model:auth"
    assert len(server.requests) == 1


def test_a_fault_of_a_document_stops_the_session_in_a_sentence(speak: Any, tmp_path: Path) -> None:
    folder = tmp_path / "knowledge" / "dsl" / "cpp"
    shutil.copytree(content("knowledge") / "dsl" / "cpp", folder)
    (folder / "examples" / "torch" / "softmax.py").write_text("x = 1\n")
    session, server = speak(
        answer("KEEP"), roles={"designer": OneSketch(), "coder": "model", "conductor": Sends(RouteKind.CODER)}
    )
    assert session.wait(120).status is SessionStatus.STOPPED
    assert "softmax.py has no docstring" in session.reason
    assert [turn.role for turn in session.turns][-1] is Role.CODER
    assert server.requests == []


def test_what_a_model_has_written_so_far_can_be_read(speak: Any) -> None:
    session, _server = speak(silent("Let me think about rows"))
    assert until(lambda: session.trace.partial) == "Let me think about rows"
    assert session.to_dict()["partial"] == "Let me think about rows"
    session.stop()
    until(lambda: session.trace.partial == "")


# -- breaking off ------------------------------------------------------------------------------------------------------


def test_stop_breaks_a_model_off_and_run_takes_the_turn_again(speak: Any) -> None:
    session, _server = speak(silent("Let me"), RIGHT)
    until(lambda: session.trace.partial)
    session.stop()
    until(lambda: session.trace.exchanges())
    (left,) = session.trace.exchanges()
    assert left.finish is Finish.CANCELLED
    assert left.reply == "Let me"
    assert session.status is SessionStatus.STOPPED
    assert session.turns[0].state is TurnState.STOPPED
    session.run()
    assert session.wait(120).status is SessionStatus.FINISHED
    assert [turn.number for turn in session.state.path()] == [2, 3, 4, 5]


def test_cancel_pauses_and_loses_nothing_that_was_answered(speak: Any) -> None:
    session, server = speak(WRONG, silent("Let me"), RIGHT)
    until(lambda: len(server.requests) == 2 and session.trace.partial == "Let me")
    session.cancel()
    assert session.status is SessionStatus.PAUSED
    with pytest.raises(SessionError, match="No turn is running"):
        session.cancel()
    session.run()
    assert session.wait(120).status is SessionStatus.FINISHED
    # the first request's answer was in the journal: only the second was asked again
    assert len(server.requests) == 3
    assert [e.purpose for e in session.trace.exchanges()] == ["design", "repair-sketch", "repair-sketch"]


def test_pause_lets_a_running_model_end(speak: Any) -> None:
    gate = threading.Event()

    def slow(link: Any) -> None:
        gate.wait(60)
        RIGHT(link)

    session, server = speak(slow)
    until(lambda: server.requests)
    session.pause()
    gate.set()
    assert session.wait(120).status is SessionStatus.PAUSED
    assert [turn.state for turn in session.turns] == [TurnState.DONE]
    session.run()
    assert session.wait(120).status is SessionStatus.FINISHED


def test_a_persons_edit_takes_over_from_a_running_model(speak: Any) -> None:
    session, _ = speak(silent("Let me"))
    until(lambda: session.trace.partial)
    session.edit_sketch(SKETCH)
    assert session.wait(120).status is SessionStatus.FINISHED
    assert [turn.author for turn in session.state.path()][:1] == [Author.HUMAN]
    until(lambda: session.trace.exchanges())


# -- faults ------------------------------------------------------------------------------------------------------------

FAULTS = {
    "auth": status(401, "Incorrect API key provided", code="invalid_api_key"),
    "rate-limit": status(429, "Slow down", {"Retry-After": "1"}),
    "server": status(500, "It fell over"),
    "context": status(400, "This model's maximum context length is 10 tokens", code="context_length_exceeded"),
    "network": cut("```sketch\nsketch", hard=True),
    "garbage": raw("<html>hello</html>", "text/html"),
    "truncated": answer("```sketch\nsketch tw", finish="length"),
    "filtered": answer("", finish="content_filter"),
    "empty": answer(""),
    "stalled": silent("```sketch\n"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_ends_in_a_question_and_run_asks_again(speak: Any, kind: str) -> None:
    session, server = speak(FAULTS[kind])
    assert session.wait(120).status is SessionStatus.WAITING
    (turn,) = session.turns
    assert (turn.state, turn.fault) == (TurnState.FAILED, f"model:{kind}")
    assert turn.error and turn.remedy
    question = session.state.question
    assert question is not None
    assert question.kind is QuestionKind.ERROR
    assert turn.remedy in question.text
    # all that was said is kept, the failure too
    assert session.trace.exchanges(turn)[-1].finish is not Finish.STOP
    assert session.trace.exchanges(turn)[-1].error.startswith(kind)
    server.acts.append(RIGHT)
    server.acts[:] = [RIGHT]
    session.run()
    assert session.wait(120).status is SessionStatus.FINISHED
    assert session.head is not None


def test_a_coder_without_an_answer_is_not_the_designers_fault(speak: Any) -> None:
    session, _server = speak(
        FAULTS["server"], roles={"designer": OneSketch(), "coder": "model", "conductor": Sends(RouteKind.CODER)}
    )
    assert session.wait(120).status is SessionStatus.WAITING
    assert session.turns[-1].role is Role.CODER
    assert session.turns[-1].fault == "model:server"
    session.set_role("coder", "rules")
    session.set_role("conductor", "rules")
    session.run()
    assert session.wait(120).status is SessionStatus.FINISHED


# -- budgets -----------------------------------------------------------------------------------------------------------


def costing(tokens: int, reply: str) -> Act:
    return answer(reply, usage={"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens})


def test_a_request_that_does_not_fit_is_not_sent_and_the_budget_can_be_raised(speak: Any, tmp_path: Path) -> None:
    session, server = speak(costing(12_000, f"```sketch\n{WRONG_SKETCH}```\n"), RIGHT, budget="tokens=15000")
    assert session.wait(120).status is SessionStatus.STOPPED
    assert len(server.requests) == 1
    assert re.search(r"takes about [\d,]+ tokens, and 3,000 of tokens=15000 are left", session.reason)
    session.set_budget("tokens=12k")
    with pytest.raises(SessionError, match="is reached"):
        session.run()
    assert session.trace.ledger()["budget"] == "tokens=12k"
    session.set_budget("tokens=40k")
    session.run()
    assert session.wait(120).status is SessionStatus.FINISHED
    assert len(server.requests) == 2  # the first answer was not paid for twice
    with pytest.raises(Exception, match="A budget limits"):
        session.set_budget("coffee=3")


def test_a_spent_budget_stops_no_verification_and_no_rules(speak: Any) -> None:
    session, server = speak(costing(15_000, f"```sketch\n{SKETCH}```\n"), budget="tokens=15000")
    assert session.wait(120).status is SessionStatus.FINISHED
    assert session.verdict.passed
    assert len(server.requests) == 1


def test_a_budget_counts_what_an_earlier_process_spent(speak: Any, tmp_path: Path) -> None:
    session, _ = speak(RIGHT, budget="tokens=20000,minutes=10,gpu_s=5")
    session.wait(120)
    from kernellab.session.engine.driver import Driver
    from kernellab.session.turn.context import Bench

    state = session.state
    bench = Bench(state.created, {}, None, None, tmp_path)
    Driver(session._engine, Journal(tmp_path), session.id, bench, None, lambda: None)
    spent = bench.budget.spent()
    assert spent["tokens"] == TOKENS
    assert spent["gpu_s"] == 0.0
    assert spent["minutes"] * 60 >= sum(turn.seconds for turn in session.turns)


# -- replay and resume -------------------------------------------------------------------------------------------------


def test_a_recorded_session_plays_again_without_a_server(speak: Any, tmp_path: Path) -> None:
    session, _ = speak(WRONG, RIGHT)
    session.wait(120)
    file = write_replay(tmp_path / "twice.jsonl", session.trace.exchanges())
    place = tmp_path / "elsewhere"
    place.mkdir()
    again = design(
        TASK, dsl="cpp", roles={"designer": f"replay:{file}"}, name="twice", workspace=place, options={"level": "T1"}
    ).wait(120)
    assert again.status is SessionStatus.FINISHED
    assert [e.reply for e in again.trace.exchanges()] == [e.reply for e in session.trace.exchanges()]
    assert again.trace.exchanges()[0].recorded_at
    other = design(
        TASK.replace("* 2.0", "* 4.0"), dsl="cpp", roles={"designer": f"replay:{file}"}, name="other", workspace=place,
        options={"level": "T1"},
    ).wait(120)  # fmt: skip
    assert other.status is SessionStatus.WAITING
    assert "holds no answer to this request" in other.reason


_CHILD = """
import sys, time
sys.path.insert(0, sys.argv[2])
from session_parts import TASK
from kernellab.dsls import rates
from kernellab.session import design
# what is measured of the chip here is not kept for the next process, and is something else there
rates._stored, rates._store = lambda path: None, lambda path, measured: None
rates.measure_rates = lambda cores: rates.Rates(1e10, 1e11, 5e10, "measured in the child")
session = design(TASK, dsl="cpp", roles={"designer": "model"}, name="cut", workspace=sys.argv[1],
                 options={"level": "T1"})
while session.trace.partial != "Let me":
    time.sleep(0.01)
print("speaking", flush=True)
time.sleep(600)
"""


def test_after_a_kill_no_answered_request_is_asked_again(tmp_path: Path) -> None:
    with FakeServer(WRONG, silent("Let me"), RIGHT) as server:
        # no silence is too long here: on a busy machine a first token takes its time
        patient = ENDPOINT.replace("stall_s = 2", "stall_s = 99").replace("first_token_s = 2.0", "first_token_s = 99.0")
        (tmp_path / "kernellab.toml").write_text(patient.format(url=server.url))
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(tmp_path), str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "speaking"
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
        assert len(server.requests) == 2
        session = open_session("cut", tmp_path).wait(120)
        assert session.status is SessionStatus.FINISHED
        # the wrong sketch's repair is asked again; the first request, answered before the kill, is not
        assert len(server.requests) == 3
        assert server.requests[2].body["messages"] == server.requests[1].body["messages"]
        assert [e.purpose for e in session.trace.exchanges()] == ["design", "repair-sketch"]
        assert session.trace.ledger()["total"]["requests"] == 2


# -- a faster one ------------------------------------------------------------------------------------------------------


class Once:
    """Sends a kernel that passed back to the Designer once, as the rules do where there is headroom."""

    author = Author.RULES

    def __init__(self) -> None:
        self.briefs: list[RouteBrief] = []

    def route(self, brief: RouteBrief) -> Route:
        self.briefs.append(brief)
        if len(self.briefs) > 1:
            return Route(to=RouteKind.FINISH, error_class="none", reason="Enough.")
        return Route(to=RouteKind.DESIGNER, error_class="performance", reason="Slow.", suggestion="Use wider tiles.")


def test_what_is_left_is_in_the_conductors_brief_and_its_suggestion_in_the_designers_prompt(speak: Any) -> None:
    wider = SKETCH.replace("BLOCK = 16 in", "BLOCK = 32 in")
    conductor = Once()
    session, server = speak(
        RIGHT, answer(f"```sketch\n{wider}```\n"), roles={"conductor": conductor}, budget="tokens=19000"
    )
    assert session.wait(120).status is SessionStatus.FINISHED
    first, second = conductor.briefs
    assert first.improve and first.improvers == {Role.DESIGNER} and first.verdict is not None
    assert (first.budget_left, second.budget_left) == ("18,880 tokens", "18,760 tokens")
    assert "Use wider tiles." in server.requests[1].body["messages"][-1]["content"]
    assert session.sketch == wider, "an answer after a pass is verified"


def test_a_model_goes_on_after_a_pass_while_rules_finish(speak: Any) -> None:
    wider = SKETCH.replace("BLOCK = 16 in", "BLOCK = 32 in")
    conductor = Once()
    session, server = speak(
        RIGHT, answer(f"```sketch\n{wider}```\n"), roles={"conductor": conductor}, options={"budget": 0.2},
        budget="tokens=19000",
    )  # fmt: skip
    assert session.wait(240).status is SessionStatus.FINISHED
    first, second = conductor.briefs
    assert first.improve
    assert first.improvers == {Role.DESIGNER}
    assert first.verdict is not None
    assert first.best == first.verdict
    assert first.headroom is not None
    assert first.budget_left == "18,880 tokens"
    assert second.budget_left == "18,760 tokens"
    assert "Use wider tiles." in server.requests[1].body["messages"][-1]["content"]
    assert session.sketch == wider


def test_who_asks_for_no_more_than_a_right_kernel_is_told_to_the_conductor(speak: Any) -> None:
    content = Once()
    still, _ = speak(RIGHT, roles={"conductor": content}, improve=False)
    still.wait(120)
    assert not content.briefs[0].improve


def test_without_sketches_the_coder_alone_may_find_something_faster(speak: Any) -> None:
    session, _ = speak(answer("no"), roles={"designer": "model", "coder": "model"}, ablation=["sketch"], max_turns=1)
    session.wait(120)
    assert improving_roles(session.state) == {Role.CODER}
    whole, _ = speak(answer("no"), roles={"designer": "model", "coder": "model"}, max_turns=1)
    whole.wait(120)
    assert improving_roles(whole.state) == {Role.DESIGNER, Role.CODER}


def test_when_one_improver_knows_nothing_faster_the_other_is_asked_before_the_end(speak: Any) -> None:
    nothing = answer('{"done": "I know nothing faster."}')
    session, server = speak(RIGHT, nothing, nothing, roles={"coder": "model", "conductor": Once()})
    assert session.wait(240).status is SessionStatus.FINISHED
    assert len(server.requests) == 3
    assert "You are the Coder" in server.requests[2].body["messages"][0]["content"]
    sent = next(turn for turn in session.turns if turn.route and turn.role is Role.DESIGNER)
    assert sent.route is not None and sent.route.to is RouteKind.CODER
    assert (
        "I know nothing faster." in sent.route.reason
        and "The coder was not asked for something faster than the best kernel yet." in sent.route.reason
    )
    assert len(sent.route.facts) > 1 and "save launches" in sent.route.suggestion, "it is smaller than a call"


def test_the_turn_says_which_player_of_a_list_gave_its_answer(speak: Any) -> None:
    session, _ = speak(RIGHT, roles={"designer": "rules>model"})
    session.wait(240)
    assert session.state.turn(1).author is Author.RULES
    session, _ = speak(status(500, {"error": {"message": "down"}}), roles={"designer": "model>rules"})
    session.wait(240)
    assert session.state.turn(1).author is Author.RULES and session.state.turn(1).passed_over == ("model",)


def test_a_reference_that_cannot_be_captured_goes_on_to_the_model(speak: Any, tmp_path: Path) -> None:
    server = FakeServer(RIGHT)
    with server:
        (tmp_path / "kernellab.toml").write_text(ENDPOINT.format(url=server.url))
        hidden = TASK.replace("return x * 2.0 + 1.0", "return torch.tensor((x.numpy() * 2.0 + 1.0))")
        assert hidden != TASK
        session = design(
            hidden, dsl="cpp", roles={"designer": "rules>model"}, name="twice", workspace=tmp_path,
            options={"level": "T1"},
        )  # fmt: skip
        session.wait(240)
        first = session.state.turn(1)
    assert server.requests, "the model was asked"
    assert first.author is Author.MODEL and first.passed_over == ("rules",)


# -- pins --------------------------------------------------------------------------------------------------------------


def test_a_models_replies_that_break_a_pin_are_refused_within_the_turn_and_counted(speak: Any) -> None:
    broken = SKETCH.replace("-> x)", "-> x, pad=1)")
    pinned = SKETCH.replace("-> x)", "-> x)  #: pin").replace("x * 2.0 + 1.0", "1.0 + x * 2.0")
    session, server = speak(RIGHT, answer(f"```sketch\n{broken}```\n"), answer(f"```sketch\n{pinned}```\n"))
    session.wait(120)
    session.pin(9)
    session.redirect("designer", "another way round")
    assert session.wait(120).status is SessionStatus.FINISHED
    revised = next(turn for turn in reversed(session.turns) if turn.role is Role.DESIGNER)
    assert revised.sketch == pinned
    assert len(revised.refused) == 1
    assert "load(X[m, n:n+BLOCK] -> x)" in revised.refused[0]
    assert session.state.refusals == (revised,)
    assert "load(X[m, n:n+BLOCK] -> x)" in server.requests[2].body["messages"][-1]["content"]


GROUPS = """
import torch

def reference(x, ids):
    return torch.zeros(256, 64).index_add(0, ids, x)

def inputs():
    return torch.randn(4096, 64), torch.randint(0, 256, (4096,))
"""
MASKED = """sketch groups {
    symbols: S;
    tensors: x[S, 64]: f32; ids[S]: i64; y[256, 64]: f32 out;

    @llm_hint("parallel", "coreidx")
    for g in range(256):
        load(ids[0:S] -> at)
        load(x[0:S, 0:64] -> rows)
        store(reduce_sum(where(at[:, None] == g, rows, 0.0), axis=0) -> y[g, 0:64])
}
"""


def test_a_model_codes_a_sketch_that_masks_most_of_its_work_before_it_is_judged() -> None:
    """Its lowering does all of the masked work; a sketch that does what the reference does is lowered first."""
    state = State("s-1", Created(name="s", text="", key="k"))
    for text, sketch, first in ((GROUPS, MASKED, False), (TASK, SKETCH, True)):
        brief = CodeBrief(task=load_task(text, "t"), target=CPU, sketch=sketch)
        assert (unverified_lowering(state, brief) is not None) is first
        assert RulesCoder().code(brief).source.files, "both can be lowered"
