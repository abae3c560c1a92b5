"""``%kernel_evolve``: begins a search with what it will cost, and steers it in words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import kernellab
from kernellab.errors import EvolveError, KernellabError
from kernellab.evolve.records import Status
from kernellab.notebook.magics.complete import candidates
from kernellab.session import Session
from kernellab.session.record.journal import Journal

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.evolve.runs import TASK
from tests.session import freeze
from tests.waiting import until

FAST = "--score model --rounds 20 --parallel 1"


@pytest.fixture
def run(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> Any:
    shell.run_cell_magic("kernel_evolve", f"soft {FAST} --dsl cpp", TASK)
    found = shell.user_ns["soft_run"]
    yield found
    if not found.state.status.ended:
        found.stop()
    found.wait(60)


def test_the_cell_returns_at_once_with_the_estimate_and_binds_the_run(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    said = capsys.readouterr().out
    assert said.startswith("At most ")
    assert "by usual figures" in said
    assert run.state.begun.name == "soft"
    assert run.works_here


def test_a_run_is_steered_in_words(run: Any, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert until(lambda: len(run.state.evaluations) > 0, 120)
    shell.run_line_magic("kernel_evolve", "pause soft")
    assert until(lambda: run.state.status is Status.PAUSED)
    shell.run_line_magic("kernel_evolve", f"protect {run.id} 0")
    shell.run_line_magic("kernel_evolve", "freeze soft_run 1")
    shell.run_line_magic("kernel_evolve", "set soft elites=3 plateau=4")
    shell.run_line_magic("kernel_evolve", "direct soft keep rows whole")
    assert until(lambda: run.state.direction == "keep rows whole")
    assert (run.state.protected, run.state.frozen) == ({0}, {1})
    assert (run.state.knobs.elites, run.state.knobs.plateau) == (3, 4)
    shell.run_cell_magic("kernel_evolve", "inject soft", "sketch wrong {}\n")
    listed = shell.run_line_magic("kernel_evolve", "list")
    assert run.id in listed.text
    assert shell.run_line_magic("kernel_evolve", "summary") is run
    shell.run_line_magic("kernel_evolve", "report soft soft.html")
    assert Path("soft.html").read_text().startswith("<!doctype html>")
    with pytest.raises(KernellabError, match="cannot be written"):
        shell.run_line_magic("kernel_evolve", "report soft soft.html/soft.html")
    with pytest.raises(UsageError, match="which knob and its value"):
        shell.run_line_magic("kernel_evolve", "set soft elites=4 plateau")
    shell.run_line_magic("kernel_evolve", "resume soft")
    shell.run_line_magic("kernel_evolve", "stop soft it is enough")
    assert until(lambda: run.state.status is Status.STOPPED)
    assert "it is enough" in run.state.reason


def test_what_is_wrong_is_said_with_the_remedy(shell: InteractiveShell) -> None:
    with pytest.raises(EvolveError, match="no run in this workspace"):
        shell.run_line_magic("kernel_evolve", "pause")
    with pytest.raises(UsageError, match="not a command for a run"):
        shell.run_line_magic("kernel_evolve", "halt soft")
    with pytest.raises(EvolveError, match="no policy 'isles'"):
        shell.run_cell_magic("kernel_evolve", "soft --select isles --dsl cpp", TASK)
    assert "soft_run" not in shell.user_ns


def test_a_search_from_a_session_takes_its_task_and_its_dsl(session: Any, shell: InteractiveShell) -> None:
    shell.run_line_magic("kernel_evolve", "add_one --score model --rounds 1 --parallel 1")
    run = shell.user_ns["add_one_run"]
    run.stop()
    begun = run.wait(60).state.begun
    assert (begun.text, begun.dsl, begun.name) == (session.state.created.text, "cpp", "add_one")


def test_a_search_of_a_session_says_what_it_begins_with(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    freeze.load(tmp_path)
    session = Session(Journal(tmp_path), freeze.NAMES["rows"])
    assert session.state.best() is not None
    shell.user_ns["mine"] = session
    shell.run_line_magic("kernel_evolve", "mine --estimate")
    assert "It begins with the best sketch of session mine, measured again" in capsys.readouterr().out


def test_an_estimate_begins_nothing(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    from kernellab.evolve import runs

    shell.run_cell_magic("kernel_evolve", "soft --estimate --dsl cpp --rounds 5", TASK)
    assert "At most" in capsys.readouterr().out
    assert runs() == []


def test_tab_offers_the_words_and_the_options(shell: InteractiveShell) -> None:
    found = candidates(shell, "%kernel_evolve ")
    assert {"list", "pause", "inject", "--islands"} <= set(found)


def test_the_package_has_evolve_as_a_function_and_as_a_room(tmp_path: Path) -> None:
    run = kernellab.evolve(TASK, "cpp", name="soft", workspace=tmp_path, score="model", rounds=1, parallel=1)
    run.stop()
    assert run.wait(60).state.status is Status.STOPPED
    assert kernellab.evolve.Run is type(run)
