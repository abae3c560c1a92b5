"""What is long and seldom changes: sketch, files and their left sides of a diff. A ``Texts`` of the protocol."""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.models.chat import WAITING
from kernellab.notebook.protocol import Language, Partial, Texts
from kernellab.notebook.views.artefacts import names_of
from kernellab.notebook.views.at_turn import looked_at, sketch_before, source_at, source_before, verdict_at
from kernellab.notebook.views.headers import own_files
from kernellab.records import Role, Source
from kernellab.session.edits import main_file
from kernellab.session.record.records import QuestionKind, Turn
from kernellab.session.record.state import State

#: characters of a build or run log that travel to the front end; the verdict keeps it all
LOG_LIMIT = 20_000
PARTIAL_LIMIT = 4_000

_LANGUAGES: Mapping[str, Language] = {
    "cpp": "cpp",
    "cc": "cpp",
    "h": "cpp",
    "hpp": "cpp",
    "cu": "cuda",
    "cuh": "cuda",
    "py": "python",
}


def texts(state: State, shown: str) -> Texts:
    at = looked_at(state, shown)
    designed = state.sketch_turn(at) if at else None
    linked = source_at(state, at) if at else None
    begun = None if linked else _begun_from(state, at)
    source = linked or (begun.candidate.source if begun and begun.candidate else None)
    before = source_before(state, at) if at else None
    verdict = verdict_at(state, at) if at else None
    evidence = verdict.evidence if verdict else None
    main = main_file(source) if source else ""
    return {
        "turn": at,
        "sketch": (designed.sketch or "") if designed else "",
        "sketch_before": sketch_before(state, at) if at else "",
        "files": own_files(source) if source else {},
        "files_before": _differing(source, before) if source and before else {},
        "main_file": main,
        "begun_from": begun.number if begun else None,
        "language": _LANGUAGES.get(main.rpartition(".")[2], "text"),
        "line_map": {name: dict(lines) for name, lines in linked.line_map.items()} if linked else {},
        "artefacts": names_of(linked) if linked else [],
        "reproduction": evidence.reproduction if evidence else "",
        "log": evidence.log[-LOG_LIMIT:] if evidence else "",
        "task": state.created.text,
    }


def _begun_from(state: State, at: str | None) -> Turn | None:
    """What a person who is asked for the kernel of a newer sketch begins from: the turn with the code before it."""
    asked = state.question
    if at != state.head or asked is None or (asked.kind, asked.role) != (QuestionKind.BRIEF, Role.CODER):
        return None
    return state.source_turn(at)


def _differing(source: Source, before: Source) -> dict[str, str]:
    own = own_files(source).items()
    return {name: before.files.get(name, "") for name, text in own if before.files.get(name) != text}


NO_PARTIAL: Partial = {"turn": None, "role": "", "text": "", "length": 0, "state": "writes"}


def partial(state: State, text: str) -> Partial:
    """What the running turn's model has written so far: a ``Partial`` of the protocol."""
    turn = state.head_turn
    if turn is not None and not text:
        # of an agent whose process is gone
        text = "\n\n".join(map(str, state.steps.get(turn.id, ())))
    if not text or turn is None:
        return NO_PARTIAL
    waits, text = text.startswith(WAITING), text.removeprefix(WAITING)
    return {
        "turn": turn.id, "role": turn.role.value, "text": text[-PARTIAL_LIMIT:], "length": len(text),
        "state": "cut off" if state.cut_off else "waits" if waits else "writes",
    }  # fmt: skip
