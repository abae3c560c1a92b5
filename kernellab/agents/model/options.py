"""How a model role works, and which parts of the method it leaves out on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab.agents.briefs import NOTHING

if TYPE_CHECKING:
    from kernellab.models import Talk


@dataclass(frozen=True)
class Options:
    """Lengths are in estimated tokens. ``repairs`` is how often a faulty reply goes back before the role gives up.

    ``ablation`` leaves parts of the method out, added to the brief's own
    (:data:`kernellab.options.design.ABLATIONS`): ``gate`` (sketches are not run before code is asked for), ``routing``
    (every failure goes to the Coder), ``sketch`` (code straight from the task), ``examples`` (no examples and no known
    designs in prompts), ``intermediates`` (the Coder is not told what the sketch computes at the first wrong element),
    ``profile`` (prompts do not say which lines a kernel's time goes into).
    """

    token_budget: int = 16_000
    repairs: int = 3
    max_tokens: int | None = None
    ablation: frozenset[str] = NOTHING

    @classmethod
    def within(cls, talk: Talk, most: int = 16_000) -> Options:
        """The usual options with prompts of at most ``talk.prompt_tokens``, as a model's settings say, or ``most``. A
        person who attends is asked after the second reply that cannot be used."""
        repairs = 1 if talk.attended else cls.repairs
        return cls(token_budget=talk.prompt_tokens or most, repairs=repairs)
