"""The reference's answers to a case: in the declared dtype and in float64, within a time limit if one is set.

The float64 answer is that of the same reference on float64 arguments. Where a reference names a narrower dtype, its
operators are widened as they run, or its captured graph runs in float64. What roundings may do to an answer is in
:mod:`kernellab.verifier.cases.rounded_answers`.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from kernellab.conditions import OutputStrides
from kernellab.errors import TaskError
from kernellab.task import Task
from kernellab.task.dtypes import computable, is_inexact, parts, wide
from kernellab.verifier.cases import device
from kernellab.verifier.compare.compare import Reference
from kernellab.verifier.protocol.control import is_contiguous
from kernellab.verifier.protocol.rules import DEVICE

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: Bytes of arguments below which the reference runs on one thread.
_SMALL = 1 << 18


def references(
    task: Task, args: Sequence[Any], double: bool = True, native: tuple[Tensor, ...] | None = None
) -> tuple[Reference, ...]:
    """Return the reference's outputs in the declared dtype (``native`` if given) and in float64 (None if it cannot run
    in float64)."""
    native = run_reference(task, args) if native is None else native
    double = double and _fits_in_double(args, native)
    doubles = in_double(task, args) if double and any(map(is_inexact, native)) else None
    if doubles is None or len(doubles) != len(native):
        return tuple(Reference(n, None) for n in native)
    return tuple(Reference(n, _exact_of(n, d)) for n, d in zip(native, doubles, strict=True))


def _exact_of(native: Tensor, double: Tensor) -> Tensor | None:
    """Return the float64 answer to an output; None if it has another form than the output."""
    if is_inexact(native) and double.dtype == wide(native).dtype and double.shape == native.shape:
        return held_in_range(native, double)
    return None


def held_in_range(native: Tensor, double: Tensor) -> Tensor:
    """Return the float64 answer, with the native number where it is finite and float64's is beyond the native dtype's
    range. There the reference uses the end of the dtype's range (nan_to_num, finfo), which differs in float64."""
    import torch

    if native.is_complex():
        return torch.view_as_complex(held_in_range(parts(native), parts(double)))
    is_beyond = (double.abs() > torch.finfo(native.dtype).max) & computable(native).isfinite()
    return torch.where(is_beyond, native.double(), double) if bool(is_beyond.any()) else double


def _fits_in_double(args: Sequence[Any], outputs: Sequence[Tensor]) -> bool:
    """Return whether device memory suffices for a float64 run: arguments and outputs, and as much for intermediates."""

    tensors = [t for t in (*args, *outputs) if is_inexact(t)]
    if not tensors or tensors[0].device.type != "cuda":
        return True
    need = 2 * sum((16 if t.is_complex() else 8) * t.numel() for t in tensors)
    return bool(need < DEVICE.double_share * device.free())


def lost_form(output: int, shape: Sequence[int], wanted: Sequence[int], strides: Sequence[int]) -> OutputStrides | None:
    """Return the condition for ``strides`` that lose the format of the reference's, ``wanted``: contiguous, or dense
    with the second dimension last. None if nothing is lost."""
    turned = [[dims[0], *dims[2:], dims[1]] for dims in (shape, wanted, strides) if len(dims) >= 4]
    for form, sides in (("contiguous", [shape, wanted, strides]), ("channels_last", turned)):
        if sides and is_contiguous(sides[0], sides[1]):
            matches = is_contiguous(sides[0], sides[2])
            return None if matches else OutputStrides(output=output, form=form)
    return None


def run_reference(task: Task, args: Sequence[Any], threads: int | None = None) -> tuple[Tensor, ...]:
    """Run the reference with ``threads`` threads; by default all cores, or one thread for small arguments. The rest of
    the judge uses one thread, which is faster for many small operations, above all on a busy machine."""
    import torch

    if threads is None:
        small = sum(a.nbytes for a in args if isinstance(a, torch.Tensor)) < _SMALL
        threads = 1 if small else len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    try:
        return _on_device_of(args, task.module().results(args))
    finally:
        torch.set_num_threads(1)


def _on_device_of(args: Sequence[Any], outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return outputs on the device of ``args``, since a NumPy reference returns CPU tensors."""
    import torch

    where = next((a.device for a in args if isinstance(a, torch.Tensor)), None)
    return outputs if where is None or where.type == "cpu" else tuple(o.to(where) for o in outputs)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit runs of the reference inside to ``seconds``, since a loop up to an infinite number does not end. The limit
    applies between Python instructions; it does not interrupt a running operator.

    Raises:
        TaskError: The time limit was exceeded.
    """
    import torch

    caller, guard = threading.get_ident(), threading.Lock()
    is_running = True

    def end() -> None:
        with guard:
            if is_running:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(caller), ctypes.py_object(_Over))

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    graded = torch.is_grad_enabled()
    try:
        try:
            timer.start()
            yield
        finally:
            with guard:
                is_running = False
            timer.cancel()
            # Cancel an exception that was sent and has not arrived.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(caller), None)
    except _Over:
        # The exception may have arrived inside a context manager of the reference.
        torch.set_grad_enabled(graded)
        raise TaskError(
            f"The reference did not end within {seconds:g} s.", "Let it end for each value that its arguments may have."
        ) from None


class _Over(BaseException):
    """A reference's ``except Exception`` does not catch this."""


def in_double(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """Return the reference's float64 answer; None if it has none, or if the device runs out of memory, since the size
    of intermediates is not known in advance."""
    import torch

    try:
        return _doubled(task, args)
    except torch.OutOfMemoryError:
        device.give_back()
        return None


def _doubled(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    upper = [wide(a) if is_inexact(a) else a for a in args]
    # If the reference names a dtype, widen its operators to float64 as they run, or run its captured graph.
    return _all_double(task, upper) or _all_double(task, upper, widened=True) or graph_in_double(task, args)


def _all_double(task: Task, upper: Sequence[Any], widened: bool = False) -> tuple[Tensor, ...] | None:
    """Run the reference on float64 arguments; return its outputs if all floats are float64, else None."""
    from kernellab.errors import KernellabError
    from kernellab.verifier.compare.roundings import Widened

    try:
        with Widened() if widened else nullcontext():
            outputs = run_reference(task, upper)
    except KernellabError:
        return None
    return outputs if all(o.dtype == wide(o).dtype for o in outputs if is_inexact(o)) else None


def graph_in_double(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    from torch.utils._python_dispatch import _disable_current_modes

    from kernellab.errors import KernellabError

    try:
        from kernellab.capture import capture, run_graph

        with _disable_current_modes():
            graph = capture(task)
        return tuple(run_graph(graph, args, True))
    except (KernellabError, ImportError, RuntimeError, IndexError):
        return None
