"""Sessions in a workspace of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from session_parts import TASK, OneSketch

from kernellab.session import Session, design
from tests.quick_looks import shared_quick_looks


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    shared_quick_looks(monkeypatch)


@pytest.fixture
def begin(tmp_path: Path) -> Any:
    """``begin(designer=..., coder=..., **options) -> Session`` in a workspace of its own, stopped at the end."""
    started: list[Session] = []

    def make(designer: Any = None, coder: Any = None, **options: Any) -> Session:
        roles: dict[str, Any] = {"designer": designer or OneSketch(), "coder": coder or "rules"}
        roles |= options.pop("roles", {})
        # a quick look is enough where the session's own rules are tested
        options.setdefault("options", {"level": "T1"})
        session = design(
            options.pop("task", TASK), dsl="cpp", roles=roles, name=options.pop("name", "twice"),
            workspace=options.pop("workspace", tmp_path), **options,
        )  # fmt: skip
        started.append(session)
        return session

    yield make
    for session in started:
        if not session.resting:
            session.stop()
