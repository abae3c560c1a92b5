"""The backward of a task that says ``GRAD = True``: designed behind its forward, and verified with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernellab.cli.output import say
from kernellab.errors import KernellabError

if TYPE_CHECKING:
    from kernellab.session import DesignRequest, Session


def backward_of(session: Session, request: DesignRequest) -> dict[str, Any]:
    """Designs the backward with the same request, checks both as a pair, and says what came of it."""
    from kernellab.model_integration.gradient.derive import backward_text
    from kernellab.model_integration.gradient.pair import Pair
    from kernellab.session import begin
    from kernellab.task import load_task

    try:
        task = load_task(session.state.created.text, session.name)
        name = f"{session.name}_backward"
        backward = begin(replace(request, task=backward_text(task), name=name, asked=(), sketch=None, source=None))
        backward.wait(progress=True)
        verdict = backward.best.verdict
        together = Pair(task, session, backward).verify()
    except KernellabError as error:
        say(f"backward: {error.message}")
        if error.remedy:
            say(f"  -> {error.remedy}")
        return {"passed": False, "reason": error.message}
    say(f"backward: {verdict.text}; {together.text}")
    return {
        "passed": True, "session": backward.id, "speedup": verdict.speedup, "pair_speedup": together.time.speedup,
        "pair_low": together.time.low, "pair_high": together.time.high,
    }  # fmt: skip
