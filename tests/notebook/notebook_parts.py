"""A small task, its sketch, and a page that speaks to a workbench as the front end does."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

from tests.waiting import until

TASK = """
import torch
def reference(x):
    return x + 1
def inputs():
    return torch.randn(64, 64)
"""
SKETCH = """sketch add_one {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    constexpr: BLOCK = 16 in {16, 32};
    @llm_hint("parallel")
    for m in range(M):
        for n in range(0, N, BLOCK):
            load(X[m, n:n+BLOCK] -> x)
            store(x + 1 -> Y[m, n:n+BLOCK])
}
"""


class Page:
    """A browser's page: sends messages to a workbench, and hears its answers."""

    count = itertools.count()

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        self.name = f"page{next(self.count)}"
        self.heard: dict[str, dict[str, Any]] = {}
        self.number = 0
        # a page more hears what those before it hear
        send, heard = bench.send, self.heard

        def hear(content: dict[str, Any], buffers: object = None) -> None:
            heard[str(content.get("id"))] = content
            send(content, buffers)

        bench.send = hear

    def post(self, body: Any, ident: str | None = None) -> str:
        self.number += 1
        ident = ident or f"{self.name}-{self.number}"
        self.bench._handle_custom_msg({"id": ident, "body": body}, [])
        return ident

    def reply(self, ident: str) -> dict[str, Any]:
        assert until(lambda: ident in self.heard), f"no answer to {ident}"
        return self.heard[ident]

    def act(self, action: str, **fields: Any) -> str:
        """Decide; what came back as an error, "" when it was done."""
        found = self.reply(self.post({"action": action, **fields}))
        assert found["kind"] == "done"
        return str(found.get("error", ""))

    def ask(self, what: str, /, **fields: Any) -> Any:
        found = self.reply(self.post({"ask": what, **fields}))
        assert found["kind"] == "answer" and "error" not in found, found
        return found["value"]


def played(workspace: Path, **options: Any) -> tuple[Any, Any]:
    """A session of four turns in teaching mode whose measurement was predicted, and its workbench.

    The Designer is the rules', given as an object. It begins when the workbench is there, which asks for predictions
    from then on. The session's own would be asked once more for a kernel that a busy machine times slower than eager,
    and that measurement would wait for a prediction too.
    """
    from kernellab.agents.briefs import DesignBrief, DesignReply
    from kernellab.agents.rules.designer import RulesDesigner
    from kernellab.notebook.board.workbench import Workbench
    from kernellab.session import design

    shown = threading.Event()

    class Late(RulesDesigner):
        def design(self, brief: DesignBrief) -> DesignReply:
            assert shown.wait(60)
            return super().design(brief)

    session = design(TASK, dsl="cpp", name="add_one", workspace=workspace, roles={"designer": Late()}, **options)
    bench = Workbench(session, teaching=True)
    shown.set()
    page = Page(bench)
    assert until(lambda: bench.head["prediction"] and bench.head["prediction"]["asked"], 120)
    assert page.act("predict", expected=2, reason="it is bound by memory") == ""
    session.wait(120)
    turns = [(turn.id, turn.role, turn.state, turn.seconds, turn.error) for turn in session.turns]
    assert session.status.value == "finished" and len(turns) == 4, (session.status, bench.head["status_text"], turns)
    until(lambda: bench.head["status"] == "finished")
    return session, bench
