"""A recording answers the requests that were recorded, in their order, and says precisely which it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.models import (
    Budget,
    ChatRequest,
    ModelError,
    ModelFault,
    ModelSettings,
    Talk,
    open_model,
    read_replay,
    write_replay,
)  # fmt: skip
from kernellab.models.exchanges import ChatMessage, Exchange, Finish, Usage
from kernellab.models.replay import ReplayModel
from kernellab.records import Role
from tests.models.fake_server import FakeServer, answer
from tests.models.fault_cases import QUICK, SCHEMA


def asked(*texts: str) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage(role="user" if index else "system", content=text) for index, text in enumerate(texts))


def exchange(reply: str, *texts: str, role: Role = Role.CODER, **rest: object) -> Exchange:
    given = {"id": reply, "role": role, "purpose": "code", "model": "big-1", "started": 1795269521.0, **rest}
    return Exchange(messages=asked(*texts), reply=reply, **given)


def model_of(path: Path, *exchanges: Exchange) -> ReplayModel:
    model = open_model(f"replay:{write_replay(path / 'run.jsonl', exchanges)}", Role.CODER)
    assert isinstance(model, ReplayModel)
    return model


def test_a_recorded_talk_is_replayed_without_key_or_network(tmp_path: Path) -> None:
    records: list[Exchange] = []
    prompts = [asked("be brief", "one"), asked("be brief", "two"), asked("be brief", "one")]
    with FakeServer(answer("first"), answer("second"), answer("half", finish="length")) as server:
        model = open_model("model", Role.CODER, ModelSettings.load(base_url=server.url, model="m", **QUICK))
        talk = Talk(model, Role.CODER, records.append)
        for prompt in prompts[:2]:
            talk.ask("code", prompt)
        with pytest.raises(ModelError):
            talk.ask("code", prompts[2])
    path = write_replay(tmp_path / "run.jsonl", records)
    again: list[Exchange] = []
    shown: list[str] = []
    talk = Talk(open_model(f"replay:{path}", Role.CODER), Role.CODER, again.append, on_text=shown.append)
    assert [talk.ask("code", prompt).text for prompt in prompts[:2]] == ["first", "second"]
    with pytest.raises(ModelError) as caught:
        talk.ask("code", prompts[2])
    assert caught.value.kind is ModelFault.TRUNCATED, "a cut reply is replayed as what it was"
    assert shown[:2] == ["first", "second"]
    same = {"messages", "reply", "finish", "role", "purpose"}
    assert [kept.model_dump(include=same) for kept in again] == [kept.model_dump(include=same) for kept in records]
    assert all(kept.recorded_at.startswith("20") for kept in again), "what was replayed is marked in the journal"


def test_the_header_says_when_and_with_which_models(tmp_path: Path) -> None:
    path = write_replay(tmp_path / "r.jsonl", [exchange("a", "s", "u")], note="softmax on a CPU")
    replay = read_replay(path)
    assert replay.mark == "recorded on 2026-11-21 with big-1" and replay.note == "softmax on a CPU"
    assert ReplayModel(replay).name == "big-1 (recorded on 2026-11-21)"
    assert json.loads(path.read_text().splitlines()[0])["recorded"] == "2026-11-21"


def test_equal_requests_are_answered_in_order_and_not_once_more(tmp_path: Path) -> None:
    model = model_of(tmp_path, exchange("a", "s", "u"), exchange("b", "s", "u"))
    request = ChatRequest(asked("s", "u"))
    assert [model.ask(request).text, model.ask(request).text] == ["a", "b"]
    with pytest.raises(ModelError, match="answers this request 2 times, and it was asked once more") as caught:
        model.ask(request)
    assert caught.value.kind is ModelFault.NO_ANSWER and not caught.value.resumable


def test_settings_and_model_do_not_matter_but_the_schema_does(tmp_path: Path) -> None:
    model = model_of(tmp_path, exchange("a", "s", "u"), exchange("b", "s", "u", schema_=SCHEMA))
    assert model.ask(ChatRequest(asked("s", "u"), SCHEMA, "another name", max_tokens=7)).text == "b"
    assert model.ask(ChatRequest(asked("s", "u "), temperature=1.0)).text == "a"


def test_measured_figures_may_differ_and_nothing_else(tmp_path: Path) -> None:
    told = "Your kernel took 3.21 ms (bound 1.9 ms, 59 %), in /tmp/abc/k.py, at 0x7f00aa. Tile 64, 8 rows."
    here = "Your kernel took 12 ms (bound 2.25 ms, 18.7 %), in /tmp/x9/k.py, at 0x55dd01. Tile 64, 8 rows."
    model = model_of(tmp_path, exchange("a", "s", told), exchange("b", "s", told))
    assert model.ask(ChatRequest(asked("s", here))).text == "a"
    with pytest.raises(ModelError):
        model.ask(ChatRequest(asked("s", here.replace("Tile 64", "Tile 32"))))


def test_what_is_left_of_a_budget_and_who_was_recorded_may_differ(tmp_path: Path) -> None:
    told = "9 turns are left; budget left: 35,996 tokens. Say who works next. {} did not answer in the form."
    here = told.replace("35,996", "1,204,000").format("big-1 (recorded on 2026-11-21)")
    model = model_of(tmp_path, exchange("a", "s", told.format("big-1")))
    assert model.ask(ChatRequest(asked("s", here))).text == "a"


def test_a_changed_prompt_is_answered_by_its_place_and_the_reply_says_what_differs(tmp_path: Path) -> None:
    task = "# The task: softmax\nx: f32 [M, N]\n```python\nimport torch\n```\n"
    kept = [
        exchange("other task", "s", task.replace("torch", "math"), purpose="design"),
        exchange("first", "s", f"{task}old words", purpose="design"),
        exchange("fixed", "s", f"{task}old words, fixed", purpose="repair-sketch"),
        exchange("second", "s", f"{task}more old words\nand a hint", purpose="design"),
    ]
    model = model_of(tmp_path, *kept)
    changed = ChatRequest(asked("s", f"{task}new words\nand a hint"), purpose="design")
    replies = [model.ask(changed), model.ask(changed)]
    assert [reply.text for reply in replies] == ["second", "first"], "the likest goes first"
    assert "it has 'old words' where this has 'new words'" in replies[1].note
    assert model.ask(ChatRequest(asked("s", f"{task}old words, fixed"), purpose="repair-sketch")).note == ""
    other = ChatRequest(asked("s", f"{task.replace('torch', 'numpy')}new words"), purpose="design")
    for unknown in (changed, other):
        with pytest.raises(ModelError):
            model.ask(unknown)


def test_a_recording_costs_nothing_when_it_is_played(tmp_path: Path) -> None:
    records: list[Exchange] = []
    model = model_of(tmp_path, exchange("a", "s", "u", usage=Usage(input_tokens=900, usd=0.5)))
    Talk(model, Role.CODER, records.append, Budget(tokens=10)).ask("code", asked("s", "u"))
    assert records[0].usage == Usage()


def test_a_recording_outlives_a_longer_helper_that_it_was_not_shown(tmp_path: Path) -> None:
    told = "(kl_tile.h, {} lines: helpers that come with it, not shown)"
    model = model_of(tmp_path, exchange("a", "s", told.format(509)))
    assert model.ask(ChatRequest(asked("s", told.format(520)))).text == "a"


def test_the_exact_request_is_preferred_over_one_with_other_figures(tmp_path: Path) -> None:
    model = model_of(tmp_path, exchange("a", "s", "took 1.5 ms"), exchange("b", "s", "took 2.5 ms"))
    assert model.ask(ChatRequest(asked("s", "took 2.5 ms"))).text == "b"
    assert model.ask(ChatRequest(asked("s", "took 9.5 ms"))).text == "a"


def test_a_missing_answer_names_the_nearest_and_the_first_difference(tmp_path: Path) -> None:
    long = "\n".join(f"rule {number}" for number in range(30))
    model = model_of(
        tmp_path, exchange("a", "something else", "entirely"),
        exchange("b", long, "task: softmax\ntile: 64\nrows: 8", purpose="repair"),
    )  # fmt: skip
    with pytest.raises(ModelError) as caught:
        model.ask(ChatRequest(asked(long, "task: softmax\ntile: 32\nrows: 8")))
    said = caught.value.message
    assert "The nearest is number 2 (coder, repair)" in said
    assert "in message 2 (user), line 2, it has 'tile: 64' where this has 'tile: 32'" in said


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (ChatRequest(asked("s", "one\ntwo")), "line 2, this has one more line: 'two'"),
        (ChatRequest(asked("s")), "it has 2 messages, this has 1"),
        (ChatRequest(asked("s", "one"), SCHEMA), "the same messages were asked with another answer schema"),
    ],
)
def test_every_kind_of_difference_is_named(tmp_path: Path, request_: ChatRequest, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        model_of(tmp_path, exchange("a", "s", "one")).ask(request_)
    assert said in caught.value.message


def test_a_role_is_answered_with_its_own_exchanges_alone(tmp_path: Path) -> None:
    path = write_replay(tmp_path / "r.jsonl", [exchange("a", "s", "u", role=Role.DESIGNER)])
    with pytest.raises(ModelError, match="holds no answer for this role"):
        open_model(f"replay:{path}", Role.CODER).ask(ChatRequest(asked("s", "u")))
    assert open_model(f"replay:{path}", Role.DESIGNER).ask(ChatRequest(asked("s", "u"))).text == "a"


def test_faults_of_the_network_are_not_replayed(tmp_path: Path) -> None:
    broken = exchange("", "s", "u", finish=Finish.ERROR, error="network: gone")
    model = model_of(tmp_path, broken, exchange("a", "s", "u"))
    assert model.ask(ChatRequest(asked("s", "u"))).text == "a"


def test_a_session_that_is_opened_again_goes_on_where_it_was(tmp_path: Path) -> None:
    first, second = exchange("a", "s", "u"), exchange("b", "s", "u")
    model = model_of(tmp_path, first, second)
    model.skip([first])
    assert model.ask(ChatRequest(asked("s", "u"))).text == "b"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read: No such file"),
        ("", "is not a replay file"),
        ("hello\n", "is not a replay file"),
        ('{"format": "kernellab replay", "version": 9}\n', "has version 9 of the replay format"),
        ('{"format": "kernellab replay", "version": 1}\n\n{"id": 1}\n', "line 3: id is wrong"),
        ('{"format": "kernellab replay", "version": 1}\n{"id":\n', "line 2: the line is wrong"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_in_a_sentence(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "r.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ModelError) as caught:
        open_model(f"replay:{path}", Role.CODER)
    assert sentence in caught.value.message and caught.value.kind is ModelFault.CONFIG


TEXTS = st.lists(st.text(), min_size=1, max_size=3)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(TEXTS, st.text(min_size=1)), min_size=1, max_size=4))
def test_whatever_was_recorded_is_answered(tmp_path_factory: pytest.TempPathFactory, talks: list) -> None:
    kept = [exchange(reply, *texts, usage=Usage(input_tokens=3, usd=0.5)) for texts, reply in talks]
    model = model_of(tmp_path_factory.mktemp("replay"), *kept)
    for texts, reply in talks:
        assert model.ask(ChatRequest(asked(*texts))).text == reply


def test_brackets_without_end_are_no_recording(tmp_path: Path) -> None:
    head = write_replay(tmp_path / "a.replay", []).read_text()
    for text in ("[" * 200_000, f"{head.rstrip()}\n{'[' * 200_000}\n"):
        (tmp_path / "a.replay").write_text(text)
        with pytest.raises(ModelError):
            read_replay(tmp_path / "a.replay")
