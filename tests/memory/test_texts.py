"""Searches by words with an embedding model at an endpoint: a second ranking, made anew when the model changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernellab.cli import main
from kernellab.errors import ModelError
from kernellab.memory.memory import Memory
from kernellab.memory.texts import fused, open_embedder
from kernellab.models import ModelSettings
from kernellab.session.memory_use import by_words
from tests.memory.test_store import row
from tests.models.fake_server import Connection, FakeServer

#: what each of these words means, as a small model might have it
MEANS = {"rows": (1, 0, 0), "lines": (0.9, 0.1, 0), "gelu": (0, 1, 0), "product": (0, 0, 1)}


def embeddings(length: int = 3) -> FakeServer:
    """A server whose vectors add what the words of a text mean, in ``length`` numbers."""

    def act(connection: Connection) -> None:
        texts = connection.body["input"]
        vectors = [
            [sum(MEANS.get(w, (0, 0, 0))[at % 3] for w in text.split()) for at in range(length)] for text in texts
        ]
        rows = [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]
        connection.send(200, json.dumps({"data": rows[::-1]}).encode(), "application/json")

    return FakeServer(act)


def garbage(connection: Connection) -> None:
    connection.send(200, b'{"data": []}', "application/json")


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    (tmp_path / "kernellab.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    found = Memory.open(tmp_path)
    found.store.put([row("rms", 0, rationale="two passes over rows"), row("gelu", 1), row("product", 2)])
    return found


def configure(place: Path, server: FakeServer, embed: str = "model:small") -> None:
    (place / "kernellab.toml").write_text(
        f'[models]\nbase_url = "{server.url}"\nmodel = "chat"\n[memory]\nembed = "{embed}"\n'
    )


def test_a_search_by_words_finds_what_means_the_same(memory: Memory, tmp_path: Path) -> None:
    assert by_words(memory, "lines", 2, tmp_path) == []
    with embeddings() as server:
        configure(tmp_path, server)
        assert by_words(memory, "lines", 1, tmp_path)[0].kernel.name == "rms"
        first = len(server.requests)
        assert server.requests[0].path.endswith("/embeddings")
        by_words(memory, "lines", 1, tmp_path)
        assert len(server.requests) == first + 1, "texts are embedded once"
        memory.store.put([row("other", 3, rationale="lines lines")])
        memory.store.remove([memory.store.words("rms", 1)[0].kernel.id])
        assert [f.kernel.name for f in by_words(memory, "lines", 1, tmp_path)] == ["other"]


def test_vectors_of_another_model_or_length_are_made_anew_in_one_sentence(memory: Memory, tmp_path: Path) -> None:
    told: list[str] = []
    for length, embed, said in (
        (3, "small", ""),
        (6, "small", "of length 3, and small gives 6 now"),
        (6, "large", "by the model small"),
    ):
        with embeddings(length) as server:
            configure(tmp_path, server, f"model:{embed}")
            assert by_words(memory, "lines", 1, tmp_path, told.append)[0].kernel.name == "rms"
        if said:
            assert said in told.pop()
        assert told == []


def test_a_model_that_fails_leaves_the_words(
    memory: Memory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeServer(garbage) as server:
        configure(tmp_path, server)
        assert main(["memory", "search", "rows"]) == 0
    said = capsys.readouterr()
    assert "rms" in said.out
    assert "gave no vectors" in said.err
    with pytest.raises(ModelError, match="names no embedding model"):
        open_embedder("small", ModelSettings())


def test_two_rankings_are_one() -> None:
    assert fused(["a", "b", "c"], ["c", "a"]) == ["a", "c", "b"]
