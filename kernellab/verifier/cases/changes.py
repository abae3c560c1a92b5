"""Changes to the drawn arguments of a case, as data that a reproduction can repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import ceil, floor, inf, log2, nan
from typing import TYPE_CHECKING, Any

from kernellab.task.dtypes import scaled

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def changed(args: tuple[Any, ...], change: Sequence[Any]) -> tuple[Any, ...]:
    """Return ``args`` after a change, which is one of:

    - ``("element", argument, flat index, value)`` or ``("elements", argument, ((flat index, value), ...))``;
    - ``("permuted", arguments, seed)``: along the first dimension;
    - ``("scale", argument, factor)``: every float tensor if the argument is -1;
    - ``("scalar", argument, value)``;
    - ``("pattern", argument, name, seed, low, high)``: see :mod:`kernellab.verifier.cases.patterns`;
    - ``("halves", argument, seed, ((argument, low, high), ...), most, step, peak)``: multiples of ``step`` or of a
      smaller power of two, up to ``most``, in the first argument, with ``peak`` at each eighth place of its rows and
      columns; powers of two in the others;
    - ``("still", argument, ((argument, value), ...), ((argument, flat index, value), ...))``: one value throughout
      each argument except for single elements;
    - ``("together", argument, argument, seed, values)``: each pair of ``values`` once at one place of both;
    - ``("hidden", argument, argument, seed)``: zeros in the first and infinities in the second;
    - ``("near", argument, argument, seed)``: nearly the first one's rows in the second;
    - ``("shared", argument, argument, seed)``: elements of the second in the first;
    - ``("codes", argument, seed, "all" or "numbers")``: each code of a float8;
    - ``("bits", argument, seed)``: any 64 bits;
    - ``("sparse", argument, seed, places, number)``: zeros except for ``number`` and its neighbours at these places
      of rows, eight in each;
    - ``("last", -1, seed, ((argument, low, high), ...))``: the last elements of each are its largest and smallest,
      some rows of masks are true throughout, and half of the integers are one number.
    """
    import torch

    from kernellab.verifier.cases.patterns import patterned

    if not change:
        return args
    kind, where = change[0], change[1]
    out = list(args)
    if kind == "element":
        out[where] = args[where].clone()
        out[where].reshape(-1)[change[2]] = change[3]
    elif kind == "elements":
        out[where] = args[where].contiguous().clone()
        for index, number in change[2]:
            out[where].view(-1)[index] = number
    elif kind == "together":
        out[where], out[change[2]] = _together(args[where], args[change[2]], *change[3:])
    elif kind == "hidden":
        out[where] = patterned(args[where], "some", change[3], 0, 0)
        out[change[2]] = patterned(args[change[2]], "inf", change[3], 0, 0)
    elif kind == "near":
        out[change[2]] = _near(args[where], args[change[2]], change[3])
    elif kind == "shared":
        out[where] = _shared(args[where], args[change[2]], change[3])
    elif kind == "last":
        generator = torch.Generator().manual_seed(change[2])
        for position, low, high in change[3]:
            out[position] = _decided_last(args[position], generator, low, high)
    elif kind == "pattern":
        out[where] = patterned(args[where], *change[2:])
    elif kind == "codes":
        out[where] = _codes(args[where], change[2], change[3] == "numbers")
    elif kind == "bits":
        generator = torch.Generator().manual_seed(change[2])
        drawn = torch.randint(-(1 << 63), (1 << 63) - 1, tuple(args[where].shape), generator=generator)
        out[where] = drawn.view(args[where].dtype).to(args[where].device)
    elif kind == "sparse":
        out[where] = _sparse(args[where], *change[2:])
    elif kind == "halves":
        generator = torch.Generator().manual_seed(change[2])
        for position, low, high in change[3]:
            out[position] = _exact(args[position], generator, low, high, position != where, *change[4:])
    elif kind == "still":
        for position, value in change[2]:
            out[position] = torch.full_like(args[position], value, memory_format=torch.contiguous_format)
        for position, index, number in change[3]:
            out[position].view(-1)[index] = number
    elif kind == "scalar":
        out[where] = change[2]
    elif kind == "permuted":
        order = row_order(args[where[0]].shape[0], change[2])
        for position in where:
            out[position] = args[position][order.to(args[position].device)]
    else:
        for position, value in enumerate(args):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and where in (-1, position):
                out[position] = scaled(value, change[2])
    return tuple(out)


def in_words(names: Sequence[str], shape_of: Callable[[int], Sequence[int]], change: Sequence[Any]) -> str:
    """Describe what :func:`changed` did to the arguments ``names``: ``a[98, 9, 26] = 10000``, ``NaN in x``."""
    import torch

    kind, where = change[0], change[1]
    name = names[where] if isinstance(where, int) and where >= 0 else "each argument"
    if kind == "element":
        at = torch.unravel_index(torch.tensor(change[2]), tuple(shape_of(where)))
        return f"{name}[{', '.join(str(int(i)) for i in at)}] = {float(change[3]):.6g}"
    if kind == "elements":
        return f"other elements in {name}"
    if kind == "pattern":
        return f"{change[2]} in {name}"
    if kind == "bits":
        return f"any bits in {name}"
    if kind == "codes":
        return f"each code in {name}"
    if kind == "sparse":
        return f"few elements of {name} that are not zero"
    if kind == "scalar":
        return f"{name} = {change[2]}"
    if kind == "scale":
        return f"{name} times {change[2]:.6g}"
    return "rows in another order" if kind == "permuted" else str(kind)


def _exact(
    like: Tensor, seen: torch.Generator, low: float, high: float, powers: bool, furthest: float = 8.0,
    step: float = 0.5, peak: float = 0.0,
) -> Tensor:  # fmt: skip
    """Return values in the shape of ``like`` from ``low`` to ``high`` for which sums, products and quotients are exact.

    Raises:
        ValueError: No power of two, or not ``peak``, is in this range.
    """
    import torch

    from kernellab.verifier.cases.patterns import generator_on

    low, high = max(low, -furthest), min(high, furthest)
    generator = generator_on(like.device, seen)

    def whole(first: int, last: int) -> Tensor:
        integers = torch.randint(
            first, last + 1, tuple(like.shape), generator=generator, device=like.device, dtype=torch.int32
        )
        return integers.double()

    if powers:
        least, most = (max(low, 0.0), high) if high > 0 else (-high, -low)
        last = min(floor(log2(most)), 1)
        first = max(last - 4, ceil(log2(least)) if least else last - 4)
        if first > last:
            raise ValueError(f"no power of two lies from {low} to {high}")
        values = torch.exp2(whole(first, last))
        values = values if high > 0 else -values
    else:
        step = min(step, 2.0 ** floor(log2((high - low) / 16)))
        values = whole(ceil(low / step), floor(high / step)) * step
        if peak and peak > high:
            raise ValueError(f"{peak} does not lie from {low} to {high}")
        if peak and values.dim():
            rows = values.view(-1, values.shape[-1])
            at = torch.arange(rows.shape[0], device=generator.device)[:, None]
            rows[(at + torch.arange(rows.shape[1], device=generator.device)) % 8 == 0] = peak
    return values.to(like)


#: Values for which a formula of two arguments may have a separate case.
SPECIAL = (0.0, 1.0, inf, -inf, nan)
#: Ordinary values for the same; one is near zero, within the tolerance of a comparison.
USUAL = (0.0, 1.0, 2.0**-30)


def _together(one: Tensor, two: Tensor, seed: int, values: Sequence[float] = SPECIAL) -> tuple[Tensor, Tensor]:
    """Return both tensors with each pair of ``values`` at one place, at varying rows and columns so that a reduction
    sees few at once. Their shapes broadcast."""
    import numpy as np
    import torch

    # torch's own function imports sympy in some versions, which adds 3.5 s to the judge's first verdict.
    shape = np.broadcast_shapes(one.shape, two.shape)
    generator = torch.Generator().manual_seed(seed)
    columns = shape[-1] if shape else 1
    rows = torch.Size(shape[:-1]).numel()
    pairs = torch.tensor(list(product(values, repeat=2)), dtype=torch.float64)
    pairs = pairs[torch.randperm(len(pairs), generator=generator)][: rows * columns]
    number = torch.arange(len(pairs))
    first, begin = (int(torch.randint(n, (1,), generator=generator)) for n in (rows, columns))
    places = (first + number) % rows * columns + (begin + number + number // rows) % columns
    changed_pair = []
    for value, numbers in ((one, pairs[:, 0]), (two, pairs[:, 1])):
        # Map places of the broadcast shape, which may be far larger, to the tensor's own elements.
        own, left, step = torch.zeros_like(places), places, 1
        for i, extent in enumerate(reversed(shape)):
            own_extent = value.shape[-1 - i] if i < value.dim() else 1
            own, left, step = own + (left % extent if own_extent > 1 else 0) * step, left // extent, step * own_extent
        patched = value.contiguous().clone()
        patched.view(-1)[own.to(value.device)] = numbers.to(patched)
        changed_pair.append(patched)
    return changed_pair[0], changed_pair[1]


def _near(one: Tensor, two: Tensor, seed: int) -> Tensor:
    """Return the rows of ``one``, repeated as needed, in the shape of ``two``, each element moved by up to a
    thousandth."""
    import torch

    rows = one.reshape(-1, one.shape[-1]).double().cpu()
    count = two.numel() // rows.shape[-1]
    repeated = rows[torch.arange(count) % len(rows)]
    noise = torch.rand(repeated.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (repeated * (1 + (noise - 0.5) / 512)).reshape(two.shape).to(two)


def _shared(one: Tensor, other: Tensor, seed: int) -> Tensor:
    """Return ``one`` with an element of ``other`` in about half of its places, drawn by ``seed``."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    flat = other.reshape(-1)
    elements = flat[torch.randint(flat.numel(), one.shape, generator=generator).to(flat.device)]
    chosen = (torch.rand(one.shape, generator=generator) < 0.5).to(one.device)
    return torch.where(chosen, elements.to(one), one)


def _codes(like: Tensor, seed: int, numbers: bool) -> Tensor:
    """Return every code of an 8-bit float in turn, or every finite one, in a random order."""
    import torch

    all_codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(like.dtype)
    all_codes = all_codes.view(torch.uint8)[all_codes.float().isfinite()] if numbers else all_codes.view(torch.uint8)
    generator = torch.Generator().manual_seed(seed)
    order = all_codes[torch.randperm(len(all_codes), generator=generator)]
    return order[torch.arange(like.numel()) % len(order)].view(like.dtype).reshape(like.shape).to(like.device)


#: Number of nonzero places in a sparse row.
FILLED = 8


def _sparse(like: Tensor, seed: int, places: Sequence[int], number: float) -> Tensor:
    """Return zeros, except at some of these ``places`` of each row, in turn, where values are from ``number`` to its
    double. This detects a sum or a maximum that misses one place, however long the row."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    out = torch.zeros(like.shape, dtype=torch.float64)
    rows = out.view(-1, out.shape[-1])
    at = torch.tensor(places)[torch.arange(len(rows) * FILLED) % len(places)].view(len(rows), FILLED)
    rows.scatter_(1, at, number * (1 + torch.rand(at.shape, generator=generator, dtype=torch.float64)))
    return out.to(like)


#: Least length of a dimension whose last two elements may differ from all others.
_LONG = 8


def _decided_last(value: Tensor, seen: torch.Generator, low: float, high: float) -> Tensor:
    """Make the last two elements along the last and the first dimension the largest and the smallest, in random order,
    between ``low`` and ``high``."""
    import torch

    out = value.contiguous().clone()
    if out.dtype == torch.bool:
        rows = (torch.rand(out.shape[:-1], generator=seen) < 0.5).to(out.device)
        out[rows] = True
        return out
    if not out.is_floating_point() and out.numel():
        flat = out.view(-1)
        is_repeated = (torch.rand(flat.shape, generator=seen) < 0.5).to(flat.device)
        flat[is_repeated] = flat[int(torch.randint(flat.numel(), (1,), generator=seen))].clone()
        return out
    least, most = (float(f(out.double())) if out.numel() else 0.0 for f in (torch.min, torch.max))
    ends = [min(max(end + sign * (0.5 * abs(end) + 1), low), high) for end, sign in ((least, -1), (most, 1))]
    for dim in dict.fromkeys((out.dim() - 1, 0)):
        if out.dim() and out.shape[dim] >= _LONG:
            last, last_but_one = (out.select(dim, n) for n in (-1, -2))
            upper = (torch.rand(tuple(last.shape), generator=seen) < 0.5).to(out.device)
            low_end, high_end = (torch.tensor(end, dtype=torch.float64, device=out.device) for end in ends)
            last.copy_(torch.where(upper, high_end, low_end))
            last_but_one.copy_(torch.where(upper, low_end, high_end))
    return out


def row_order(rows: int, seed: int) -> Tensor:
    """Return a random permutation of ``rows`` indices, drawn by ``seed``."""
    import torch

    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
