"""What a person decides in the workbench, in the session's words. One function a decision; the protocol's ``Act``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernellab.errors import KernellabError, SessionError
from kernellab.notebook.board.body import Body, named, words
from kernellab.notebook.views.at_turn import source_at
from kernellab.notebook.views.card import open_card
from kernellab.records import Role
from kernellab.session import Session


@dataclass(frozen=True)
class Desk:
    """What a decision is about: the session, the turn looked at, and what the workbench itself does."""

    session: Session
    shown: str
    predict: Callable[[float | None, str], None]
    approval: Callable[[str], None]
    insert: Callable[[str], str]


def carry_out(desk: Desk, body: Body) -> str:
    """Do it, and return a note for the person ("" mostly).

    Raises:
        KernellabError: it is not understood, or the session's state does not allow it; nothing was done then.
    """
    note = named(_ACTS, body, "action", "command")(desk, body)
    return note if isinstance(note, str) else ""


def _approve(desk: Desk, body: Body) -> None:
    _is_open(desk, body)
    to, suggestion = body.get("to"), body.get("suggestion")
    desk.session.approve(
        to=to if isinstance(to, str) else None, suggestion=suggestion if isinstance(suggestion, str) else None
    )


def _answer(desk: Desk, body: Body) -> None:
    _is_open(desk, body)
    text = words(body, "text")
    if not text.strip():
        raise SessionError("The answer is empty.", "Write it, or approve to keep what there is.")
    desk.session.answer(text)


def _sketch(desk: Desk, body: Body) -> None:
    text, state = words(body, "text"), desk.session.state
    newest = state.sketch_turn()
    if newest is not None and (newest.sketch or "").strip() == text.strip():
        raise SessionError("The sketch has this text already: nothing was done.", "Edit it first.")

    def at(turn: str | None) -> str:
        designed = state.sketch_turn(turn) if turn else None
        return (designed.sketch or "") if designed else ""

    _stand(desk, body, at, "sketch")
    desk.session.edit_sketch(text)


def _source(desk: Desk, body: Body) -> None:
    files, state = body.get("files"), desk.session.state
    if not isinstance(files, Mapping) or not all(isinstance(v, str) for item in files.items() for v in item):
        raise KernellabError("The view sent no files.", "Reload the page.")
    newest = source_at(state, state.head)
    if newest is not None and all(newest.files.get(name) == text for name, text in files.items()):
        raise SessionError("The code has this text already: nothing was done.", "Edit it first.")

    def at(turn: str | None) -> str:
        candidate = state.candidate(turn) if turn else None
        return candidate.source.hash if candidate else ""

    _stand(desk, body, at, "code")
    desk.session.edit_source(dict(files))


def _note(desk: Desk, body: Body) -> str:
    role, text = words(body, "role"), words(body, "text").strip()
    if not text:
        raise SessionError("The note is empty.", "Write what the role is to keep in mind.")
    desk.session.note(role, text)
    return who_reads(desk.session, role)


def who_reads(session: Session, role: str) -> str:
    """What becomes of a note for ``role``: rules read none."""
    if session.state.roles.get(Role(role), "rules") == "rules":
        return f"Kept. The {role} is played by rules, which read no notes; a model or a person in the role does."
    return f"The {role} reads this note in each of its turns from now on."


def take_back(session: Session) -> str:
    """Undo the last decision, and say which it was and how the session stands. Raises SessionError if there is none."""
    decisions = session.state.decisions
    session.undo()
    return f"Undone: {decisions[-1].label}. {session.name} is {session.state.status_words}." if decisions else ""


def _pin(desk: Desk, body: Body) -> None:
    line = body.get("line")
    if not isinstance(line, int):
        raise KernellabError("The view named no line to pin.", "Reload the page.")
    if body.get("on"):
        desk.session.pin(line)
    else:
        desk.session.unpin(line)


def _predict(desk: Desk, body: Body) -> None:
    expected = body.get("expected")
    if expected is not None and not isinstance(expected, (int, float)):
        raise SessionError(f"{expected!r} is not a speedup.", "Give a number: 2 means twice as fast as eager.")
    reason = body.get("reason")
    desk.predict(expected, reason if isinstance(reason, str) else "")


def _analyse(desk: Desk, body: Body) -> str:
    question = body.get("question")
    desk.session.analyse(question if isinstance(question, str) else "")
    return "The Analyst's turn appears next to the line; it moves nothing."


def _time_again(desk: Desk, body: Body) -> None:
    turns = body.get("turns")
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise KernellabError("The view named no turns to time.", "Reload the page.")
    sizes = body.get("sizes")
    if not isinstance(sizes, dict) or not all(isinstance(size, int) for size in sizes.values()):
        raise KernellabError("The view named no sizes.", "Reload the page.")
    desk.session.timings.again(*turns, sizes=sizes, wait=False)


def _remember(desk: Desk, body: Body) -> str:
    from kernellab.notebook.board.memory_panel import remember

    return remember(desk.session)


def _forget(desk: Desk, body: Body) -> str:
    from kernellab.notebook.board.memory_panel import forget

    return forget(desk.session, body)


def _judge(desk: Desk, body: Body) -> str:
    from kernellab.notebook.board.memory_panel import judge

    return judge(desk.session, body)


_ACTS: Mapping[str, Callable[[Desk, Body], object]] = {
    "step": lambda desk, body: desk.session.step(),
    "run": lambda desk, body: desk.session.run(),
    "pause": lambda desk, body: desk.session.pause(),
    "stop": lambda desk, body: desk.session.stop(),
    "approve": _approve,
    "answer": _answer,
    "sketch": _sketch,
    "source": _source,
    "fork": lambda desk, body: desk.session.fork(turn=words(body, "turn")),
    "undo": lambda desk, _: take_back(desk.session),
    "approval": lambda desk, body: desk.approval(words(body, "value")),
    "role": lambda desk, body: desk.session.set_role(words(body, "role"), words(body, "value")),
    "note": _note,
    "unnote": lambda desk, body: desk.session.remove_note(words(body, "role"), words(body, "text")),
    "pin": _pin,
    "predict": _predict,
    "budget": lambda desk, body: desk.session.set_budget(words(body, "value")),
    "analyse": _analyse,
    "time_again": _time_again,
    "tune": lambda desk, _: desk.session.tune(),
    "remember": _remember,
    "forget": _forget,
    "judge": _judge,
    "insert": lambda desk, body: desk.insert(words(body, "text")),
}


def _is_open(desk: Desk, body: Body) -> None:
    """Was the question answered that is open now? Another browser, or a second click, may have been quicker."""
    if body.get("card") != open_card(desk.session.state):
        # the person may read it later: it says nothing of where the session stands now
        raise SessionError(
            "That question is closed: it was answered, or the session was moved.", "Answer what is asked now."
        )


def _stand(desk: Desk, body: Body, at: Callable[[str | None], str], what: str) -> None:
    """Put the head where the edit was made, if a person looks there; refuse an edit of a text that has changed."""
    state, base = desk.session.state, body.get("base")
    if not isinstance(base, str) or not base:
        return
    if base not in state.turns:
        raise SessionError(f"There is no turn {base}.", "Reload the page.")
    if at(base) == at(state.head):
        return
    if desk.shown == base:
        desk.session.fork(turn=base)
        return
    newer = next((t for t in reversed(state.path()) if at(t.parent) != at(t.id)), None)
    by = f"turn {newer.number} ({newer.role.value}, {newer.author.value}) changed it" if newer else "it was changed"
    raise SessionError(f"The {what} has changed since you began: {by}.", "Compare, and apply your edit to the new one.")
