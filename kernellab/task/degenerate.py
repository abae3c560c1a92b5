"""Degenerate candidates: what a kernel could do instead of its work. All of them must fail on a task's inputs.

Each is compared with the reference's results at a small size, and passes if every output is within the class floor in
relative Frobenius norm. A candidate that passes on random normal inputs too is not degenerate for this task but right
(the sum of a permuted vector is the sum)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.task.dtypes import computable
from kernellab.task.task import Task

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

Outputs = Sequence["Tensor"]
#: the descriptions of candidates in flags
WORDS = {
    "zeros": "writes only zeros",
    "ones": "writes only ones",
    "constant": "writes the mean of another call's output everywhere",
    "previous": "returns another call's output",
    "permuted": "reads its input in another order",
    "tail": "skips the end of its input",
    "first-tile": "computes the first half of its output only",
    "bf16": "rounds its inputs to bf16",
    "tf32": "rounds its inputs to TF32",
}
#: candidates that change the inputs: if a reference does not depend on the change for any inputs, that is its nature
OF_INPUTS = ("permuted", "tail", "bf16", "tf32")

#: number of compared elements of a large output
_LOOKED_AT = 1 << 17


def passing(
    task: Task, samples: Sequence[Sequence[Any]], outputs: Sequence[Outputs], floors: Sequence[float]
) -> list[str]:
    """Return the names of the degenerate candidates that pass on all ``samples``, whose right results are ``outputs``.

    ``floors`` are the relative errors that each output may have. Inputs that are returned are named ``identity:NAME``.
    """
    names = []
    for name, make in _candidates(task, samples, outputs):
        if all(_right(make(i), outputs[i], floors) for i in range(len(samples))):
            names.append(name)
    return names


def _candidates(
    task: Task, samples: Sequence[Sequence[Any]], outputs: Sequence[Outputs]
) -> Iterator[tuple[str, Callable[[int], Sequence[Tensor | None] | None]]]:
    import torch

    def other(i: int) -> Outputs:
        return outputs[(i + 1) % len(outputs)]

    yield "zeros", lambda i: [torch.zeros_like(o) for o in outputs[i]]
    yield "ones", lambda i: [torch.ones_like(o) for o in outputs[i]]
    for position, spec in enumerate(task.args):
        if spec.is_tensor:
            yield f"identity:{spec.name}", partial(_identity, samples, outputs, position)
    if len(samples) > 1 and not _same(samples[0], samples[1]):
        yield "constant", lambda i: [torch.full_like(o, _mean(p)) for o, p in zip(outputs[i], other(i), strict=True)]
        yield "previous", lambda i: other(i)
    yield "first-tile", lambda i: [_front(o) for o in outputs[i]]
    for name, change in (("permuted", _rolled), ("tail", _tailless), ("bf16", _bf16), ("tf32", _tf32)):
        if name in ("bf16", "tf32") and any(o.dtype != torch.float32 for o in outputs[0]):
            continue
        yield name, partial(_of_changed_sample, task, samples, change)


def _identity(samples: Sequence[Sequence[Any]], outputs: Sequence[Outputs], at: int, i: int) -> list[Tensor | None]:
    return [_as_output(samples[i][at], o) for o in outputs[i]]


def _of_changed_sample(
    task: Task, samples: Sequence[Sequence[Any]], change: Callable[[Tensor], Tensor | None], i: int
) -> Outputs | None:
    return _of_changed(task, samples[i], change)


def _right(got: Sequence[Tensor | None] | None, want: Outputs, floors: Sequence[float]) -> bool:
    if got is None or len(got) != len(want) or not any(w.numel() for w in want):
        return False
    return all(g is not None and matches(g, w, f) for g, w, f in zip(got, want, floors, strict=True))


def _of_changed(task: Task, args: Sequence[Any], change: Callable[[Tensor], Tensor | None]) -> Outputs | None:
    """Return the reference at changed inputs; None if nothing can be changed. Parameters stay."""
    import torch

    changed, touched = [], False
    for spec, value in zip(task.args, args, strict=True):
        is_input = isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1 and not spec.key
        new = change(value) if is_input else None
        touched = touched or (new is not None and not torch.equal(new, value))
        changed.append(value if new is None else new)
    if not touched:
        return None
    try:
        return task.module().results(changed)
    except TaskError:
        return None


def _rolled(x: Tensor) -> Tensor:
    return x.roll(1, dims=-1) if x.shape[-1:] > (1,) else x.roll(1, dims=0)


def _tailless(x: Tensor) -> Tensor | None:
    """Return ``x`` with the last sixteenth (at least one element) of the last dimension set to zero."""
    n = x.shape[-1] if x.dim() else 0
    if n < 2:
        return None
    out = x.clone()
    out[..., n - max(1, n // 16) :] = 0
    return out


def _bf16(x: Tensor) -> Tensor:
    import torch

    return x.to(torch.bfloat16).to(x.dtype)


def _tf32(x: Tensor) -> Tensor | None:
    """Return ``x`` with ten bits of mantissa, rounded to nearest."""
    import torch

    if x.dtype != torch.float32:
        return None
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def _front(want: Tensor) -> Tensor | None:
    import torch

    flat = want.reshape(-1)
    if flat.numel() < 4:
        return None
    out = torch.zeros_like(flat)
    half = flat.numel() // 2
    out[:half] = flat[:half]
    return out.reshape(want.shape)


def _same(one: Sequence[Any], two: Sequence[Any]) -> bool:
    """Are both inputs the same? If they do not depend on the seed, an earlier call's output is right."""
    import torch

    pairs = zip(one, two, strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def _mean(want: Tensor) -> float:
    shown = want.abs() if want.is_complex() else computable(want)
    return float(shown.double().mean()) if want.numel() else 0.0


def _as_output(value: Tensor, want: Tensor) -> Tensor | None:
    """Return the input unchanged; None if it has another dtype, for which it is refused."""
    return value if value.shape == want.shape and value.dtype == want.dtype else None


def matches(got: Tensor, want: Tensor, floor: float) -> bool:
    """Is ``got`` within ``floor`` of ``want`` in relative Frobenius norm (exactly, for integers and bools)?"""
    import torch

    if got.shape != want.shape:
        return False
    if want.numel() > _LOOKED_AT:
        # a degenerate result is wrong in any large enough part of it; an odd step samples all columns
        step = want.numel() // _LOOKED_AT | 1
        got, want = got.reshape(-1)[::step], want.reshape(-1)[::step]
    if want.is_complex():
        got, want = torch.view_as_real(got.to(want.dtype)), torch.view_as_real(want)
    if not want.is_floating_point():
        return bool(torch.equal(computable(got.to(want.dtype)), computable(want)))
    a, b = got.to(torch.float64), want.to(torch.float64)
    finite = b.isfinite()
    if not bool((a.isfinite() == finite).all()):
        return False
    a, b = torch.where(finite, a, 0.0), torch.where(finite, b, 0.0)
    return float((a - b).norm()) <= floor * float(b.norm())
