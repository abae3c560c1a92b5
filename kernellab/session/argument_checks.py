"""Arguments of a verified kernel, checked in the task's own terms before the kernel sees them."""

from __future__ import annotations

from typing import Any

from kernellab.errors import SessionError
from kernellab.task import Arg, Task


def check_arguments(name: str, task: Task, args: tuple[Any, ...]) -> None:
    """Do ``args`` fit the task: their number, types, dtypes and shapes?

    Raises:
        SessionError: one sentence on the first that does not; the remedy is the task's signature.
    """
    remedy = f"Call it as {name}.best({', '.join(a.name for a in task.args)}): {task.signature}."
    if len(args) > len(task.args):
        raise SessionError(f"{name} takes {len(task.args)} arguments, and {len(args)} were given.", remedy)
    missing = [a.name for a in task.args[len(args) :] if a.default is None]
    if missing:
        raise SessionError(f"{name} was called without {' and '.join(missing)}.", remedy)
    sizes: dict[str, tuple[int, str]] = {}
    for given, arg in zip(args, task.args, strict=False):
        if wrong := _wrong(given, arg, sizes):
            raise SessionError(wrong, remedy)


def _wrong(given: Any, arg: Arg, sizes: dict[str, tuple[int, str]]) -> str:
    """What is wrong with one argument, "" when it fits; ``sizes`` gains the extents that it gives to Dims."""
    import torch

    if not arg.is_tensor:
        return "" if isinstance(given, (int, float, bool)) else f"{arg.name} must be a number, not {_kind(given)}."
    if not isinstance(given, torch.Tensor):
        return f"{arg.name} must be a tensor, not {_kind(given)}."
    dtype = str(given.dtype).removeprefix("torch.")
    if dtype != arg.dtype:
        return f"{arg.name} has dtype {dtype}; the task says {arg.dtype}."
    asked = f"[{', '.join(map(str, arg.shape))}]"
    shape = tuple(given.shape)
    if len(shape) != len(arg.shape):
        return f"{arg.name} has shape {list(shape)}; the task says {asked}."
    for size, extent in zip(shape, arg.shape, strict=True):
        text = str(extent)
        if text.isdigit() and size != int(text):
            return f"{arg.name} has shape {list(shape)}; the task says {asked}."
        if text.isidentifier():
            before, who = sizes.setdefault(text, (size, arg.name))
            if before != size:
                return f"{arg.name} has {text} = {size}, but {who} has {text} = {before}; the task says {asked}."
    return ""


def _kind(given: Any) -> str:
    name = type(given).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
