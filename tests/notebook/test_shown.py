"""What a session gives out shows itself as %kernel_show does; a wrong call of the best kernel is one sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from kernellab.errors import SessionError
from kernellab.notebook.saved.receipt import VIEWS
from kernellab.notebook.views.rows import turn_rows


@pytest.mark.parametrize(("attribute", "view"), [("sketch", "sketch"), ("source", "code"), ("turns", "turns")])
def test_a_part_of_a_session_shows_itself_as_kernel_show_does(
    story: tuple[Any, Any], shell: InteractiveShell, attribute: str, view: str
) -> None:
    session, _ = story
    wanted = VIEWS[view](session.state)
    data, _ = shell.display_formatter.format(getattr(session, attribute))  # type: ignore[union-attr]
    assert data["text/plain"] == wanted.text
    assert data["text/html"] == wanted.html


def test_a_verdict_and_the_best_kernel_show_their_figures(story: tuple[Any, Any], shell: InteractiveShell) -> None:
    session, _ = story
    best = session.best
    shown, _ = shell.display_formatter.format(best.verdict)  # type: ignore[union-attr]
    assert shown["text/plain"].startswith("passed: Right.")
    assert shown["text/html"].startswith("<div><b>passed</b>")
    figure = best.verdict.comparisons[0].text
    assert figure in repr(best) and figure in repr(best.verdict) and figure in repr(session.turns)
    assert "\n" not in repr(best.verdict)
    shown, _ = shell.display_formatter.format(best)  # type: ignore[union-attr]
    assert "add_one.best(...)" in shown["text/html"]


def test_one_kernel_has_one_number_and_one_figure_everywhere(story: tuple[Any, Any]) -> None:
    session, bench = story
    best, head = session.best, bench.head["best"]
    (candidate,) = session.candidates
    assert candidate.best
    assert best.turn == head["number"] == candidate.number == 2
    figure = best.verdict.comparisons[0].text
    assert next(s["text"] for s in head["speedups"]) == figure
    assert figure in next(row for row in turn_rows(session.state) if row["role"] == "verifier")["note"]
    assert f"{candidate!r}".endswith("(best)")
    finish = next(turn.route for turn in session.turns if turn.route is not None)
    assert "x eager" not in finish.reason


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "without x"),
        ((torch.zeros(3), torch.zeros(3)), "takes 1 arguments, and 2 were given"),
        ((3.0,), "x must be a tensor, not a float"),
        ((torch.zeros(8, 8, dtype=torch.int64),), "x has dtype int64; the task says float32"),
        ((torch.zeros(2, 2, 2, 2),), "x has shape [2, 2, 2, 2]; the task says"),
    ],
)
def test_a_wrong_call_of_the_best_kernel_is_a_sentence_in_the_tasks_terms(
    story: tuple[Any, Any], args: tuple[Any, ...], said: str
) -> None:
    session, _ = story
    with pytest.raises(SessionError, match=said.replace("[", r"\[").replace("(", r"\(")) as caught:
        session.best(*args)
    assert caught.value.__cause__ is None
    lines = caught.value._render_traceback_()
    assert len(lines) == 2
    assert "add_one.best(x)" in lines[1]


def test_each_finding_of_a_refused_answer_is_told(shell: InteractiveShell) -> None:
    from kernellab.agents.model.reply.answers import AnswerError

    error = AnswerError(
        "The code cannot be built.", "Correct it.", ("kernel.py:3: invalid syntax.", "kernel.py has no kernel.")
    )
    assert error._render_traceback_() == [
        "AnswerError: The code cannot be built.",
        "  kernel.py:3: invalid syntax.",
        "  kernel.py has no kernel.",
        "  -> Correct it.",
    ]
    assert error.told.count("\n") == 3


def test_a_line_of_the_task_is_named_as_beside_the_cell_and_quoted(shell: InteractiveShell) -> None:
    cell = "import torch\ndef reference(x)\n    return x\n"
    with pytest.raises(Exception, match=r"line 3: .*`def reference\(x\)`") as caught:
        shell.run_cell_magic("kernel_design", "wrong --dsl cpp", cell)
    assert type(caught.value).__name__ == "TaskError"
