"""A session through all its rooms: real sketches, real code, the real judge; small roles where a fault is wanted."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from session_parts import BAD_SKETCH, SKETCH, TASK, WRONG_SKETCH, Begin, Clumsy, OneSketch

from kernellab.errors import SessionError, TargetError, TaskError
from kernellab.records import Author, Evidence, Role, RouteKind, Source, Stage, Verdict
from kernellab.session import DesignRequest, QuestionKind, Session, SessionStatus, TurnState, design, open_session
from kernellab.session.record.events import Created
from kernellab.verifier import Verifier

#: everything is checked, little time is spent on timing
QUICK = {"budget": 0.2}


def roles_of(session: Session) -> list[str]:
    return [turn.role.value for turn in session.turns]


# -- to the end --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Session:
    roles: Any = {"designer": OneSketch(), "coder": "rules"}
    workspace = tmp_path_factory.mktemp("finished")
    return design(TASK, dsl="cpp", roles=roles, name="twice", workspace=workspace, options=QUICK).wait(120)


def test_it_designs_codes_verifies_and_finishes(finished: Session) -> None:
    assert roles_of(finished) == ["designer", "coder", "verifier", "conductor"]
    assert finished.status is SessionStatus.FINISHED
    assert finished.verdict.passed
    assert finished.sketch == SKETCH
    assert finished.source is not None
    assert all(turn.state is TurnState.DONE and turn.seconds > 0 for turn in finished.turns)


def test_the_best_kernel_computes_the_reference(finished: Session) -> None:
    import torch

    x = torch.randn(37, 65)
    torch.testing.assert_close(finished.best(x), x * 2.0 + 1.0)


def test_an_export_runs_without_kernellab(finished: Session, tmp_path: Path) -> None:
    path = finished.export(tmp_path / "twice.py")
    code = (
        "import sys; sys.modules['kernellab'] = None; sys.path.insert(0, sys.argv[1]);"
        "import torch, twice; x = torch.randn(37, 65);"
        "torch.testing.assert_close(twice.kernel(x), x * 2.0 + 1.0); print('same')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=_env(tmp_path), check=False
    )
    assert done.stdout.strip() == "same", done.stderr
    assert f"Source {finished.best.source.hash}" in path.read_text()
    assert all(text in path.read_text() for text in finished.best.source.files.values())


def test_awaiting_it_gives_the_session(finished: Session) -> None:
    async def wait() -> Session:
        return await finished

    assert asyncio.run(wait()) is finished


def test_its_data_form_holds_what_a_view_draws(finished: Session) -> None:
    import json

    found = json.loads(json.dumps(finished.to_dict()))
    assert found["status"] == "finished"
    assert [turn["role"] for turn in found["turns"]] == roles_of(finished)
    assert all(turn["on_path"] for turn in found["turns"])
    # a kernel's number is that of the turn that wrote it
    assert found["best"]["number"] == 2
    assert found["question"] is None
    assert found["target"].startswith("cpp on ")


def test_going_on_after_the_end_says_what_can_be_done(finished: Session) -> None:
    with pytest.raises(SessionError, match="finished"):
        finished.run()
    assert finished.status is SessionStatus.FINISHED


def test_the_same_call_gives_the_same_session_and_a_changed_one_a_new_one(finished: Session) -> None:
    roles: Any = {"designer": OneSketch(), "coder": "rules"}
    workspace = finished._journal.workspace
    assert design(TASK, dsl="cpp", roles=roles, name="twice", workspace=workspace, options=QUICK) is finished
    changed = design(TASK + "\n# changed\n", dsl="cpp", roles={"designer": "human"}, name="twice", workspace=workspace)
    assert changed is not finished
    assert changed.state.created.previous == finished.id
    assert finished.status is SessionStatus.FINISHED
    assert open_session(finished.id, workspace) is finished
    assert design(TASK, dsl="cpp", roles=roles, name="twice", workspace=workspace, options=QUICK) is finished


# -- faults and where they go ------------------------------------------------------------------------------------------


def test_code_that_does_not_parse_goes_back_to_the_coder(begin: Begin) -> None:
    coder = Clumsy(1)
    session = begin(coder=coder).wait(120)
    assert roles_of(session) == ["designer", "coder", "verifier", "conductor", "coder", "verifier", "conductor"]
    route = session.turns[3].route
    assert route is not None
    assert (route.to, route.error_class) == (RouteKind.CODER, "syntax")
    assert "kernel.py:2" in route.suggestion
    assert coder.briefs[1].route == route
    assert [attempt.verdict.passed for attempt in coder.briefs[1].history if attempt.verdict] == [False]
    assert session.status is SessionStatus.FINISHED


def test_the_same_failure_again_and_again_ends_in_a_stop(begin: Begin) -> None:
    designer = OneSketch()
    session = begin(designer=designer, coder=Clumsy(99), max_turns=40).wait(120)
    assert session.status is SessionStatus.STOPPED
    routes = [turn.route.to.value for turn in session.turns if turn.route]
    assert routes == ["coder", "coder", "designer", "stop"]
    assert len(designer.briefs) == 2
    assert "a person or a model has to look" in session.reason


def test_the_limit_of_turns_stops_it(begin: Begin) -> None:
    session = begin(coder=Clumsy(99), max_turns=4).wait(120)
    assert session.status is SessionStatus.STOPPED
    assert "limit" in session.reason
    with pytest.raises(SessionError, match="no kernel that passed"):
        _ = session.best


def test_a_wrong_sketch_is_routed_before_any_code_exists(begin: Begin) -> None:
    designer = OneSketch(WRONG_SKETCH, SKETCH)
    session = begin(designer=designer).wait(120)
    assert roles_of(session)[:3] == ["designer", "conductor", "designer"]
    assert designer.briefs[1].previous == WRONG_SKETCH
    assert designer.briefs[1].route is not None
    assert session.status is SessionStatus.FINISHED


def test_the_same_source_is_not_verified_twice(begin: Begin) -> None:
    session = begin().wait(120)
    source = session.source
    assert source is not None
    session.edit_source(source)
    session.wait(120)
    again = session.turns[5]
    assert (again.role, again.reused) == (Role.VERIFIER, "t3")
    assert again.verdict == session.turns[2].verdict


def test_a_verification_that_its_deadline_ended_is_made_again(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Verifier.verify
    verdicts: list[Verdict] = []

    def verify(self: Verifier, *args: Any, **options: Any) -> Verdict:
        late = Verdict(
            passed=False, stage=Stage.CORRECT, reason="The whole verification took longer than its deadline of 300 s.",
            evidence=Evidence(signature="deadline", called=0.01),
        )  # fmt: skip
        verdicts.append(whole(self, *args, **options) if verdicts else late)
        return verdicts[-1]

    monkeypatch.setattr(Verifier, "verify", verify)
    session = begin().wait(120)
    assert session.status is SessionStatus.FINISHED, session.reason
    assert [verdict.passed for verdict in verdicts] == [False, True]
    assert session.turns[3].route is not None and session.turns[3].route.to is RouteKind.CODER
    source = session.source
    assert source is not None
    latest = session.state.verdict_of(source.hash)
    assert latest is not None and latest.verdict == verdicts[-1]


def test_a_reference_that_raises_ends_it_with_a_sentence(begin: Begin) -> None:
    session = begin(task=TASK.replace("x * 2.0", "x @ x"))
    with pytest.raises(TaskError):
        session.wait(60)
    assert session.status is SessionStatus.FAILED
    assert session.turns[0].state is TurnState.FAILED
    assert session.failure is not None
    session.fork(turn=1)
    assert session.failure is None  # the error does not outlive a decision


def test_a_random_reference_ends_it_whoever_designs(begin: Begin) -> None:
    session = begin(task=TASK.replace("x * 2.0", "x * torch.rand(1)"))
    with pytest.raises(TaskError, match="no kernel can match"):
        session.wait(60)


def test_a_weak_task_is_named_beside_its_verdict(begin: Begin) -> None:
    same = "load(X[m, n:n+BLOCK] -> x)\n            store(x * 0.0 + 1.0 -> Y[m, n:n+BLOCK])"
    sketch = SKETCH.replace("load(X[m, n:n+BLOCK] -> x)\n            store(x * 2.0 + 1.0 -> Y[m, n:n+BLOCK])", same)
    session = begin(OneSketch(sketch), task=TASK.replace("x * 2.0", "x * 0.0")).wait(90)
    assert any("same number for all inputs" in flag for flag in session.verdict.flags)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n", "syntax error at line 1"),
        ("x = 1\n", "does not define a reference"),
        ("def reference(x): return x\n", "does not define inputs"),
        ("class Model: ...\n", "no get_inputs"),
    ],
)
def test_a_task_that_cannot_be_one_is_refused_at_once(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=words):
        design(text, dsl="cpp", workspace=tmp_path)
    assert not (tmp_path / ".kernellab").exists()


def test_wrong_words_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no DSL named 'c'"):
        design(TASK, dsl="c", workspace=tmp_path)
    with pytest.raises(SessionError, match="Did you mean 'rules'"):
        design(TASK, dsl="cpp", roles="rule", workspace=tmp_path)
    with pytest.raises(SessionError, match="No endpoint is configured for the designer"):
        design(TASK, dsl="cpp", roles="model:x", workspace=tmp_path)
    with pytest.raises(SessionError, match="option 'baselines'"):
        design(TASK, dsl="cpp", options={"baselines": ["yesterday"]}, workspace=tmp_path)
    with pytest.raises(SessionError, match="approval policy"):
        design(TASK, dsl="cpp", approve="sometimes", workspace=tmp_path)


# -- a person takes part -----------------------------------------------------------------------------------------------


def test_routing_waits_for_approval_and_an_edited_suggestion_reaches_the_coder(begin: Begin) -> None:
    coder = Clumsy(1)
    session = begin(coder=coder, approve="routing").wait(120)
    assert session.status is SessionStatus.WAITING
    question = session.state.question
    assert question is not None
    assert (question.kind, question.to) == (QuestionKind.ROUTE, RouteKind.CODER)
    session.approve(suggestion="put a colon there")
    session.wait(120)
    assert session.status is SessionStatus.FINISHED
    person = session.turns[4]
    assert (person.role, person.author) == (Role.CONDUCTOR, Author.HUMAN)
    assert coder.briefs[1].route is not None
    assert coder.briefs[1].route.suggestion == "put a colon there"


def test_all_stops_after_each_turn(begin: Begin) -> None:
    session = begin(approve="all").wait(60)
    assert (session.status, len(session.turns)) == (SessionStatus.WAITING, 1)
    session.approve()
    assert len(session.wait(60).turns) == 2
    session.set_approval("none")
    session.approve()
    assert session.wait(120).status is SessionStatus.FINISHED


def test_a_costly_turn_waits_for_a_word_and_may_be_taken_over(begin: Begin) -> None:
    session = begin(approve="tokens=10k").wait(60)
    question = session.state.question
    assert session.status is SessionStatus.WAITING and question is not None
    assert (question.kind, len(session.turns)) == (QuestionKind.COST, 0)
    session.approve(to="me")
    question = session.wait(60).state.question
    assert question is not None and question.kind is QuestionKind.BRIEF
    session.set_role("designer", "rules")
    assert session.wait(120).status is SessionStatus.FINISHED


def test_step_takes_one_turn(begin: Begin) -> None:
    session = begin(approve="all").wait(60)
    session.set_approval("none")
    session.step()
    assert session.wait(60).status is SessionStatus.PAUSED
    assert roles_of(session) == ["designer", "coder"]
    session.run()
    assert session.wait(120).status is SessionStatus.FINISHED


def test_pause_stops_after_the_turn_that_runs(begin: Begin) -> None:
    release = threading.Event()

    class Held(OneSketch):
        def design(self, brief: Any) -> Any:
            release.wait(30)
            return super().design(brief)

    session = begin(designer=Held())
    while not session.turns:
        time.sleep(0.01)
    session.pause()
    release.set()
    session.wait(60)
    assert session.status is SessionStatus.PAUSED
    assert [turn.state for turn in session.turns] == [TurnState.DONE]
    with pytest.raises(SessionError, match="Nothing is running"):
        session.pause()


def test_a_human_designer_is_asked_and_answers_with_a_sketch(begin: Begin) -> None:
    session = begin(roles={"designer": "human"}).wait(30)
    question = session.state.question
    assert question is not None
    assert (session.status, question.kind) == (SessionStatus.WAITING, QuestionKind.BRIEF)
    with pytest.raises(SessionError, match="waits for you"):
        _ = session.best
    with pytest.raises(SessionError, match="edit_sketch"):
        session.run()
    session.edit_sketch(SKETCH)
    assert session.wait(120).status is SessionStatus.FINISHED
    assert session.turns[0].author is Author.HUMAN


def test_a_persons_faulty_sketch_comes_back_with_its_line(begin: Begin) -> None:
    session = begin(roles={"designer": "human"}).wait(30)
    session.edit_sketch(BAD_SKETCH)
    session.wait(60)
    assert session.status is SessionStatus.WAITING
    question = session.state.question
    assert question is not None
    assert "line 10" in question.suggestion
    session.edit_sketch(SKETCH)
    assert session.wait(120).status is SessionStatus.FINISHED


def test_an_edited_tile_is_designed_coded_and_verified_anew(begin: Begin) -> None:
    session = begin().wait(120)
    first = session.source
    session.edit_sketch(SKETCH.replace("BLOCK = 16 in", "BLOCK = 32 in"))
    session.wait(120)
    assert roles_of(session)[4:] == ["designer", "coder", "verifier", "conductor"]
    assert session.source != first
    assert session.turns[5].candidate is not None
    assert session.turns[5].candidate.constexpr["BLOCK"] == 32
    assert session.turns[6].verdict is not None and session.turns[6].verdict.passed


def test_a_broken_edit_of_the_code_is_found_and_fixed_by_the_rules(begin: Begin) -> None:
    session = begin().wait(120)
    source = session.source
    assert source is not None
    session.edit_source({"kernel.cpp": source.files["kernel.cpp"].replace("2.0", "2.5")})
    session.wait(120)
    assert session.turns[4].author is Author.HUMAN
    verdict = session.turns[5].verdict
    assert verdict is not None
    assert not verdict.passed
    route = session.turns[6].route
    assert route is not None
    assert route.to is RouteKind.CODER
    assert session.status is SessionStatus.FINISHED
    assert session.source == source


def test_a_fork_pauses_on_the_earlier_turn_and_keeps_the_rest(begin: Begin) -> None:
    session = begin().wait(120)
    assert session.fork(turn="1") is session
    assert session.status is SessionStatus.PAUSED
    assert session.head is not None
    assert session.head.number == 1
    session.run()
    session.wait(120)
    assert session.turns[4].parent == "t1"
    assert roles_of(session)[4:] == ["coder", "verifier", "conductor"]
    with pytest.raises(SessionError, match="no turn 99"):
        session.fork(99)


def test_redirect_sends_a_finished_session_to_the_designer(begin: Begin) -> None:
    designer = OneSketch(SKETCH, SKETCH.replace("BLOCK = 16 in", "BLOCK = 32 in"))
    session = begin(designer=designer).wait(120)
    session.redirect("designer", "use wider tiles")
    session.wait(120)
    assert designer.briefs[1].route is not None
    assert designer.briefs[1].route.suggestion == "use wider tiles"
    with pytest.raises(SessionError, match="Unknown route"):
        session.redirect("analyst")


def test_notes_reach_their_role(begin: Begin) -> None:
    designer = OneSketch()
    session = begin(designer=designer, approve="all").wait(60)
    session.note("designer", "keep BLOCK <= 32")
    session.redirect("designer")
    session.wait(60)
    assert designer.briefs[1].notes == ("keep BLOCK <= 32",)


def test_stop_ends_it_and_run_goes_on(begin: Begin) -> None:
    class Slow(OneSketch):
        def design(self, brief: Any) -> Any:
            time.sleep(0.5)
            return super().design(brief)

    session = begin(designer=Slow())
    while not session.turns:
        time.sleep(0.01)
    session.stop()
    assert session.status is SessionStatus.STOPPED
    session.run()
    assert session.wait(120).status is SessionStatus.FINISHED


def test_an_edit_takes_over_from_a_running_turn_whose_result_is_kept(begin: Begin) -> None:
    release = threading.Event()

    class Held(OneSketch):
        def design(self, brief: Any) -> Any:
            release.wait(30)
            return super().design(brief)

    session = begin(designer=Held())
    while not session.turns:
        time.sleep(0.01)
    session.edit_sketch(SKETCH)
    assert session.turns[0].state is TurnState.SUPERSEDED
    release.set()
    session.wait(120)
    assert session.status is SessionStatus.FINISHED
    assert session.turns[1].parent is None
    assert session.turns[0].sketch == SKETCH


def test_a_subscriber_that_raises_does_not_stop_it(begin: Begin) -> None:
    calls: list[str] = []

    def broken(session: Session) -> None:
        calls.append(session.status.value)
        raise RuntimeError("a view broke")

    session = begin(roles={"designer": "human"}).wait(30)
    end = session.subscribe(broken)
    session.edit_sketch(SKETCH)
    assert session.wait(120).status is SessionStatus.FINISHED
    seen = len(calls)
    assert seen > 0
    end()
    session.note("coder", "silence")
    assert len(calls) == seen


def test_code_of_a_model_runs_here_only_when_allowed(begin: Begin) -> None:
    class Model(Clumsy):
        author = Author.MODEL

        def code(self, brief: Any) -> Any:
            reply = super().code(brief)
            files = {n: (f"# by a model\n{t}" if n == "kernel.py" else t) for n, t in reply.source.files.items()}
            source: Source = reply.source.model_copy(update={"origin": Author.MODEL, "files": files})
            return type(reply)(source, reply.constexpr)

    import torch

    session = begin(coder=Model(0), options=QUICK).wait(120)
    x = torch.randn(37, 65)
    with pytest.raises(SessionError, match="written by a model"):
        session.best(x)
    torch.testing.assert_close(session.best(x, allow_model_code=True), x * 2.0 + 1.0)
    torch.testing.assert_close(session.best(x), x * 2.0 + 1.0)


def test_approval_can_be_overridden_for_headless_runs(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_APPROVE", "none")
    assert begin(approve="all").wait(120).status is SessionStatus.FINISHED


def _env(folder: Path) -> dict[str, str]:
    import os

    return {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}


def test_a_finished_kernel_is_compared_with_torch_compile(begin: Begin) -> None:
    session = begin(options=QUICK).wait(120)
    assert session.verdict.against("compile") is None
    verdict = session.timings.compare("eager", "compile", timeout=180)
    assert {c.baseline for c in verdict.comparisons} == {"eager", "compile"}
    # but for how busy the machine was, which each run of timed calls sees by itself
    settled = [[flag for flag in v.flags if not flag.startswith("busy machine")] for v in (session.verdict, verdict)]
    assert (session.verdict.reason, settled[0]) == (verdict.reason, settled[1])
    assert {*session.verdict.label.split(", ")} - {"busy machine"} == {*verdict.label.split(", ")} - {"busy machine"}
    # the first figure stays; the repeated one is kept next to it
    assert [c.baseline for c in session.verdict.timed_again] == ["eager"]
    assert {c.baseline for c in session.verdict.comparisons} == {"eager", "compile"}
    assert session.status is SessionStatus.FINISHED
    assert len(session.turns) == 4
    with pytest.raises(SessionError, match="cannot all be compared"):
        session.timings.compare("yesterday", timeout=30)


def test_a_person_may_take_the_proposed_work(begin: Begin) -> None:
    session = begin(coder=Clumsy(1), approve="routing").wait(120)
    session.approve(to="me")
    session.wait(60)
    question = session.state.question
    assert session.status is SessionStatus.WAITING
    assert question is not None
    assert (question.kind, question.role) == (QuestionKind.BRIEF, Role.CODER)
    assert "kernel.py:2" in question.suggestion
    session.edit_source({"kernel.py": "def kernel(x):\n    return x * 2.0 + 1.0\n"})
    session.wait(60)
    verdict = session.turns[-2].verdict
    assert verdict is not None
    assert not verdict.passed  # it computes with torch's own operators


def test_design_takes_what_its_request_lists_and_what_is_stored_is_in_the_request() -> None:
    listed = list(DesignRequest.model_fields)
    assert sorted(inspect.signature(design).parameters) == sorted(listed)
    assert list(inspect.signature(design).parameters)[:2] == ["task", "dsl"]
    renamed = {"approval", "start_sketch", "start_source"}
    made_here = {"time", "kind", "text", "key", "previous", "version"}
    assert set(Created.model_fields) - renamed - made_here <= set(listed)
    with pytest.raises(TypeError, match="max_turn"):
        design(TASK, max_turn=3)  # type: ignore[call-arg]
