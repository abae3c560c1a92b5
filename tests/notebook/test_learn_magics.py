"""The course in a notebook: exercises with pictures and hints, predictions beside measurements, a moving figure."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from kernellab.errors import CourseError
from kernellab.evolve.lab.curves import USUAL, contender
from kernellab.evolve.lab.pool import load
from kernellab.evolve.lab.replay import replay
from kernellab.notebook.learn.card import outcome_card
from kernellab.notebook.learn.walk import walk
from kernellab.session.engine.engine import engine
from kernellab.teach.exercise import solution
from kernellab.teach.judge import Outcome, Reached
from kernellab.teach.progress import text_hash
from kernellab.teach.recorded import Recording, write
from kernellab.teach.wrong import ErrorMap

WRONG = """sketch two_inputs {
    symbols: N;
    tensors: x[N]: f32; z[N]: f32; y[N]: f32 out;
    constexpr: B = 64;
    @llm_hint("parallel")
    for n in range(0, N, B):
        load(x[n:n+B] -> a)
        load(z[n:n+B] -> b)
        store(3.0 * a + b * 1.5 -> y[n:n+B])
}
"""


def test_a_prediction_of_two_measurements_to_come_starts_the_judge(shell: InteractiveShell) -> None:
    shell.run_line_magic("kernel_predict", "wide/narrow 2x")
    (begun,) = [thread for thread in threading.enumerate() if thread.name == "kernellab-warm"]
    begun.join(60)
    assert engine().verifier().judge_pid is not None


def test_an_answer_is_judged_hinted_drawn_and_graded(shell: InteractiveShell) -> None:
    def answer(text: str) -> Any:
        return shell.run_cell_magic("kernel_exercise", "two-inputs", text)

    first = answer(WRONG)
    assert "two-inputs: wrong" in repr(first) and "Hint 1 of 2" in repr(first)
    html = first._repr_html_()
    assert "role='img'" in html and "elements of y" in html and "aria-label" in html
    assert "Hint 1 of 2" in repr(answer(WRONG))
    assert "Hint 2 of 2" in repr(answer(WRONG.replace("1.5", "1.25")))
    assert shell.run_line_magic("kernel_grade", "two-inputs") == 0
    wrong = ErrorMap("y", "M = 20", (20, 4), ("....",) * 16 + ("..x.",) * 4, (16, 2), 0.0, 1.0, 4, "")
    card = outcome_card("mine", Outcome(Reached.WRONG, "It is wrong.", wrong=wrong), None)
    assert repr(card).count("..x.") == 4, "the rows that are told show what is wrong"
    right = answer(solution("two-inputs") or "")
    assert "two-inputs: right (T1)" in repr(right)
    assert "GB/s of inputs and outputs" in repr(right) and "the reference answer: " in repr(right)
    assert "Next: " in repr(right) and "kl-linked" in right._repr_html_()
    assert shell.run_line_magic("kernel_grade", "two-inputs") == 1
    assert shell.run_line_magic("kernel_grade", "01_memory") == 1
    of_lesson, of_all = (repr(shell.run_line_magic("kernel_progress", which)) for which in ("memory", ""))
    assert "two-inputs passed" in of_lesson and "in all" not in of_lesson and "in all: 1 of " in of_all


def test_who_interrupts_the_timing_keeps_the_points(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(*_: object) -> None:
        raise RuntimeError("stopped")

    monkeypatch.setattr("kernellab.teach.judge.judge", lambda *_, **__: Outcome(Reached.RIGHT, "It is right."))
    monkeypatch.setattr("kernellab.notebook.magics.learn.LearnMagics._timed", timed)
    with pytest.raises(RuntimeError, match="stopped"):
        shell.run_cell_magic("kernel_exercise", "read-once", solution("read-once") or "")
    assert shell.run_line_magic("kernel_grade", "read-once") == 2


def test_a_measurement_stands_beside_its_prediction(shell: InteractiveShell, capsys: Any) -> None:
    shell.run_line_magic("kernel_predict", "mine 2x because it reads once")
    assert "you expect 2x" in capsys.readouterr().out
    text = (solution("two-inputs") or "").strip()
    found = shell.run_cell_magic("kernel_measure", "mine --task two-inputs", text)
    assert "GB/s" in repr(found) and "You expected 2x, measured" in repr(found)
    shell.run_line_magic("kernel_predict", "mine 5x")
    assert "your first prediction counts, 2x" in capsys.readouterr().out
    drawn = shell.run_line_magic("kernel_progress", "--curve")
    assert [len(trace.x) for trace in drawn.data] == [1, 1]


def test_what_another_chip_measured_is_marked_as_recorded(
    shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (solution("two-inputs") or "").strip()
    row = Recording(
        name="far", task="two-inputs", text=text_hash(text), chip="NVIDIA H200", dsl="triton", ms=0.5, speedup=3.0,
        against="about 3x eager", date="2026-11-23", versions="torch 2.11",
    )  # fmt: skip
    monkeypatch.setattr("kernellab.teach.recorded.content", lambda name: tmp_path)
    missing = shell.run_cell_magic("kernel_measure", "far --task two-inputs --on h200", text)
    assert "there is no recording of it on an NVIDIA H200" in repr(missing)
    (tmp_path / "replays").mkdir()
    slow = row.model_copy(update={"name": "slow", "ms": 1.5})
    write([row, slow], tmp_path / "replays" / "measured.json")
    shell.run_line_magic("kernel_predict", "far 2x")
    found = shell.run_cell_magic("kernel_measure", "far --task two-inputs --on h200", text)
    assert "0.5 ms, about 3x eager" in repr(found) and "You expected 2x, measured 3.00x" in repr(found)
    assert "Recorded on one NVIDIA H200 on 2026-11-23" in repr(found) and "dashed" in found._repr_html_()
    skipped = repr(shell.run_line_magic("kernel_measure", "far/slow --on h200"))
    assert "nothing to compare yet. Run the %%kernel_measure cells" in skipped, "one of the two has not run"
    assert "no recording of it" in repr(shell.run_line_magic("kernel_measure", "far/none --on h200"))
    shell.run_cell_magic("kernel_measure", "slow --task two-inputs --on h200", text)
    beside = shell.run_line_magic("kernel_measure", "far/slow --on h200")
    assert "far is 3.00 times as fast as slow" in repr(beside) and "Recorded on one NVIDIA H200" in repr(beside)
    with pytest.raises(CourseError, match="with another text than this cell's"):
        shell.run_cell_magic("kernel_measure", "far --task two-inputs --on h200", text + "# changed")


def test_a_ratio_that_the_notebook_computed_meets_its_prediction(shell: InteractiveShell) -> None:
    shell.user_ns["ratio"], shell.user_ns["word"] = 20.0, "x"
    shell.run_line_magic("kernel_predict", "uniform 2")
    found = shell.run_line_magic("kernel_measure", "uniform --value ratio")
    assert "You expected 2x, measured 20.00x: off by 10.0x" in repr(found)
    with pytest.raises(CourseError, match="not a positive number"):
        shell.run_line_magic("kernel_measure", "uniform --value word")


def test_a_walk_through_a_recorded_space_ends_where_the_replay_ends() -> None:
    found = walk("softmax", "greedy")
    pool = load("softmax")
    best = pool.points[replay(pool, contender("greedy", USUAL), 0.0)[-1]].speedup
    assert f"the best {best:.2f}x" in found.text
    assert "role='img'" in found.html and "prefers-reduced-motion" in found.html


def test_the_moving_figure_tells_each_step_in_words_too(shell: InteractiveShell) -> None:
    found = shell.run_cell_magic("kernel_watch", "two-inputs", solution("two-inputs") or "")
    html = found._repr_html_()
    assert "step 1 of" in html and "prefers-reduced-motion" in html and "<script" not in html
    assert "x[" in repr(found) and "each element read once" in repr(found)
    again = shell.run_cell_magic("kernel_watch", "two-inputs", solution("two-inputs") or "")._repr_html_()
    assert not set(re.findall(r" id='([^']+)'", html)) & set(re.findall(r" id='([^']+)'", again)), "two sets of buttons"
    uneven = shell.run_cell_magic("kernel_watch", "smooth-a-row", solution("smooth-a-row") or "")
    assert "<li>x[" in uneven._repr_html_(), "what is read now and then is told as well"


def test_the_compiled_loop_steps_beside_its_lines(shell: InteractiveShell) -> None:
    found = shell.run_cell_magic("kernel_watch", "two-inputs --compiled", solution("two-inputs") or "")
    html, said = found._repr_html_(), repr(found)
    assert "line " in said and " of asm" in said and "innermost loops" in said
    assert "role='img'" in html and "prefers-reduced-motion" in html and "<script" not in html


def test_a_challenge_is_shown_and_an_unknown_one_named(shell: InteractiveShell) -> None:
    assert "def reference" in repr(shell.run_line_magic("kernel_challenge", "silu"))
    assert "challenges;" in repr(shell.run_line_magic("kernel_challenge", ""))
    with pytest.raises(Exception, match="no exercise 'two-input'"):
        shell.run_cell_magic("kernel_exercise", "two-input", WRONG)


def test_attempts_on_the_toy_judge_add_up_and_get_hints(shell: InteractiveShell) -> None:
    def attack(text: str, line: str = "") -> str:
        return repr(shell.run_cell_magic("kernel_attack", line, text))

    refused = attack("def kernel(x, out):\n    out[:] = x\n")
    assert "attack-the-judge: refused" in refused and "Hint 1 of 2" in refused and "shape()" in refused
    honest = (
        "import numpy as np\ndef kernel(x, out):\n    w = np.exp(x - x.max(1, keepdims=True))\n"
        "    out[:] = w / w.sum(1, keepdims=True)\n"
    )
    assert "no hole was needed" in (shown := attack(honest)) and "Hint" not in shown
    assert "through 1 hole (clean)" in attack("def kernel(x, out):\n    pass\n")
    assert "(right)" in attack("def kernel(x, out):\n    out[:] = float('nan')\n")
    assert shell.run_line_magic("kernel_grade", "attack-the-judge") == 2
    assert "2 of its 10 holes (clean, right)" in repr(shell.run_line_magic("kernel_attack", ""))
    assert "an honest kernel is refused" in attack("def right(error, most):\n    return False\n", "--close")
    closed = "def right(error, most):\n    return bool((error <= most).all())\n"
    told = attack(closed, "--close")
    assert "1 of 10 holes closed" in told and "Hint 1 of 1: shape() names one size" in told, "the first that is open"
    assert shell.run_line_magic("kernel_grade", "close-the-holes") == 1
    asked = repr(shell.run_line_magic("kernel_exercise", "close-the-holes"))
    assert "A judge without holes (10 points" in asked and "%%kernel_attack --close" in asked
    with pytest.raises(UsageError, match="is answered with %%kernel_attack --close"):
        shell.run_cell_magic("kernel_exercise", "close-the-holes", closed)
    assert "15_fooled: 3 of 24 points" in repr(shell.run_line_magic("kernel_progress", "fooled"))
