"""The doctor shows the models that roles speak to, and asks them where it is told to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernellab.doctor import models_of
from tests.models.fake_server import FakeServer, answer, status


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("KERNELLAB_MODEL", "OPENAI_")):
            monkeypatch.delenv(name)


def test_without_settings_there_is_no_model() -> None:
    assert models_of(probe_models=False) == ()


def test_configured_models_are_shown_and_asked_for_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer(answer("yes", finish="length"), status(401, "wrong key")) as server:
        monkeypatch.setenv("KERNELLAB_MODEL_URL", server.url)
        monkeypatch.setenv("KERNELLAB_MODEL", "big")
        host = server.url.removeprefix("http://").removesuffix("/v1")
        assert models_of(probe_models=False) == (f"all roles: big at {host}, configured",)
        assert server.requests == []
        monkeypatch.setenv("KERNELLAB_MODEL_CODER", "small")
        first, second = models_of(probe_models=True)
    assert first.startswith(f"designer, conductor, analyst: big at {host}, answers in ")
    assert ("coder: small" in second and "wrong key" in second) or "key" in second
    assert [request.body["max_tokens"] for request in server.requests] == [1, 1]


def test_a_model_without_an_address_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL", "big")
    (line,) = models_of(probe_models=False)
    assert line.startswith("all roles: big at no address, not ready: No endpoint is configured")
