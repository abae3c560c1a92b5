"""A mode of torch that runs each operator, and does not load torch's compiler for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

Handle = Callable[[Any, Sequence[Any], dict[str, Any]], Any]


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which :meth:`ran` runs every operator that reaches the dispatcher."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the operator ``func``; a subclass returns its result."""
        raise NotImplementedError


def _dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return self.ran(func, args, kwargs or {})


# set after the class is made: a method in its body is wrapped for torch.compile, whose import takes a second and 100 MB
Operators.__torch_dispatch__ = _dispatch  # type: ignore[method-assign]


def watching(handle: Handle) -> Operators:
    """Return a context in which ``handle(operator, args, kwargs)`` runs every operator that reaches the dispatcher."""
    watch = Operators()
    watch.ran = handle  # type: ignore[method-assign, assignment]
    return watch
