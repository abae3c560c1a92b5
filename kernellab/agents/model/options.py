"""Settings of a model role, and the parts of the method that it omits on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab.agents.briefs import NOTHING

if TYPE_CHECKING:
    from kernellab.models import Talk


@dataclass(frozen=True)
class Options:
    """Lengths are in estimated tokens. ``repairs`` is how often a faulty reply is returned before the role gives up.

    ``ablation`` omits parts of the method, in addition to the brief's own
    (:data:`kernellab.options.design.ABLATIONS`): ``gate`` (sketches are not run before code is written), ``routing``
    (every failure goes to the Coder), ``sketch`` (code directly from the task), ``examples`` (no examples and no known
    designs in prompts), ``intermediates`` (the Coder does not see what the sketch computes at the first wrong element),
    ``profile`` (prompts do not state in which lines a kernel's time goes).
    """

    token_budget: int = 16_000
    repairs: int = 3
    max_tokens: int | None = None
    ablation: frozenset[str] = NOTHING

    @classmethod
    def within(cls, talk: Talk, most: int = 16_000) -> Options:
        """The default options with prompts of at most ``talk.prompt_tokens``, from the model's settings, or ``most``.
        If a person attends, they are asked after the second unusable reply."""
        repairs = 1 if talk.attended else cls.repairs
        return cls(token_budget=talk.prompt_tokens or most, repairs=repairs)
