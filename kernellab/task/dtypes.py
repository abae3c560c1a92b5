"""Tensors of dtypes in which torch computes little: 8-bit floats and unsigned integers of 16 bits and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def computable(tensor: Tensor) -> Tensor:
    """The same values in a dtype with all of torch's operators: 8-bit floats as float32, large unsigned integers as
    int64 (uint64 by its bits); all else as it is."""
    import torch

    if is_float8(tensor):
        return tensor.to(torch.float32)
    if tensor.dtype in (torch.uint16, torch.uint32):
        return tensor.to(torch.int64)
    return tensor.view(torch.int64) if tensor.dtype == torch.uint64 else tensor


def parts(tensor: Tensor) -> Tensor:
    """A complex tensor as pairs of real numbers, [..., 2]; all else as it is."""
    import torch

    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def channels_last(tensor: Any) -> bool:
    """Does a dense tensor of four or five dimensions lie in memory with its second dimension last?"""
    import torch

    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return form is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=form)


def held(tensor: Tensor, last: bool) -> Tensor:
    """``tensor`` as one of a sketch holds it: complex numbers as pairs; ``last``: the second dimension at the end."""
    return tensor.movedim(1, -1) if last else parts(tensor)


def is_inexact(value: Any) -> bool:
    """Is ``value`` a tensor of floats or of complex numbers?"""
    import torch

    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def wide(tensor: Tensor) -> Tensor:
    """The same values in float64, of complex numbers in complex128."""
    import torch

    return tensor.to(torch.complex128) if tensor.is_complex() else tensor.double()


def reals(tensor: Tensor) -> Tensor:
    """A complex tensor as real numbers, those of an element next to each other in a last dimension that is twice as
    long; all else as it is."""
    pairs = parts(tensor)
    return pairs.flatten(-2) if tensor.is_complex() and tensor.dim() else pairs


def unusable(value: object) -> str:
    """What a tensor is that neither a kernel nor the judge can take ("a sparse tensor"); "" for all others."""
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
    """A float tensor times ``factor``, in its own dtype."""
    return (computable(tensor) * factor).to(tensor.dtype)


def finite(tensor: Tensor) -> bool:
    """Is every element of a float or complex tensor finite? True for integers."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    return bool(computable(tensor).isfinite().all())


def alike(one: Tensor, other: Tensor) -> bool:
    """Are both the same in every element, a NaN like a NaN?"""
    import torch

    one, other = (computable(t).nan_to_num() for t in (one, other))
    return bool(torch.equal(one, other))


def masks_as_queries(args: Sequence[Any]) -> AbstractContextManager[object]:
    """Attention's floating masks are cast to the queries' dtype, where ``args`` holds a float64 tensor: torch 2.13 and
    before takes a float32 mask with float64 queries on a CPU, and reads its memory as float64."""
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
    """A division of a dtype's least whole number by -1 raises, where ``args`` hold large ones: on a CPU torch leaves it
    to the processor, which ends the process."""
    import numpy as np
    import torch

    from kernellab.task.meta.operators import watching

    wide = torch.int32, torch.int64  # narrower ones are divided as these

    def large(value: Any) -> bool:
        if type(value) is int:
            return abs(value) > _SMALL
        if type(value) is not torch.Tensor or value.dtype not in wide or value.device.type != "cpu":
            return False
        # a tensor without memory has no numbers to look at
        if not value.numel() or not value.data_ptr():
            return False
        # by NumPy: who watches the reference's operations sees none of these
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


#: magnitudes whose products stay far from the ends of 32 bits
_SMALL = 1 << 15
_DIVISIONS = frozenset(("floor_divide", "remainder", "fmod"))
