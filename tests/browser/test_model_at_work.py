"""A model at work, seen by the person who waits for it: a slow endpoint on the loopback, with its faults."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from board import SOON, Board
from lab import CHROMIUM, Lab, clean, no_errors, notebook

from tests.models.fake_server import Act, Connection, FakeServer, answer, silent, status

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]

DESIGN = """%%kernel_design twice --dsl cpp --roles designer=model,coder=rules --approve all --baseline eager
import torch
def reference(x):
    return x * 2.0 + 1.0
def inputs():
    return torch.randn(64, 64)
"""
SKETCH = """sketch twice {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    constexpr: BLOCK = 16 in {16, 32};

    @llm_hint("parallel")
    for m in range(M):
        for n in range(0, N, BLOCK):
            load(X[m, n:n+BLOCK] -> x)
            store(x * 2.0 + 1.0 -> Y[m, n:n+BLOCK])
}
"""
#: two hunks: another block, and the product the other way round
EDITED = SKETCH.replace("16 in {16, 32}", "32 in {16, 32, 64}").replace("x * 2.0", "2.0 * x")
WAIT_S = 12


class Slow:
    """Streams a reply up to where ``words`` are, and the rest when it is let go."""

    def __init__(self, text: str, words: str) -> None:
        self.begun, self.rest = text[: text.index(words)], text[text.index(words) :]
        self.let_go = threading.Event()

    def __call__(self, link: Connection) -> None:
        link.open_stream()
        link.delta(role="assistant", content="")
        for line in self.begun.splitlines(keepends=True):
            link.delta(content=line)
        self.let_go.wait(120)
        link.delta(content=self.rest)
        link.delta(finish="stop")
        link.done()


@pytest.fixture
def endpoint(workspace: Path) -> Iterator[Any]:
    """``endpoint(act, ...)``: what the workspace's models say."""
    servers: list[FakeServer] = []

    def make(*acts: Act) -> FakeServer:
        server = FakeServer(*acts)
        servers.append(server.__enter__())
        models = f'[models]\nbase_url = "{server.url}"\nmodel = "fake-1"\n'
        (workspace / "kernellab.toml").write_text(models, encoding="utf-8")
        return server

    yield make
    for server in servers:
        server.__exit__()


def _reply(sketch: str) -> str:
    return f"Each row on its own.\n```sketch\n{sketch}```\n"


def _begin(page: Lab, workspace: Path) -> Board:
    notebook(workspace, "book.ipynb", "%load_ext kernellab", DESIGN)
    page.open("book.ipynb")
    no_errors(page.run(0))
    no_errors(page.run(1))
    return Board(page.page, "twice")


def test_waiting_writing_and_an_edit_by_hunks(page: Lab, workspace: Path, endpoint: Any) -> None:
    slow = Slow(_reply(SKETCH), "for n in")
    endpoint(status(429, "Too many requests.", {"retry-after": str(WAIT_S)}), slow, answer(_reply(EDITED)))
    board = _begin(page, workspace)
    sketch = board.panel("sketch")
    _says_why_and_how_long_it_waits(board, sketch)
    _writes_where_the_sketch_will_stand(board, sketch)
    slow.let_go.set()
    board.wait("waiting", SOON)
    board.wait_turn("^turn 1, designer by model, waiting, sketch right", SOON)
    assert "store(x * 2.0 + 1.0" in board.text(sketch)
    _an_edit_is_taken_by_hunks(page, board, sketch)
    clean(page)


def _says_why_and_how_long_it_waits(board: Board, sketch: Any) -> None:
    waits = sketch.get_by_role("status").filter(has_text="waits")
    waits.filter(has_text=re.compile(r"in \d+ s")).wait_for(timeout=SOON)
    said = waits.inner_text()
    assert re.search(r"rate|429|too many", said, re.I), said
    left = [int(re.findall(r"in (\d+) s", said)[-1])]
    assert left[0] <= 1.25 * WAIT_S  # with a share by chance, so that not all come back at once
    board.page.wait_for_timeout(2_500)
    left.append(int(re.findall(r"in (\d+) s", waits.inner_text())[-1]))
    assert left[1] < left[0], f"the countdown stands still: {left}"


def _writes_where_the_sketch_will_stand(board: Board, sketch: Any) -> None:
    written = sketch.get_by_label("what the designer has written")
    written.get_by_text("for m in range(M)").wait_for(timeout=SOON)
    assert "is writing" in written.inner_text()
    place, panel = (one.bounding_box() for one in (written, sketch))
    assert place["height"] > 0.9 * panel["height"], (place, panel)
    assert sketch.get_by_label("findings of the checker").count() == 0, "a sketch that is not written yet has no fault"


def _an_edit_is_taken_by_hunks(page: Lab, board: Board, sketch: Any) -> None:
    """The model's second sketch differs in two places: one is refused before it is applied, the other stays."""
    board.act("approve").click()
    board.wait_turn("coder by rules, waiting", SOON)
    board.wait("waiting")
    board.act("approve").click()
    board.wait_turn("verifier by rules, passed")
    no_errors(page.say('twice.redirect("designer", "wider blocks")'))
    board.wait_turn("^turn 5, designer by model, waiting", SOON)
    board.wait("waiting", SOON)
    board.panel("sketch")
    refuse = sketch.locator("[data-action=hunk-reject]")
    refuse.nth(1).wait_for(timeout=SOON)
    assert refuse.count() == 2
    refuse.nth(1).click()
    assert "x * 2.0 + 1.0" in board.text(sketch) and "BLOCK = 32" in board.text(sketch)
    sketch.locator("[data-action=hunk-accept]").first.click()
    board.checked(sketch)
    board.act("apply").click()
    board.wait_turn("designer by human, done", SOON)
    outputs = page.say('assert "BLOCK = 32" in twice.sketch and "x * 2.0 + 1.0" in twice.sketch; twice.stop()')
    no_errors(outputs)


def test_asked_after_two_replies_of_no_use_and_a_stopped_one_is_kept(page: Lab, workspace: Path, endpoint: Any) -> None:
    server = endpoint(answer("I would rather not."), answer("Nor now."), silent("Each row on its own, in "))
    board = _begin(page, workspace)
    board.wait("waiting", SOON)
    assert len(server.requests) == 2
    assert "Designer" in board.card.inner_text()
    board.act("approve").click()  # try again
    writing = board.panel("sketch").get_by_label("what the designer has written")
    writing.get_by_text("Each row on its own, in").wait_for(timeout=SOON)
    board.act("stop").click()
    board.wait("stopped", SOON)
    board.act("look-stopped").click()
    prompt = board.root.locator(".kl-panel-prompt")
    prompt.get_by_text("Each row on its own, in").wait_for(timeout=SOON)
    assert "No model was asked" not in prompt.inner_text()
    clean(page)
