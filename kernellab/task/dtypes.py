"""Tensors of dtypes with few operators in torch: 8-bit floats and unsigned integers of 16 bits and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def computable(tensor: Tensor) -> Tensor:
    """Return the same values in a dtype with all of torch's operators: 8-bit floats as float32, large unsigned integers
    as int64 (uint64 by its bits); others unchanged."""
    import torch

    if is_float8(tensor):
        return tensor.to(torch.float32)
    if tensor.dtype in (torch.uint16, torch.uint32):
        return tensor.to(torch.int64)
    return tensor.view(torch.int64) if tensor.dtype == torch.uint64 else tensor


def parts(tensor: Tensor) -> Tensor:
    """Return a complex tensor as pairs of real numbers, [..., 2]; others unchanged."""
    import torch

    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def channels_last(tensor: Any) -> bool:
    """Does a dense tensor of four or five dimensions lie in memory with its second dimension last?"""
    import torch

    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return form is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=form)


def held(tensor: Tensor, last: bool) -> Tensor:
    """Return ``tensor`` in the form of a sketch's tensor: complex numbers as pairs; ``last``: the second dimension at
    the end."""
    return tensor.movedim(1, -1) if last else parts(tensor)


def is_inexact(value: Any) -> bool:
    """Is ``value`` a tensor of floats or of complex numbers?"""
    import torch

    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def wide(tensor: Tensor) -> Tensor:
    """Return the same values in float64, or complex128 for complex numbers."""
    import torch

    return tensor.to(torch.complex128) if tensor.is_complex() else tensor.double()


def reals(tensor: Tensor) -> Tensor:
    """Return a complex tensor as real numbers, with both parts of an element adjacent in a last dimension of twice the
    length; others unchanged."""
    pairs = parts(tensor)
    return pairs.flatten(-2) if tensor.is_complex() and tensor.dim() else pairs


def unusable(value: object) -> str:
    """Return the kind of a tensor that neither a kernel nor the judge can take ("a sparse tensor"); "" for all
    others."""
    import torch

    if not isinstance(value, torch.Tensor):
        return ""
    kind = "nested" if value.is_nested else "quantized" if value.is_quantized else ""
    if not kind and value.layout is not torch.strided:
        kind = "sparse"
    if kind:
        return f"a {kind} tensor"
    # most of torch, comparison too, does not support these
    lacking = value.dtype is torch.complex32 or str(value.dtype).startswith(("torch.float4", "torch.bits"))
    return f"a tensor of {str(value.dtype).removeprefix('torch.')}" if lacking else ""


def is_float8(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() == 1


def scaled(tensor: Tensor, factor: float) -> Tensor:
    """Return a float tensor times ``factor``, in its dtype."""
    return (computable(tensor) * factor).to(tensor.dtype)


def finite(tensor: Tensor) -> bool:
    """Is every element of a float or complex tensor finite? True for integers."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    return bool(computable(tensor).isfinite().all())


def alike(one: Tensor, other: Tensor) -> bool:
    """Are all elements of both equal? NaN equals NaN."""
    import torch

    one, other = (computable(t).nan_to_num() for t in (one, other))
    return bool(torch.equal(one, other))


def masks_as_queries(args: Sequence[Any]) -> AbstractContextManager[object]:
    """While active, attention's floating masks are cast to the queries' dtype if ``args`` has a float64 tensor: torch
    2.13 and before accepts a float32 mask with float64 queries on a CPU, and reads its memory as float64."""
    import torch
    from torch.overrides import TorchFunctionMode

    if not any(isinstance(a, torch.Tensor) and a.dtype == torch.float64 for a in args):
        return nullcontext()

    class Masks(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            keywords = dict(kwargs or {})
            if func is torch.nn.functional.scaled_dot_product_attention:
                query, mask = (args[0] if args else keywords["query"]), keywords.get("attn_mask")
                if mask is None and len(args) > 3:
                    mask = args[3]
                if isinstance(mask, torch.Tensor) and mask.is_floating_point():
                    args, keywords = (
                        args[:3],
                        {**keywords, "attn_mask": mask.to(query.dtype)}
                        | dict(zip(("dropout_p", "is_causal"), args[4:], strict=False)),
                    )
            return func(*args, **keywords)

    return Masks()


def whole_divisions(args: Sequence[Any]) -> AbstractContextManager[object]:
    """While active, a division of a dtype's smallest integer by -1 raises if ``args`` have large integers: on a CPU the
    processor's exception would end the process."""
    import numpy as np
    import torch

    from kernellab.task.meta.operators import watching

    wide = torch.int32, torch.int64  # narrower integers are divided in one of these dtypes

    def large(value: Any) -> bool:
        if type(value) is int:
            return abs(value) > _SMALL
        if type(value) is not torch.Tensor or value.dtype not in wide or value.device.type != "cpu":
            return False
        # a tensor without memory has no values
        if not value.numel() or not value.data_ptr():
            return False
        # by NumPy, so that a mode that records the reference's operations does not see these
        numbers = value.numpy()
        return bool(numbers.min() < -_SMALL or numbers.max() > _SMALL)

    def ran(func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        whole = name in _DIVISIONS or (name == "div" and options.get("rounding_mode") is not None)
        if whole and (dtype := torch.result_type(*args[:2])) in wide:
            value, by = (g.numpy() if isinstance(g, torch.Tensor) else np.asarray(g) for g in args[:2])
            if bool(((value == torch.iinfo(dtype).min) & (by == -1)).any()):
                raise RuntimeError("The least number of a dtype is divided by -1, which its quotient cannot hold.")
        return func(*args, **options)

    if not any(large(a) for a in args):
        return nullcontext()
    return watching(ran)


#: largest magnitude whose products do not overflow 32 bits
_SMALL = 1 << 15
_DIVISIONS = frozenset(("floor_divide", "remainder", "fmod"))
