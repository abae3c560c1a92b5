"""The reference's answers to a case: in the declared dtype, in float64, and under perturbed rounding."""

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

#: Bytes of arguments below which the reference runs on one thread.
_SMALL = 1 << 18
#: Number of ways in which three consecutive operations can be rounded.
_PATTERNS = 8
#: Draws of the operations' roundings; more are used if outputs and arguments have at most these numbers of elements,
#: where a run is cheap.
_ROUNDED, _ROUNDED_SMALL, _SMALL_OUTPUT, _SMALL_ARGUMENT = 4, 16, 1 << 16, 1 << 20
#: Most random draws for integers that a threshold decides, and the same where a run is cheap.
_CHANCES, _CHANCES_SMALL = 8, 128


def references(
    task: Task, args: Sequence[Any], double: bool = True, native: tuple[Tensor, ...] | None = None
) -> tuple[Reference, ...]:
    """Return the reference's outputs in the declared dtype (``native`` if given) and in float64 (None if it cannot run
    in float64)."""
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
    """Return the float64 answer, with the native number where it is finite and float64's is beyond the native dtype's
    range. There the reference uses the end of the dtype's range (nan_to_num, finfo), which differs in float64."""
    import torch

    if native.is_complex():
        return torch.view_as_complex(_held(parts(native), parts(double)))
    is_beyond = (double.abs() > torch.finfo(native.dtype).max) & computable(native).isfinite()
    return torch.where(is_beyond, native.double(), double) if bool(is_beyond.any()) else double


def _fitsin_double(args: Sequence[Any], outputs: Sequence[Tensor]) -> bool:
    """Return whether device memory suffices for a float64 run: arguments and outputs, and as much for intermediates."""

    tensors = [t for t in (*args, *outputs) if is_inexact(t)]
    if not tensors or tensors[0].device.type != "cuda":
        return True
    need = 2 * sum((16 if t.is_complex() else 8) * t.numel() for t in tensors)
    return bool(need < DEVICE.double_share * device.free())


def nudged(task: Task, args: Sequence[Any], found: tuple[Reference, ...], seed: int = 0) -> tuple[Reference, ...]:
    """Return the references ``found`` with the float64 answer at inputs moved by a rounding error, or with factors
    rounded to TF32 where allowed and further away. Return ``found`` if that is not available."""
    import torch

    from kernellab.verifier.compare.roundings import EXACT, Converted

    found = settled(task, args, found, seed)
    if not any(r.double is not None for r in found):
        return found
    # Most references convert integers to float32, even if the outputs are narrower.
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
    """Return the nudged references ``found``, replaced where further away by the float64 answer with each operation's
    result rounded (:mod:`~kernellab.verifier.compare.roundings`). Of several draws the furthest counts: for two tied
    scores, one draw in two moves both the same way."""
    import torch

    from kernellab.verifier.compare.roundings import EXACT, Rounded

    units = [torch.finfo(r.native.dtype).eps / 2 for r in found if is_inexact(r.native)]
    small = all(r.native.numel() <= _SMALL_OUTPUT for r in found)
    small &= all(a.numel() <= _SMALL_ARGUMENT for a in args if isinstance(a, torch.Tensor))
    for draw in range((_ROUNDED_SMALL if small else _ROUNDED) if units else 0):
        # A maximum is exactly one of the elements in any kernel: rounding must not affect a comparison with it.
        with Rounded(max(units), seed + draw, EXACT):
            outputs = in_double(task, args)
        if outputs is None or len(outputs) != len(found):
            return found
        found = tuple(_further(r, o) for r, o in zip(found, outputs, strict=True))
    return found


def reordered(task: Task, args: Sequence[Any], found: tuple[Reference, ...], seed: int = 0) -> list[tuple[Tensor, ...]]:
    """Return float64 answers whose operation results are moved as another order of sums may move them."""
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


def piled(task: Task, args: Sequence[Any], found: tuple[Reference, ...]) -> tuple[Reference, ...]:
    """Return the references ``found`` with the error that adding each sum's terms one by one in float32 may leave
    (:class:`~kernellab.verifier.compare.roundings.Piled`), of several draws the largest."""
    import torch

    from kernellab.verifier.compare.roundings import Piled

    if any(a.numel() > _SMALL_ARGUMENT for a in args if isinstance(a, torch.Tensor)):
        return found
    for pattern in range(4):
        with Piled(pattern):
            outputs = in_double(task, args)
        if outputs is None or len(outputs) != len(found):
            return found
        found = tuple(_piled(r, o) for r, o in zip(found, outputs, strict=True))
    return found


def _piled(reference: Reference, other: Tensor) -> Reference:
    import torch

    double = reference.double
    if double is None or reference.native.dtype != torch.float32 or other.shape != double.shape:
        return reference
    error = (wide(other) - double).abs().nan_to_num(0.0, 0.0, 0.0)
    return replace(reference, piled=error if reference.piled is None else error.maximum(reference.piled))


def tied(task: Task, args: Sequence[Any], found: tuple[Reference, ...]) -> list[tuple[Tensor, ...]]:
    """Return the reference's answers with equal elements in either order, if it sorts without a stable order: in the
    declared dtype, in float64, and with its sums moved as another order of them may move the thresholded values."""
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
    """Return ``found``, with the open choices of ties and intermediate roundings added for integers and bools."""
    exact_outputs = [i for i, r in enumerate(found) if not r.native.is_floating_point() and not r.native.is_complex()]
    if not exact_outputs or task.framework == "numpy":
        return found
    from kernellab.capture.selection import selections

    chosen = selections(task.module().results, args)
    open_references = list(found)
    for i in exact_outputs:
        open_references[i] = replace(found[i], selection=chosen[i] if i < len(chosen) else None)
    unresolved = [i for i in exact_outputs if (s := open_references[i].selection) is None or s.picked]
    for i in unresolved:
        chance = partial(_by_chance, task, args, found[i].native, i, seed)
        open_references[i] = replace(open_references[i], chance=chance)
    # what is picked out of an order is judged by its value
    plain = [i for i in unresolved if open_references[i].selection is None]
    if plain:
        for i, between in zip(plain, _between(task, args, [found[i].native for i in plain], plain, seed), strict=True):
            open_references[i] = replace(open_references[i], between=between)
    return tuple(open_references)


def _by_chance(task: Task, args: Sequence[Any], native: Tensor, at: int, seed: int) -> Iterator[Tensor]:
    """Yield the output ``at`` of float64 runs with randomly moved results: first all elements of an operation together,
    then each separately. A pixel on the edges of several triangles belongs to any of them, depending on each
    rounding. In every other run sums move as another order of their terms moves them."""
    import torch

    from kernellab.verifier.compare.roundings import EXACT, Reordered, Rounded

    small = native.numel() <= _SMALL_OUTPUT and all(
        a.numel() <= _SMALL_ARGUMENT for a in args if isinstance(a, torch.Tensor)
    )
    unit, narrow, run = _moves(args)
    draws = _CHANCES_SMALL if small else _CHANCES
    for draw in range(draws):
        mode = Reordered if draw % 2 else Rounded
        with mode(unit, seed + draw, EXACT, narrow=narrow, apart=draw >= draws // 4):
            outputs = run(task, args)
        if outputs is None or outputs[at].shape != native.shape:
            return
        yield outputs[at].to(native.device)


def _between(
    task: Task, args: Sequence[Any], native: Sequence[Tensor], at: Sequence[int], seed: int
) -> list[tuple[Tensor, Tensor] | None]:
    """Return the minimum and maximum of each output ``at`` over float64 runs in which each operation's result is moved
    by two roundings of the narrowest float argument. With integer arguments only, the reference computes in float32;
    values that float32 holds exactly are not moved, since every right kernel has them."""
    from kernellab.verifier.compare.roundings import EXACT, Rounded

    unit, narrow, run = _moves(args)
    ends = [(n.long(), n.long()) for n in native]
    for pattern in range(_PATTERNS):
        with Rounded(unit, seed, EXACT, pattern, narrow):
            outputs = run(task, args)
        if outputs is None or any(outputs[i].shape != n.shape for i, n in zip(at, native, strict=True)):
            return [None for _ in at]
        moved = [outputs[i].long().to(n.device) for i, n in zip(at, native, strict=True)]  # graphs run on the CPU
        ends = [(low.minimum(m), high.maximum(m)) for m, (low, high) in zip(moved, ends, strict=True)]
    return list(ends)


def _moves(args: Sequence[Any]) -> tuple[float, Any, Callable[[Task, Sequence[Any]], tuple[Tensor, ...] | None]]:
    """Return the relative move of operation results, the dtype whose numbers need no rounding, and the float64
    runner."""
    import torch

    floats = [a for a in args if is_inexact(a) and not is_float8(a)]
    units = [torch.finfo(a.dtype).eps for a in floats] or [torch.finfo(torch.float32).eps]
    return (2 * max(units), *((None, in_double) if floats else (torch.float32, _graph_in_double)))


def narrowed(
    task: Task, args: Sequence[Any], found: tuple[Reference, ...], names: Collection[str], seed: int = 0
) -> tuple[Reference, ...]:
    """Return the nudged references ``found``, replaced where further away by the float64 answer with the factors of the
    operators ``names`` rounded as TF32 may round them."""
    from kernellab.verifier.compare.roundings import Narrowed

    with Narrowed(names, seed):
        outputs = in_double(task, args)
    if outputs is None or len(outputs) != len(found):
        return found
    return tuple(_further(r, o) for r, o in zip(found, outputs, strict=True))


def _further(reference: Reference, other: Tensor) -> Reference:
    double, moved = reference.double, reference.nudged
    if double is None or moved is None or other.shape != double.shape:
        return reference
    other = _held(reference.native, wide(other))
    further = (other - double).abs() > (moved - double).abs()
    return replace(reference, nudged=other.where(further, moved))


def _moved(value: Any, seed: int) -> Any:
    """Return a float tensor in float64 (complex128), each element or part moved randomly by at most a unit in the last
    place of its dtype."""
    import torch

    if not is_inexact(value):
        return value
    if value.is_complex():
        return torch.view_as_complex(_moved(parts(value), seed))
    generator = torch.Generator(value.device).manual_seed(seed % (1 << 31))
    factor = torch.rand(value.shape, generator=generator, dtype=torch.float64, device=value.device)
    # 8-bit floats are exact inputs to wider arithmetic: their own unit would excuse any kernel.
    eps = torch.finfo(torch.float32 if is_float8(value) else value.dtype).eps
    factor.mul_(2).sub_(1).mul_(eps).add_(1)
    return factor.mul_(value.to(torch.float64))


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
        return _beside(args, task.module().results(args))
    finally:
        torch.set_num_threads(1)


def _beside(args: Sequence[Any], outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return outputs on the device of ``args``, since a NumPy reference returns CPU tensors."""
    import torch

    device_of_args = next((a.device for a in args if isinstance(a, torch.Tensor)), None)
    return (
        outputs
        if device_of_args is None or device_of_args.type == "cpu"
        else tuple(o.to(device_of_args) for o in outputs)
    )


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit runs of the reference inside to ``seconds``, since a loop up to an infinite number does not end. The limit
    applies between Python instructions; it does not interrupt a running operator.

    Raises:
        TaskError: The time limit was exceeded.
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
    return _all_double(task, upper) or _all_double(task, upper, widened=True) or _graph_in_double(task, args)


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
