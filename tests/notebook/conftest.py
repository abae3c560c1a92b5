"""Real sessions in workspaces of their own, and their workbenches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_parts import TASK, Page, played

from tests.waiting import until


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A real IPython shell with kernellab loaded, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELLAB_APPROVE", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "kernellab")
    yield shell
    shell.run_line_magic("unload_ext", "kernellab")
    InteractiveShell.clear_instance()


@pytest.fixture
def session(shell: InteractiveShell) -> Iterator[Any]:
    """A session that waits for a person's sketch; with people in the roles nothing waits for a compiler."""
    from kernellab.notebook.board.registry import workbench_of

    shell.run_cell_magic("kernel_design", "add_one --dsl cpp --roles designer=human,coder=human", TASK)
    session = shell.user_ns["add_one"]
    session.wait(60)
    yield session
    workbench_of(session).close()
    if not session.status.ended:
        session.stop()


@pytest.fixture
def page(session: Any) -> Page:
    from kernellab.notebook.board.registry import workbench_of

    return Page(workbench_of(session))


@pytest.fixture(scope="session")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Page]]:
    """A session that waits for a person's sketch, and a page, for tests that change nothing: ``(session, page)``."""
    from kernellab.notebook.board.workbench import Workbench
    from kernellab.session import design

    roles = "designer=human,coder=human"
    session = design(TASK, dsl="cpp", name="add_one", roles=roles, workspace=tmp_path_factory.mktemp("quiet"))
    session.wait(60)
    bench = Workbench(session)
    assert until(lambda: bench.head["operator"])
    yield session, Page(bench)
    bench.close()
    session.stop()


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """A session by rules on C++ that was measured, and its workbench in teaching mode: ``(session, bench)``.

    Turns: 1 Designer, 2 Coder, 3 Verifier, 4 Conductor; turn 2's measurement was predicted to be 2 times eager's.
    """
    session, bench = played(tmp_path_factory.mktemp("story"))
    yield session, bench
    bench.close()
