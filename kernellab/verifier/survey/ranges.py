"""Ranges of a task's integers and masks: what its own inputs draw, and what its reference accepts.

Nothing declares which integers a reference accepts, so that it is run with larger and smaller ones, in a copy of this
process: an index out of range may crash it.
"""

from __future__ import annotations

import ast
import faulthandler
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernellab import python_tree
from kernellab.errors import TaskError
from kernellab.task import Task
from kernellab.task.dtypes import computable
from kernellab.verifier.cases.patterns import patterned

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: Number of sample elements that are inspected.
_MOST = 1 << 18
#: NumPy functions whose result shape does not depend on values.
_OF_SHAPES = frozenset((
    "sum", "cumsum", "prod", "cumprod", "mean", "max", "min", "amax", "amin", "argmax", "argmin", "abs", "absolute",
    "add", "subtract", "multiply", "divide", "floor_divide", "mod", "remainder", "fmod", "sign", "square", "maximum",
    "minimum", "clip", "where", "diff", "dot", "matmul", "sort", "argsort", "any", "all", "astype", "reshape",
    "transpose", "take", "take_along_axis", "left_shift", "right_shift", "bitwise_and", "bitwise_or", "bitwise_xor",
    "invert", "float32", "float64", "int32", "int64", "zeros_like", "ones_like", "empty_like",
))  # fmt: skip
#: Length from which larger values are not tried.
_LONG = 1 << 14
#: Seconds that a call in a copy of this process may take, and between two looks at it.
_CALL_SECONDS, _LOOK_SECONDS = 20.0, 0.001


@dataclass(frozen=True)
class Range:
    """Integers of one argument."""

    #: ends of the values in the task's own samples
    low: int
    high: int
    #: ends of those that the reference accepts
    least: int
    most: int
    #: whether every sample is the same
    fixed: bool
    #: whether rows rise
    is_sorted: bool
    #: whether it is of bools
    mask: bool


def range_of(samples: Sequence[Tensor], domain: str | None, takes: Callable[[Tensor], bool], sized: bool) -> Range:
    """Return the range of an argument from ``samples`` of several seeds. ``takes``: whether the reference runs with
    another tensor in its place; ``sized``: its values decide sizes, so those tried are only slightly larger."""
    import torch

    first = samples[0]
    is_mask = first.dtype == torch.bool
    if is_mask or not first.numel():
        is_equal = all(torch.equal(first, s) for s in samples[1:])
        return Range(0, 1, least=0, most=1, fixed=is_equal, is_sorted=False, mask=is_mask)
    fixed = all(torch.equal(first, s) for s in samples[1:])
    samples = [computable(s) for s in samples]
    low, high = min(int(s.min()) for s in samples), max(int(s.max()) for s in samples)
    is_sorted = first.dim() > 0 and first.shape[-1] > 2 and all(rises(s) for s in samples)
    if domain is not None:
        low, high = _stated(domain, low, high)
        is_fixed = fixed or domain == "fixed"
        return Range(low, high, least=low, most=high, fixed=is_fixed, is_sorted=is_sorted, mask=False)
    info = torch.iinfo(first.dtype)
    lows = [*([] if sized else [info.min]), -(high + 1), -1, 0, low - 1]
    highs = [*([] if sized else [info.max]), 2 * high + 1, high + 1]
    if sized and max(high, -low) > _LONG:
        lows, highs = [low - 1], []
    least = next((n for n in lows if info.min <= n < low and takes(_with(first, n))), low)
    most = next((n for n in highs if high < n <= info.max and takes(_with(first, n))), high)
    return Range(low, high, least=least, most=most, fixed=fixed, is_sorted=is_sorted, mask=False)


def rises(value: Tensor) -> bool:
    """Return whether each row is in nondecreasing order."""
    rows = value.reshape(-1, value.shape[-1])
    return bool((rows[: max(1, _MOST // rows.shape[-1])].long().diff(dim=-1) >= 0).all())


def _with(value: Tensor, number: int) -> Tensor:
    return patterned(value, "some", number % 97, number, number)


def _stated(domain: str, low: int, high: int) -> tuple[int, int]:
    name, _, rest = domain.partition("(")
    inside = rest.rstrip(")")
    try:
        if name == "index":
            return 0, int(inside) - 1
        if name == "range":
            first, last = (int(float(n)) for n in inside.split(","))
            return first, last
    except ValueError:
        pass  # an expression over Dims: use the samples' range
    return low, high


def runs(task: Task, args: Sequence[Any], position: int) -> Callable[[Tensor], bool]:
    """Return a function that reports whether the reference runs with another tensor at ``position``. It runs on the
    host, because an index out of range ends a process's use of a device, and in a copy of this process, because a
    library without bounds checks may crash on the host too. After a copy that did not end in time, it always returns
    False."""
    import torch

    host = [a.cpu() if isinstance(a, torch.Tensor) else a for a in args]
    is_late = False

    def takes(value: Tensor) -> bool:
        nonlocal is_late
        if is_late:
            return False
        replaced = [*host[:position], value.cpu(), *host[position + 1 :]]
        ran = _in_a_copy(lambda: task.module().results(replaced))
        is_late = ran is None
        return bool(ran)

    return takes


def _in_a_copy(call: Callable[[], object]) -> bool | None:
    """Return whether a call returns in a copy of this process, which may crash; None if it takes longer than
    ``_CALL_SECONDS``."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which the copy does not have
        child = os.fork()
    if not child:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            faulthandler.disable()
            torch.set_num_threads(1)
            call()
        except (TaskError, RuntimeError, MemoryError, OverflowError):
            os._exit(1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    until = time.monotonic() + _CALL_SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(_LOOK_SECONDS)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def sizes_by_values(text: str) -> bool:
    """Return whether values may decide sizes or loop counts in a task's ``text`` whose operations cannot be observed;
    its ``inputs`` function is ignored."""
    for definition in python_tree.parse(text).body:
        skipped = not isinstance(definition, ast.FunctionDef) or definition.name == "inputs"
        for node in ast.walk(definition) if not skipped else ():
            if isinstance(node, (ast.While, ast.For, ast.comprehension)):
                return True
            called = node.func if isinstance(node, ast.Call) else None
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name and name not in _OF_SHAPES:
                return True
    return False


def is_safe(task: Task, args: Sequence[Any], position: int, indexes: bool) -> bool:
    """Return whether the reference can run on ``args``, changed at ``position``. On a device this is tested for
    integers, and for floats if it ``indexes`` by computed indices."""
    value = args[position]
    sure = value.device.type == "cpu" or (value.is_floating_point() and not indexes)
    return sure or runs(task, args, position)(value)


def is_permutation(value: Tensor) -> bool:
    """Return whether the rows contain each index once."""
    last = value.shape[-1] if value.dim() else 1
    if last < 2:
        return False
    rows = computable(value).reshape(-1, last)[:4].sort(-1).values
    return bool((rows.diff(dim=-1) == 1).all())
