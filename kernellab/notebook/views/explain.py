"""What a verdict means, and why a kernel is slow: an ``Explained`` of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernellab.notebook.answers import Explained

if TYPE_CHECKING:
    from kernellab.session.turn.explaining import Explanation

#: what the Analyst is asked where a model is to explain
QUESTIONS: Mapping[str, str] = {
    "verdict": "Explain the newest verdict: what was found, what it means, and what to do next.",
    "speed": "Why is the newest kernel slow? Name what takes the time, and what to change.",
}


def explained(found: Explanation, what: str) -> Explained:
    return {
        "title": found.title,
        "points": [{"text": point.text, "because": point.because} for point in found.points],
        "advice": found.advice,
        "question": QUESTIONS[what],
    }
