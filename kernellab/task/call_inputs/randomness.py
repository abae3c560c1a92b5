"""Whether a Model draws random numbers in the mode that it is built in."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: words of calls that draw where an argument says that they train; a module's own draws are seen in the module
_DRAWS = re.compile(r"\b(?:F|functional)\.(?:\w*dropout\w*|rrelu|gumbel_softmax)\(|\bdropout_p\s*=\s*(?!0(?:\.0*)?\b)")
#: words without which no code of a Model's own draws only while it trains
_TRAINS = re.compile(r"\.training\b")


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


def draws_by_itself(text: str, forward: Callable[[bool, AbstractContextManager[Any]], None]) -> bool:
    """Does a Model draw random numbers while it trains, by its own code (a path that is dropped now and then), and
    none in eval mode?

    ``forward`` calls it in training mode (True) or eval mode on tensors without memory, under the context that it is
    given; ``text`` is its task's. False where it cannot be called so: the reference's own results tell then.
    """
    if not _TRAINS.search(text):
        return False
    try:
        return _draws(forward, True) and not _draws(forward, False)
    except Exception:  # whatever the Model cannot do without values
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
