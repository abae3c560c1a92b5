"""The values that a reference takes and returns: seeds, tensors and NumPy arrays, nested results."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kernellab.errors import TaskError
from kernellab.task.call_inputs.slots import DENSE, is_array
from kernellab.task.dtypes import unusable

#: sessions sample in separate threads
_SEEDING = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """While active, torch's, NumPy's and Python's generators are seeded with ``seed``; they are restored afterwards
    (except device generators).

    One thread at a time: the generators belong to the process."""
    import numpy as np
    import torch

    with _SEEDING:
        numpy_state, python_state = np.random.get_state(), random.getstate()
        with torch.random.fork_rng(devices=[]):
            _seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            try:
                yield
            finally:
                np.random.set_state(numpy_state)
                random.setstate(python_state)


def _has_accelerator() -> bool:
    import torch

    try:
        return torch.accelerator.current_accelerator() is not None
    except RuntimeError:  # PyTorch 2.6 raises where later ones give None
        return False


def _seed(seed: int) -> None:
    import torch

    if not _has_accelerator():
        # without devices, torch would queue a call for each, with a formatted stack: 2 ms, dozens of times in a verdict
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def as_tensor(value: Any, number: bool = False) -> Any:
    """Return NumPy arrays as tensors that share their memory if possible; ``number`` also converts numbers."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(value) if np.ndim(value) else np.array(value)
        try:
            return torch.from_numpy(array if array.flags.writeable else array.copy())
        except TypeError:
            raise TaskError(
                f"An array of NumPy dtype {array.dtype} has no tensor dtype.", "Use a float, integer or bool dtype."
            ) from None
    if number:
        return torch.as_tensor(value)
    return value


def quiet_numpy() -> AbstractContextManager[Any]:
    """Return a context without NumPy's warnings of overflows and divisions by zero."""
    import numpy as np

    return np.errstate(all="ignore")


@contextmanager
def in_written_order() -> Iterator[None]:
    """While active, products of an einsum are computed from left to right: opt_einsum, if installed, chooses another
    order at other sizes, with other rounding, and an infinity or NaN in other places."""
    # PyTorch 2.6 does not import it by itself
    from torch.backends import opt_einsum as planner

    with _planner.lock:  # the flag belongs to the process: sessions run references in separate threads
        if not _planner.users:
            _planner.before = planner.enabled
            if planner.enabled:
                planner.enabled = False
        _planner.users += 1
    try:
        yield
    finally:
        with _planner.lock:
            _planner.users -= 1
            if not _planner.users and _planner.before:
                planner.enabled = True


class _Planner:
    """The number of active contexts, and whether torch planned before the first of them."""

    lock, users, before = threading.Lock(), 0, False


_planner = _Planner()


def to_numpy(value: Any) -> Any:
    """Return a tensor as an array on the CPU; anything else unchanged."""
    import torch

    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def outputs_of(result: Any) -> Iterator[Any]:
    """Yield every tensor, array and number that a reference returns, in order.

    Raises:
        TaskError: one of them is nothing that a kernel can compute.
    """
    if isinstance(result, Mapping):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        for item in result:
            yield from outputs_of(item)
    elif kind := unusable(result):
        raise TaskError(f"The reference returns {kind}, which no kernel can compute.", DENSE)
    elif is_array(result) or isinstance(result, (bool, int, float)):
        yield result
    elif result is not None:
        raise TaskError(
            f"The reference returns a {type(result).__name__}, which no kernel can compute.",
            "Return a tensor, or a tuple of tensors and numbers.",
        )


def device_of(args: Sequence[Any]) -> Any:
    """Return the device of the first tensor; None for the CPU."""
    import torch

    device = next((a.device for a in args if isinstance(a, torch.Tensor)), None)
    return device if device is not None and device.type not in ("cpu", "meta") else None
