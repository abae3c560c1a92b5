"""Judging a kernel that stands in a cell, against a session's task or a file's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.errors import SessionError
from kernellab.notebook.receipt import Shown
from kernellab.notebook.snapshot import verdict_html
from kernellab.notebook.verdict import seconds, verdict_text
from kernellab.records import Author, Source, StageResult, Verdict, one_line_each

if TYPE_CHECKING:
    from kernellab.session import Session
    from kernellab.task import Task


def verify_cell(
    text: str,
    session: Session | None,
    *,
    task: Path | None = None,
    file: str | None = None,
    dsl: str | None = None,
    level: str = "T2",
    baselines: tuple[str, ...] = ("eager",),
) -> Shown:
    """Blocking, telling each stage as it ends. Without a ``session`` the ``task`` file says what is wanted.

    Raises:
        SessionError: ``file`` without a source that has it.
        TaskError, TargetError, VerifierError: it cannot be judged here.
    """
    from kernellab.session.engine import engine
    from kernellab.target_detect import detect_target
    from kernellab.verifier.options import VerifyOptions

    loaded = task_of(session, task)
    source = source_of(text, session, file, dsl)
    target = session.target if session is not None and session.target.dsl == source.dsl else detect_target(source.dsl)
    options = VerifyOptions.model_validate({"level": level, "baselines": baselines})
    told = _Progress()
    with engine().verifying:
        verdict = engine().verifier().verify(loaded, source, target, options=options, progress=told)
    told.end()
    return shown(verdict)


def shown(verdict: Verdict) -> Shown:
    return Shown(verdict_text(verdict), verdict_html(verdict))


def task_of(session: Session | None, file: Path | None) -> Task:
    from kernellab.task import load_task

    if session is not None:
        created = session.state.created
        return load_task(created.text, created.name)
    assert file is not None
    return load_task(file)


def source_of(text: str, session: Session | None, file: str | None, dsl: str | None) -> Source:
    """The cell as a source: a module of its own, or one file of the session's newest source."""
    earlier = session.source if session is not None else None
    if file is not None:
        if earlier is None:
            raise SessionError(f"There is no source whose {file} the cell could replace.", "Leave --file away.")
        return earlier.model_copy(
            update={"files": {**earlier.files, file: text}, "origin": Author.HUMAN, "line_map": {}}
        )
    chosen = dsl or _dsl_of(text) or (earlier.dsl if earlier else "cpp")
    return Source(dsl=chosen, files={"kernel.py": text}, origin=Author.HUMAN)


def _dsl_of(text: str) -> str | None:
    if "import triton" in text or "from triton" in text:
        return "triton"
    return "cpp" if "tvm_ffi" in text or "load_inline" in text else None


class _Progress:
    """One line for all stages; parts of a stage are told once."""

    def __init__(self) -> None:
        self._parts: list[StageResult] = []

    def __call__(self, stage: StageResult) -> None:
        if self._parts and self._parts[-1].name is not stage.name:
            self._tell()
        self._parts.append(stage)

    def end(self) -> None:
        self._tell()
        print()

    def _tell(self) -> None:
        for stage in one_line_each(self._parts):
            took = seconds(sum(part.seconds for part in self._parts))
            print(f"{stage.name.value} {stage.state.value} {took}".rstrip(), end="; ", flush=True)
        self._parts = []
