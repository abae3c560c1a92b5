"""A key is found in nothing that is kept, shown or handed on."""

from __future__ import annotations

import io
import logging
import pickle
import traceback
from pathlib import Path

import pytest

from kernellab.models import ModelError, ModelSettings, Talk, configured, open_model, scrub, write_replay
from kernellab.models.exchanges import ChatMessage, Exchange
from kernellab.models.keys import REMOVED, scrub_error
from kernellab.records import Role
from kernellab.sandbox.environment import clean_environment
from tests.models.fake_server import FakeServer, answer
from tests.models.fault_cases import CASES, HELLO, KEY, QUICK, Case, played

TELLING = [
    case for case in CASES if case.fault in ("401 that quotes the key", "307 redirect elsewhere", "500 for ever")
]


@pytest.fixture
def logs() -> io.StringIO:
    """Everything that anybody logs, at every level."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    names = ("httpcore", "httpcore2", "httpx", "httpx2", "openai", "")
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True)
def keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_KEY", KEY)


@pytest.mark.parametrize("case", TELLING, ids=lambda case: case.fault)
def test_a_server_that_quotes_the_key_tells_nobody(case: Case, logs: io.StringIO, tmp_path: Path) -> None:
    with played(case) as outcome:
        assert outcome.requests[0].headers["authorization"] == f"Bearer {KEY}", "the server did get the key"
        assert outcome.error is not None
        kept = write_replay(tmp_path / "run.jsonl", outcome.records).read_text()
        told = traceback.TracebackException.from_exception(outcome.error, capture_locals=True)
        ours = [frame for frame in told.stack if "/kernellab/models/" in frame.filename]
        shown = repr([frame.locals for frame in ours]) + repr((told.__cause__, told.__context__))
        assert ours, "a debugger's traceback shows every local of these frames"
        for text in (
            logs.getvalue(),
            kept,
            shown,
            repr(outcome.error),
            repr(outcome.error.reply),
            repr(outcome.records),
        ):
            assert KEY not in text
            assert KEY[:12] not in text
        assert "HTTP Request" in logs.getvalue()


def test_a_reply_that_holds_the_key_is_kept_without_it() -> None:
    shown: list[str] = []
    records: list[Exchange] = []
    with FakeServer(answer(f"Your key is {KEY}.", reasoning=f"The key: {KEY}", pieces=9)) as server:
        model = open_model("model", Role.CODER, ModelSettings.load(base_url=server.url, model="m"))
        reply = Talk(model, Role.CODER, records.append, on_text=shown.append).ask("code", HELLO)
    assert reply.text == f"Your key is {REMOVED}."
    assert KEY not in repr((reply, shown, records))


def test_a_prompt_that_holds_the_key_is_asked_and_kept_without_it() -> None:
    records: list[Exchange] = []
    with FakeServer(answer("hello")) as server:
        model = open_model("model", Role.CODER, ModelSettings.load(base_url=server.url, model="m"))
        log = ChatMessage(role="user", content=f"KERNELLAB_MODEL_KEY={KEY} in the log")
        Talk(model, Role.CODER, records.append).ask("code", [log])
        assert KEY not in repr(server.requests[0].body)
    assert records[0].messages[0].content == f"KERNELLAB_MODEL_KEY={REMOVED} in the log"


def test_settings_models_and_doctor_know_no_key() -> None:
    settings = ModelSettings.load(base_url="http://localhost:1/v1", model="m")
    endpoint = settings.endpoint(Role.CODER)
    model = open_model("model", Role.CODER, settings)
    assert endpoint.key == KEY
    for each in (settings, endpoint, model, configured(settings), settings.model_dump_json()):
        assert KEY not in repr(each)
    assert KEY not in pickle.dumps(settings).decode("latin1")


def test_workers_do_not_inherit_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("MY_OWN_NAME", KEY)
    assert KEY not in repr(clean_environment())


def test_the_key_goes_to_no_other_address_when_redirected() -> None:
    from tests.models.fake_server import status

    with FakeServer(answer("hello")) as other, FakeServer(status(307, "", {"Location": f"{other.url}/x"})) as server:
        model = open_model("model", Role.CODER, ModelSettings.load(base_url=server.url, model="m", **QUICK))
        with pytest.raises(ModelError, match="not sent there unasked"):
            Talk(model, Role.CODER, lambda _: None).ask("code", HELLO)
        assert other.requests == []


@pytest.mark.parametrize(
    "said",
    [
        "Incorrect API key provided: sk-proj-********************wxyz.",
        "invalid token gsk_abcDEF0123456789",
        "header was Bearer abcdef.ghi",
        "key abcdef***xyz",
    ],
)
def test_foreign_and_masked_keys_are_cut_from_what_servers_say(said: str) -> None:
    clean = scrub_error(said)
    assert REMOVED in clean
    assert not any(part in clean for part in ("wxyz", "0123", "abcdef"))


def test_a_placeholder_key_does_not_eat_ordinary_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_KEY", "EMPTY")
    ModelSettings.load(base_url="http://localhost:1/v1", model="m").endpoint(Role.CODER)
    assert scrub("the tile is EMPTY") == "the tile is EMPTY"
