"""Does a Model draw random numbers in the mode in which it is built?"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: words of calls that draw if an argument turns training on; draws of a module are found from the module
_DRAWS = re.compile(r"\b(?:F|functional)\.(?:\w*dropout\w*|rrelu|gumbel_softmax)\(|\bdropout_p\s*=\s*(?!0(?:\.0*)?\b)")
#: words without which a Model's code does not draw only in training
_TRAINS = re.compile(r"\.training\b")


def may_draw(model: torch.nn.Module, text: str) -> bool:
    """Is ``model`` in training mode, with a module that then draws (dropout, randomised leaky ReLU) or a call of a
    function that does? ``text`` is that of its task. Draws in both modes do not count."""
    import torch

    for module in model.modules():
        if not module.training:
            continue
        if isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0:
            return True
        if isinstance(module, torch.nn.RReLU):
            return True
        # attention and recurrent layers have the probability as a number
        if isinstance(module, (torch.nn.MultiheadAttention, torch.nn.RNNBase)) and module.dropout > 0:
            return True
    return model.training and _DRAWS.search(text) is not None


def draws_by_itself(text: str, forward: Callable[[bool, AbstractContextManager[Any]], None]) -> bool:
    """Does a Model's own code draw random numbers in training mode (a path that is dropped at random), and none in eval
    mode?

    ``forward`` calls it in training mode (True) or eval mode on tensors without memory, in a given context; ``text`` is
    that of its task. False if it cannot be called so; the reference's results then decide."""
    if not _TRAINS.search(text):
        return False
    try:
        return _draws(forward, True) and not _draws(forward, False)
    except Exception:  # the Model may fail in any way without values
        return False


def _draws(forward: Callable[[bool, AbstractContextManager[Any]], None], trains: bool) -> bool:
    import torch

    from kernellab.task.meta.operators import watching

    drawn = []

    def note(func: Any, args: Any, kwargs: Any) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            drawn.append(func)
        return func(*args, **kwargs)

    forward(trains, watching(note))
    return bool(drawn)
