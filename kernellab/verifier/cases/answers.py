"""The reference's answers to a case: at the declared dtype, in float64, and what rounding on the way does to them."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kernellab.conditions import OutputStrides
from kernellab.errors import TaskError
from kernellab.task import Task
from kernellab.task.dtypes import computable, is_float8, is_inexact, parts, wide
from kernellab.verifier.cases import device
from kernellab.verifier.compare.compare import Reference
from kernellab.verifier.protocol.control import is_contiguous
from kernellab.verifier.protocol.rules import DEVICE

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: bytes of arguments below which the reference has one thread
_SMALL = 1 << 18
#: all ways in which three operations in a row can be rounded
_PATTERNS = 8
#: draws of the operations' roundings, and more where outputs and arguments have at most so many elements: they cost
#: little there
_ROUNDED, _ROUNDED_SMALL, _SMALL_OUTPUT, _SMALL_ARGUMENT = 4, 16, 1 << 16, 1 << 20
#: the most draws by chance for integers that a cut decides, and where they cost little
_CHANCES, _CHANCES_SMALL = 8, 128


def references(
    task: Task, args: Sequence[Any], double: bool = True, native: tuple[Tensor, ...] | None = None
) -> tuple[Reference, ...]:
    """The reference's outputs at the declared dtype (``native``, where they are known) and in float64 (None where it
    cannot be run so)."""
    native = run_reference(task, args) if native is None else native
    double = double and _fitsin_double(args, native)
    upper = in_double(task, args) if double and any(map(is_inexact, native)) else None
    if upper is None or len(upper) != len(native):
        return tuple(Reference(n, None) for n in native)
    return tuple(
        Reference(n, _held(n, u) if is_inexact(n) and u.dtype == wide(n).dtype and u.shape == n.shape else None)
        for n, u in zip(native, upper, strict=True)
    )


def _held(native: Tensor, double: Tensor) -> Tensor:
    """Float64's answer with the reference's own number where that is one and float64's is beyond all that its dtype
    holds: there the dtype's end was asked for (nan_to_num, finfo), and float64's end is another."""
    import torch

    if native.is_complex():
        return torch.view_as_complex(_held(parts(native), parts(double)))
    beyond = (double.abs() > torch.finfo(native.dtype).max) & computable(native).isfinite()
    return torch.where(beyond, native.double(), double) if bool(beyond.any()) else double


def _fitsin_double(args: Sequence[Any], outputs: Sequence[Tensor]) -> bool:
    """Is there device memory for a run in float64: arguments, outputs, and as much again for what lies between?"""

    tensors = [t for t in (*args, *outputs) if is_inexact(t)]
    if not tensors or tensors[0].device.type != "cuda":
        return True
    need = 2 * sum((16 if t.is_complex() else 8) * t.numel() for t in tensors)
    return bool(need < DEVICE.double_share * device.free())


def nudged(task: Task, args: Sequence[Any], found: tuple[Reference, ...], seed: int = 0) -> tuple[Reference, ...]:
    """The references ``found`` for ``args``, each with float64's answer at inputs moved by a rounding error (or with
    the factors that may be TF32's rounded so, where that is further away); ``found`` where that is not available."""
    import torch

    from kernellab.verifier.compare.roundings import EXACT, Converted

    found = settled(task, args, found, seed)
    if not any(r.double is not None for r in found):
        return found
    # what becomes of whole numbers is float32 in most references, also where the outputs are narrower
    units = (torch.finfo(r.native.dtype).eps for r in found if is_inexact(r.native))
    with Converted(min(*units, 2.0**-23), seed, EXACT, narrow=torch.float32):
        moved = in_double(task, [_moved(a, seed + i) for i, a in enumerate(args)])
    if moved is None or len(moved) != len(found):
        return found
    pairs = zip(found, moved, strict=True)
    nearest = tuple(r if r.double is None else replace(r, nudged=_held(r.native, wide(m))) for r, m in pairs)
    names = device.tf32_operators(task)
    return narrowed(task, args, nearest, names, seed) if names else nearest


def rounded(task: Task, args: Sequence[Any], found: tuple[Reference, ...], seed: int = 0) -> tuple[Reference, ...]:
    """The nudged references ``found`` with, where it is further away, float64's answer with each operation's result
    rounded (:mod:`~kernellab.verifier.compare.roundings`); in some draws, of which the furthest counts: of two scores
    that tie, one draw in two moves both the same way."""
    import torch

    from kernellab.verifier.compare.roundings import EXACT, Rounded

    units = [torch.finfo(r.native.dtype).eps / 2 for r in found if is_inexact(r.native)]
    small = all(r.native.numel() <= _SMALL_OUTPUT for r in found)
    small &= all(a.numel() <= _SMALL_ARGUMENT for a in args if isinstance(a, torch.Tensor))
    for draw in range((_ROUNDED_SMALL if small else _ROUNDED) if units else 0):
        # a maximum is one of its elements in any kernel: a comparison with it must not be rounded away
        with Rounded(max(units), seed + draw, EXACT):
            outputs = in_double(task, args)
        if outputs is None or len(outputs) != len(found):
            return found
        found = tuple(_further(r, o) for r, o in zip(found, outputs, strict=True))
    return found


def reordered(task: Task, args: Sequence[Any], found: tuple[Reference, ...], seed: int = 0) -> list[tuple[Tensor, ...]]:
    """Float64's answers, each with its operations' results moved as another order of sums may move them."""
    import torch

    from kernellab.verifier.compare.roundings import EXACT, Reordered

    units = [torch.finfo(r.native.dtype).eps for r in found if is_inexact(r.native)]
    runs = []
    for pattern in range(_PATTERNS if units else 0):
        with Reordered(max(units), seed, EXACT, pattern):
            outputs = in_double(task, args)
        if outputs is not None and len(outputs) == len(found):
            runs.append(outputs)
    return runs


def tied(task: Task, args: Sequence[Any], found: tuple[Reference, ...]) -> list[tuple[Tensor, ...]]:
    """The reference's answers with equal elements in either order, where it sorts without a promise of it: at the
    declared dtype, in float64, and with its sums moved as another order of them may move what is cut off by these."""
    from kernellab.task.meta.ties import Tied

    runs = []
    for turned in (False, True):
        with Tied(turned) as watch:
            outputs = run_reference(task, args)
        if not watch.met:
            break
        runs.append(outputs)
        with Tied(turned):
            doubled = in_double(task, args)
            runs += [r for r in (doubled, *reordered(task, args, found)) if r is not None and len(r) == len(found)]
    return runs


def settled(task: Task, args: Sequence[Any], found: tuple[Reference, ...], seed: int = 0) -> tuple[Reference, ...]:
    """The references ``found``, those of integers and bools with what ties and roundings on the way leave open."""
    whole = [i for i, r in enumerate(found) if not r.native.is_floating_point() and not r.native.is_complex()]
    if not whole or task.framework == "numpy":
        return found
    from kernellab.capture.selection import selections

    chosen = selections(task.module().results, args)
    others = list(found)
    for i in whole:
        others[i] = replace(found[i], selection=chosen[i] if i < len(chosen) else None)
    open_ = [i for i in whole if others[i].selection is None]
    if open_:
        for i, between in zip(open_, _between(task, args, [found[i].native for i in open_], open_, seed), strict=True):
            others[i] = replace(
                others[i], between=between, chance=partial(_by_chance, task, args, found[i].native, i, seed)
            )
    return tuple(others)


def _by_chance(task: Task, args: Sequence[Any], native: Tensor, at: int, seed: int) -> Iterator[Tensor]:
    """The output ``at`` in runs in float64 whose results are each moved by chance: of an operation all elements the
    same way, then each by itself. A pixel on edges of several triangles is in any of them by the roundings of each."""
    import torch

    from kernellab.verifier.compare.roundings import EXACT, Rounded

    small = native.numel() <= _SMALL_OUTPUT and all(
        a.numel() <= _SMALL_ARGUMENT for a in args if isinstance(a, torch.Tensor)
    )
    unit, narrow, run = _moves(args)
    draws = _CHANCES_SMALL if small else _CHANCES
    for draw in range(draws):
        with Rounded(unit, seed + draw, EXACT, narrow=narrow, apart=draw >= draws // 4):
            outputs = run(task, args)
        if outputs is None or outputs[at].shape != native.shape:
            return
        yield outputs[at].to(native.device)


def _between(
    task: Task, args: Sequence[Any], native: Sequence[Tensor], at: Sequence[int], seed: int
) -> list[tuple[Tensor, Tensor] | None]:
    """The least and the most of the outputs ``at``, over runs in float64 in which each operation's result is moved by
    two roundings of the narrowest float among the arguments. Of integers alone the reference makes float32: what that
    holds exactly is not moved, since every right kernel has it."""
    from kernellab.verifier.compare.roundings import EXACT, Rounded

    unit, narrow, run = _moves(args)
    ends = [(n.long(), n.long()) for n in native]
    for pattern in range(_PATTERNS):
        with Rounded(unit, seed, EXACT, pattern, narrow):
            outputs = run(task, args)
        if outputs is None or any(outputs[i].shape != n.shape for i, n in zip(at, native, strict=True)):
            return [None for _ in at]
        moved = [outputs[i].long().to(n.device) for i, n in zip(at, native, strict=True)]  # a graph runs on the CPU
        ends = [(low.minimum(m), high.maximum(m)) for m, (low, high) in zip(moved, ends, strict=True)]
    return list(ends)


def _moves(args: Sequence[Any]) -> tuple[float, Any, Callable[[Task, Sequence[Any]], tuple[Tensor, ...] | None]]:
    """By what results of operations are moved, the dtype whose numbers need no rounding, and what runs in float64."""
    import torch

    floats = [a for a in args if is_inexact(a) and not is_float8(a)]
    units = [torch.finfo(a.dtype).eps for a in floats] or [torch.finfo(torch.float32).eps]
    return (2 * max(units), *((None, in_double) if floats else (torch.float32, _graph_in_double)))


def narrowed(
    task: Task, args: Sequence[Any], found: tuple[Reference, ...], names: Collection[str], seed: int = 0
) -> tuple[Reference, ...]:
    """The nudged references ``found`` with, where it is further away, float64's answer with the factors of the
    operators ``names`` rounded as TF32 may round them."""
    from kernellab.verifier.compare.roundings import Narrowed

    with Narrowed(names, seed):
        outputs = in_double(task, args)
    if outputs is None or len(outputs) != len(found):
        return found
    return tuple(_further(r, o) for r, o in zip(found, outputs, strict=True))


def _further(reference: Reference, other: Tensor) -> Reference:
    double, nudged = reference.double, reference.nudged
    if double is None or nudged is None or other.shape != double.shape:
        return reference
    other = _held(reference.native, wide(other))
    further = (other - double).abs() > (nudged - double).abs()
    return replace(reference, nudged=other.where(further, nudged))


def _moved(value: Any, seed: int) -> Any:
    """A float tensor, in float64, each element moved at random by at most a unit of its dtype's last place; of complex
    numbers, in complex128, each part."""
    import torch

    if not is_inexact(value):
        return value
    if value.is_complex():
        return torch.view_as_complex(_moved(parts(value), seed))
    generator = torch.Generator(value.device).manual_seed(seed % (1 << 31))
    by = torch.rand(value.shape, generator=generator, dtype=torch.float64, device=value.device)
    # 8-bit floats are exact inputs of wider arithmetic: their own unit would excuse any kernel
    eps = torch.finfo(torch.float32 if is_float8(value) else value.dtype).eps
    by.mul_(2).sub_(1).mul_(eps).add_(1)
    return by.mul_(value.to(torch.float64))


def lost_form(output: int, shape: Sequence[int], wanted: Sequence[int], strides: Sequence[int]) -> OutputStrides | None:
    """What is to be said of an output of ``strides`` where the reference's are ``wanted``: contiguous, or dense with
    the second dimension last."""
    turned = [[of[0], *of[2:], of[1]] for of in (shape, wanted, strides) if len(of) >= 4]
    for form, sides in (("contiguous", [shape, wanted, strides]), ("channels_last", turned)):
        if sides and is_contiguous(sides[0], sides[1]):
            kept = is_contiguous(sides[0], sides[2])
            return None if kept else OutputStrides(output=output, form=form)
    return None


def run_reference(task: Task, args: Sequence[Any], threads: int | None = None) -> tuple[Tensor, ...]:
    """The reference with so many threads; if not said, with all, or one where its arguments are small. Everything else
    in the judge runs on one: many small operations are done sooner so, above all on a busy machine."""
    import torch

    if threads is None:
        small = sum(a.nbytes for a in args if isinstance(a, torch.Tensor)) < _SMALL
        threads = 1 if small else len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    try:
        return _beside(args, task.module().results(args))
    finally:
        torch.set_num_threads(1)


def _beside(args: Sequence[Any], outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Outputs on the device of ``args``: a reference in NumPy answers on the CPU."""
    import torch

    where = next((a.device for a in args if isinstance(a, torch.Tensor)), None)
    return outputs if where is None or where.type == "cpu" else tuple(o.to(where) for o in outputs)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Runs of the reference inside end after so many seconds: one that counts up to an infinite number does not by
    itself. Between two of Python's instructions alone; an operator that runs is not interrupted.

    Raises:
        TaskError: the time was over.
    """
    import torch

    caller, guard, left = threading.get_ident(), threading.Lock(), [True]

    def end() -> None:
        with guard:
            if left:
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
                left.clear()
            timer.cancel()
            # what was sent and has not come
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(caller), None)
    except _Over:
        # it may have come within a context of the reference
        torch.set_grad_enabled(graded)
        raise TaskError(
            f"The reference did not end within {seconds:g} s.", "Let it end for each value that its arguments may have."
        ) from None


class _Over(BaseException):
    """No reference's ``except Exception`` catches it."""


def in_double(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """The reference's answer in float64; None where it has none, or the device no memory for it: what lies between
    arguments and outputs is not known before."""
    import torch

    try:
        return _doubled(task, args)
    except torch.OutOfMemoryError:
        device.give_back()
        return None


def _doubled(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    upper = [wide(a) if is_inexact(a) else a for a in args]
    # where the reference names a dtype, its operators are made float64 as they run, or its graph is
    return _all_double(task, upper) or _all_double(task, upper, widened=True) or _graph_in_double(task, args)


def _all_double(task: Task, upper: Sequence[Any], widened: bool = False) -> tuple[Tensor, ...] | None:
    """The reference at arguments in float64, where all its floats come out so."""
    from kernellab.errors import KernellabError
    from kernellab.verifier.compare.roundings import Widened

    try:
        with Widened() if widened else nullcontext():
            outputs = run_reference(task, upper)
    except KernellabError:
        return None
    return outputs if all(o.dtype == wide(o).dtype for o in outputs if is_inexact(o)) else None


def _graph_in_double(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    from torch.utils._python_dispatch import _disable_current_modes

    from kernellab.errors import KernellabError

    try:
        from kernellab.capture import capture, run_graph

        with _disable_current_modes():
            graph = capture(task)
        return tuple(run_graph(graph, args, True))
    except (KernellabError, ImportError, RuntimeError, IndexError):
        return None
