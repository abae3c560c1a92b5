"""The scripted player of the ablations: what it repairs, and that it never answers the same to a failure."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.agents.ablation import claimed
from tests.agents.model_parts import SKETCH
from tests.agents.weak_player import Draft, WeakPlayer

CODE = """#include "kl_math.h"

void kernel(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * 2.0f;
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] + x[i];
}
"""
STATED = "# The task: affine\n\n```python\nreference\n```\n\n"


class Known:
    def right(self, _name: str, _text: str) -> tuple[str, dict[str, str]]:
        return SKETCH, {"kernel.cpp": CODE}


def asked(player: WeakPlayer, said: str, *replies: str) -> str:
    messages = [{"role": "user", "content": STATED + said}]
    for reply in replies:
        messages += [{"role": "assistant", "content": "mine"}, {"role": "user", "content": reply}]
    return player(messages)


@pytest.fixture
def player() -> WeakPlayer:
    """One whose last code has a slip in line 5."""
    player = WeakPlayer("affine", 1, Known())  # type: ignore[arg-type]
    draft = player.drafts["code"] = Draft(CODE.rstrip("\n").splitlines())
    draft.slips[4] = "operation", draft.right[4].replace(" + ", " - ")
    return player


FAILED = "# Your last code\n# What the Verifier found in your last code\n- wrong numbers\n"


def test_a_failure_that_names_nothing_never_gets_the_same_answer_twice(player: WeakPlayer) -> None:
    answers = [player.drafts["code"].text]
    for _ in range(6):
        asked(player, FAILED)
        answers.append(player.drafts["code"].text)
        if not player.drafts["code"].slips:
            break
    assert all(a != b for a, b in pairwise(answers))
    assert player.wrong == 0, "a guess is not counted as a slip"


def test_a_guess_is_taken_back_with_the_next_answer(player: WeakPlayer) -> None:
    draft = player.drafts["code"]
    draft.guess, draft.slips[3] = 3, ("constant", draft.right[3].replace("2.0f", "4.0f"))
    asked(player, FAILED + "- look at `" + draft.text.splitlines()[4].strip() + "`\n")
    assert 3 not in draft.slips and 4 not in draft.slips and draft.guess is None


def test_code_without_a_slip_is_kept_and_right_code_is_done(player: WeakPlayer) -> None:
    player.drafts["code"].slips.clear()
    assert asked(player, FAILED) == "KEEP"
    right = "# What the Verifier found in your last code\n- passed\nThe code is right. If you know no faster one, ...\n"
    assert "done" in asked(player, right)
    assert "done" in asked(player, right, "The code is the same as before.")


def test_an_operator_is_played_by_the_process_that_asks_first(tmp_path: Path) -> None:
    assert claimed(tmp_path / "taken", "softmax") and not claimed(tmp_path / "taken", "softmax")
    assert claimed(tmp_path / "taken", "gelu") and claimed(None, "softmax")
