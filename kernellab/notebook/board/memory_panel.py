"""The Memory panel's questions and decisions: search, remember, forget, a person's word on an entry."""

from __future__ import annotations

from kernellab.errors import KernellabError, counted
from kernellab.memory.memory import Memory
from kernellab.memory.records import Provenance, Value
from kernellab.notebook.answers import Learnt, MemoryHit, MemoryPage
from kernellab.notebook.board.body import Body, words
from kernellab.session import Session
from kernellab.session.memory_use import Found, by_task, by_words

_NONE = "Nothing was remembered in this workspace yet. A verified kernel may be the first: Remember."
_MOST = 8


def page(session: Session, body: Body) -> MemoryPage:
    """Entries whose words match, or without words those of computations like the session's task.

    Raises:
        MemoryStoreError, TaskError, CaptureError.
    """
    memory = _existing(session)
    if memory is None:
        return {"hits": [], "note": _NONE}
    asked = words(body, "words").strip()
    if asked:
        entries = by_words(memory, asked, _MOST, session.workspace)
    else:
        from kernellab.task import load_task

        created = session.state.created
        entries = by_task(memory, load_task(created.text, created.name), created.dsl or "", _MOST, created.hold_out)
    return {"hits": [_hit(one) for one in entries], "note": "" if entries else "Nothing is near enough."}


def remember(session: Session) -> str:
    """A note for the person: how many kernels were new."""
    count = session.memory.remember()
    return (
        f"{counted(count, 'kernel')} remembered." if count else "Nothing new: it was remembered, or nothing has passed."
    )


def forget(session: Session, body: Body) -> str:
    gone = _memory(session).forget(words(body, "id"))
    return "Forgotten: gone from the store and from every later prompt." if gone else "It was forgotten before."


def judge(session: Session, body: Body) -> str:
    thumb, pinned = body.get("thumb"), body.get("pinned")
    if not isinstance(thumb, int) or thumb not in (-1, 0, 1) or not isinstance(pinned, bool):
        raise KernellabError("The view sent no judgement.", "Reload the page.")
    kernel = _memory(session).judge(words(body, "id"), thumb, pinned)
    return "It is not shown any more." if kernel.thumb < 0 else "Kept."


def _existing(session: Session) -> Memory | None:
    recall = session.memory.store
    return recall if recall is not None else Memory.open_existing(session.workspace)


def _memory(session: Session) -> Memory:
    return session.memory.store or Memory.open(session.workspace)


def _hit(entry: Found) -> MemoryHit:
    kernel = entry.kernel
    return {
        "id": kernel.id, "name": kernel.name, "why": entry.why, "score": entry.score, "logic": entry.logic,
        "shape": entry.shape, "value": entry.value, "draft": _learnt(kernel.draft), "refine": _learnt(kernel.refine),
        "thumb": kernel.thumb, "pinned": kernel.pinned, "stale": entry.stale,
        "provenance": _from(kernel.provenance), "sketch": kernel.sketch or "",
    }  # fmt: skip


def _learnt(value: Value) -> Learnt:
    return {"mean": value.mean, "uses": value.uses}


def _from(provenance: Provenance) -> str:
    turn = f", {provenance.turn}" if provenance.turn else ""
    author = f", by {provenance.author}" if provenance.author else ""
    return f"{provenance.origin} {provenance.place}{turn}{author}".strip()
