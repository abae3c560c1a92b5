"""Answers of the reference with other roundings: how far a right kernel may be from the float64 answer.

Every function takes the references of a case and returns them with one more bound (the fields of
:class:`~kernellab.verifier.compare.records.Reference`), or further answers. Each runs the reference in float64 under a
dispatcher that moves results (:mod:`kernellab.verifier.compare.roundings`):

- ``nudged``: inputs moved by a rounding; with ``rounded``, each operation's result too; with ``narrowed``, the factors
  of products as TF32 rounds them. Where several apply, the furthest answer counts.
- ``reordered``: sums moved as another order of their terms may move them.
- ``piled``: the error that sums term by term in float32 may leave.
- ``tied``: equal elements sorted in the other order.
- ``settled``: for integers and bools, the choices that ties and roundings leave open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kernellab.task import Task
from kernellab.task.dtypes import is_float8, is_inexact, parts, wide
from kernellab.verifier.cases import device
from kernellab.verifier.cases.answers import graph_in_double, held_in_range, in_double, run_reference
from kernellab.verifier.compare.compare import Reference

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: The references of a case, one for each output.
References = tuple[Reference, ...]
#: Number of ways in which three consecutive operations can be rounded.
_PATTERNS = 8
#: Draws of the operations' roundings; more are used if outputs and arguments have at most these numbers of elements,
#: where a run is cheap.
_ROUNDED, _ROUNDED_SMALL, _SMALL_OUTPUT, _SMALL_ARGUMENT = 4, 16, 1 << 16, 1 << 20
#: Most random draws for integers that a threshold decides, and the same where a run is cheap.
_CHANCES, _CHANCES_SMALL = 8, 128


def nudged(task: Task, args: Sequence[Any], references: References, seed: int = 0) -> References:
    """Return the ``references`` with the float64 answer at inputs moved by a rounding error, or with factors
    rounded to TF32 where allowed and further away. Return them as they are if that is not available."""
    import torch

    from kernellab.verifier.compare.roundings import EXACT, Converted

    references = settled(task, args, references, seed)
    if not any(r.double is not None for r in references):
        return references
    # Most references convert integers to float32, even if the outputs are narrower.
    units = (torch.finfo(r.native.dtype).eps for r in references if is_inexact(r.native))
    with Converted(min(*units, 2.0**-23), seed, EXACT, narrow=torch.float32):
        moved = in_double(task, [_moved(a, seed + i) for i, a in enumerate(args)])
    if moved is None or len(moved) != len(references):
        return references
    pairs = zip(references, moved, strict=True)
    nearest = tuple(r if r.double is None else replace(r, nudged=held_in_range(r.native, wide(m))) for r, m in pairs)
    names = device.tf32_operators(task)
    return narrowed(task, args, nearest, names, seed) if names else nearest


def rounded(task: Task, args: Sequence[Any], references: References, seed: int = 0) -> References:
    """Return the nudged ``references``, replaced where further away by the float64 answer with each operation's result
    rounded (:mod:`~kernellab.verifier.compare.roundings`). Of several draws the furthest counts: for two tied
    scores, one draw in two moves both the same way."""
    import torch

    from kernellab.verifier.compare.roundings import EXACT, Rounded

    units = [torch.finfo(r.native.dtype).eps / 2 for r in references if is_inexact(r.native)]
    small = all(r.native.numel() <= _SMALL_OUTPUT for r in references)
    small &= all(a.numel() <= _SMALL_ARGUMENT for a in args if isinstance(a, torch.Tensor))
    for draw in range((_ROUNDED_SMALL if small else _ROUNDED) if units else 0):
        # A maximum is exactly one of the elements in any kernel: rounding must not affect a comparison with it.
        with Rounded(max(units), seed + draw, EXACT):
            outputs = in_double(task, args)
        if outputs is None or len(outputs) != len(references):
            return references
        references = tuple(_further(r, o) for r, o in zip(references, outputs, strict=True))
    return references


def reordered(task: Task, args: Sequence[Any], references: References, seed: int = 0) -> list[tuple[Tensor, ...]]:
    """Return float64 answers whose operation results are moved as another order of sums may move them."""
    import torch

    from kernellab.verifier.compare.roundings import EXACT, Reordered

    units = [torch.finfo(r.native.dtype).eps for r in references if is_inexact(r.native)]
    runs = []
    for pattern in range(_PATTERNS if units else 0):
        with Reordered(max(units), seed, EXACT, pattern):
            outputs = in_double(task, args)
        if outputs is not None and len(outputs) == len(references):
            runs.append(outputs)
    return runs


def piled(task: Task, args: Sequence[Any], references: References) -> References:
    """Return the ``references`` with the error that adding each sum's terms one by one in float32 may leave
    (:class:`~kernellab.verifier.compare.roundings.Piled`), of several draws the largest."""
    import torch

    from kernellab.verifier.compare.roundings import Piled

    if any(a.numel() > _SMALL_ARGUMENT for a in args if isinstance(a, torch.Tensor)):
        return references
    for pattern in range(4):
        with Piled(pattern):
            outputs = in_double(task, args)
        if outputs is None or len(outputs) != len(references):
            return references
        references = tuple(_piled(r, o) for r, o in zip(references, outputs, strict=True))
    return references


def _piled(reference: Reference, other: Tensor) -> Reference:
    import torch

    double = reference.double
    if double is None or reference.native.dtype != torch.float32 or other.shape != double.shape:
        return reference
    error = (wide(other) - double).abs().nan_to_num(0.0, 0.0, 0.0)
    return replace(reference, piled=error if reference.piled is None else error.maximum(reference.piled))


def tied(task: Task, args: Sequence[Any], references: References) -> list[tuple[Tensor, ...]]:
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
            answers = (doubled, *reordered(task, args, references))
            runs += [answer for answer in answers if answer is not None and len(answer) == len(references)]
    return runs


def settled(task: Task, args: Sequence[Any], references: References, seed: int = 0) -> References:
    """Return the ``references`` with the choices that ties and intermediate roundings leave open, for integers and
    bools."""
    exact_outputs = [
        i for i, r in enumerate(references) if not r.native.is_floating_point() and not r.native.is_complex()
    ]  # fmt: skip
    if not exact_outputs or task.framework == "numpy":
        return references
    from kernellab.capture.selection import selections

    chosen = selections(task.module().results, args)
    open_references = list(references)
    for i in exact_outputs:
        open_references[i] = replace(references[i], selection=chosen[i] if i < len(chosen) else None)
    unresolved = [i for i in exact_outputs if (s := open_references[i].selection) is None or s.picked]
    for i in unresolved:
        chance = partial(_by_chance, task, args, references[i].native, i, seed)
        open_references[i] = replace(open_references[i], chance=chance)
    # what is picked out of an order is judged by its value
    plain = [i for i in unresolved if open_references[i].selection is None]
    if plain:
        ranges = _between(task, args, [references[i].native for i in plain], plain, seed)
        for i, between in zip(plain, ranges, strict=True):
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


class _Moves(NamedTuple):
    """How results are moved to see what roundings decide: by ``unit`` of their size, except for numbers that the dtype
    ``narrow`` has; ``run`` gives the float64 answer."""

    unit: float
    narrow: torch.dtype | None
    run: Callable[[Task, Sequence[Any]], tuple[Tensor, ...] | None]


def _moves(args: Sequence[Any]) -> _Moves:
    """Return the moves for a reference of ``args``: by two roundings of the narrowest float. With integer arguments
    only, the reference computes in float32."""
    import torch

    floats = [a for a in args if is_inexact(a) and not is_float8(a)]
    units = [torch.finfo(a.dtype).eps for a in floats] or [torch.finfo(torch.float32).eps]
    if floats:
        return _Moves(2 * max(units), None, in_double)
    return _Moves(2 * max(units), torch.float32, graph_in_double)


def narrowed(
    task: Task, args: Sequence[Any], references: References, names: Collection[str], seed: int = 0
) -> References:
    """Return the nudged ``references``, replaced where further away by the float64 answer with the factors of the
    operators ``names`` rounded as TF32 may round them."""
    from kernellab.verifier.compare.roundings import Narrowed

    with Narrowed(names, seed):
        outputs = in_double(task, args)
    if outputs is None or len(outputs) != len(references):
        return references
    return tuple(_further(r, o) for r, o in zip(references, outputs, strict=True))


def _further(reference: Reference, other: Tensor) -> Reference:
    double, moved = reference.double, reference.nudged
    if double is None or moved is None or other.shape != double.shape:
        return reference
    other = held_in_range(reference.native, wide(other))
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
