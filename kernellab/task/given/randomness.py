"""Whether a Model draws random numbers in the mode that it is built in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: words of calls that draw where they are told that they train; a module's own draws are seen in the module
_DRAWS = re.compile(r"\b(?:F|functional)\.(?:\w*dropout\w*|rrelu|gumbel_softmax)\(|\bdropout_p\s*=\s*(?!0(?:\.0*)?\b)")


def may_draw(model: torch.nn.Module, text: str) -> bool:
    """Does ``model`` train, and hold a module that draws then (dropout, leaks of a random slope), or call a function
    that does? ``text`` is its task's. What draws in either mode is not meant."""
    import torch

    for module in model.modules():
        if not module.training:
            continue
        if isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0:
            return True
        if isinstance(module, torch.nn.RReLU):
            return True
        # attention and recurrent layers keep a plain number
        if isinstance(module, (torch.nn.MultiheadAttention, torch.nn.RNNBase)) and module.dropout > 0:
            return True
    return model.training and _DRAWS.search(text) is not None
