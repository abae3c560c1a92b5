"""The reference in float64 with each operation's result rounded as a narrower dtype would round it at worst, or the
factors of products rounded to TF32 where the task lets them be.

Where terms cancel, what is left is what they were rounded to on the way, and no nudge of the inputs shows that: the
divergence of a row from itself is zero whatever the row, but p log p and p log q, each rounded, leave a rest. An
implementation that fuses a product with the difference rounds one of them and not the other, every element alike. So
each operation's result moves by one rounding, all elements the same way, the way drawn for each operation (the bound
of a running error analysis, Higham, section 3.3, in one run). An operator in which terms cancel is taken apart first:
of a GELU's far tail 1 + erf(x) leaves nothing, in float64 from -8.3 on, and a kernel that writes erfc is nearer. Each
element of a product moves by one rounding of what was added up for it, too, which another order of its terms leaves
where they cancel (the same, section 3.5), and an exponential behind it shows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._decomp import get_decompositions

from kernellab.task.dtypes import is_inexact
from kernellab.task.meta.operators import Operators

#: operators that select, move or cut, and so round nothing
EXACT = frozenset((
    "round", "floor", "ceil", "trunc", "sign", "neg", "abs", "relu", "clamp", "clamp_min", "clamp_max", "maximum",
    "minimum", "amax", "amin", "max", "min", "where", "gather", "index", "index_select", "embedding", "sort", "topk",
    "cat", "stack", "clone", "_to_copy", "contiguous", "flip", "roll", "tril", "triu", "constant_pad_nd", "masked_fill",
    "scatter", "zeros", "ones", "full", "arange", "zeros_like", "ones_like", "full_like", "copy", "scalar_tensor",
))  # fmt: skip
#: operators that add up: over the longest of a tensor's dimensions, or over several of them
SUMS = frozenset((
    "sum", "mean", "cumsum", "cumprod", "prod", "logcumsumexp", "_softmax", "_log_softmax", "logsumexp", "var", "std",
    "var_mean", "linalg_vector_norm", "norm", "native_layer_norm", "native_group_norm", "mm", "bmm", "addmm", "baddbmm",
    "mv", "dot", "convolution",
))  # fmt: skip
#: of these, those that add up products
PRODUCTS = frozenset(("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "convolution"))
#: half a unit of the last place of float32, in which products of narrower numbers are added up, too
_FLOAT32 = 2.0**-24
#: dtypes that hold whole numbers alone
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_NARROW = (torch.float32, torch.bfloat16, torch.float16)
_WIDER = {**dict.fromkeys(_NARROW, torch.float64), torch.complex64: torch.complex128, torch.complex32: torch.complex128}
#: half a unit of the last of TF32's ten bits
_TF32 = 2.0**-11


class Rounded(Operators):  # type: ignore[no-untyped-call]
    """Inside, every new floating tensor is moved by ``unit`` of its size, up or down, an operation at a time."""

    def __init__(
        self, unit: float, seed: int, exact: Collection[str] = (), pattern: int | None = None, narrow: Any = None,
        apart: bool = False,
    ) -> None:  # fmt: skip
        """``exact``: names of operators whose results are not rounded. The bits of ``pattern`` say which way each
        third operation is rounded, in place of chance. A number of the dtype ``narrow`` needs no rounding and stays.
        ``apart``: each element is rounded by chance, not all of an operation the same way."""
        super().__init__()
        self.unit = unit
        self.narrow = narrow
        self.exact = exact
        self.pattern = pattern
        self.apart = apart
        self.done = 0
        self.random = random.Random(seed)

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        out = self._parts(func)(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name in self.exact or any(r.alias_info is not None for r in func._schema.returns):
            # a view, or a write in place: nothing was rounded again, or it cannot be moved without moving another's
            return out
        if self.pattern is None and name in PRODUCTS and out.is_floating_point():
            out = out + self._left(func, args, kwargs)
        move = self._by(self.unit * self._terms(name, args, out))
        if self.narrow is None or any(
            isinstance(a, float) and not self._holds(torch.tensor(a, dtype=torch.float64)) for a in args
        ):
            return _each(out, move)
        return _each(out, lambda t: t.where(self._holds(t), move(t)))

    def _by(self, unit: float) -> Callable[[torch.Tensor], torch.Tensor]:
        """What moves a tensor by ``unit`` of its elements' sizes."""
        if not self.apart:
            by = 1 + unit * self._way()
            return lambda t: t * by
        return lambda t: t * (1 + unit * self._ways(t))

    def _ways(self, like: torch.Tensor) -> torch.Tensor:
        """1 or -1 for each element."""
        self.done += 1
        seen = torch.Generator(like.device).manual_seed(self.random.getrandbits(31))
        way = torch.rand(like.shape, generator=seen, dtype=torch.float64, device=like.device)
        return way.sub_(0.5).sign_()

    def _left(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
        """A rounding of the magnitudes that a product adds up, up or down for each element by itself."""
        factors = {k: abs(v) if isinstance(v, (int, float)) else v for k, v in kwargs.items()}  # alpha, beta
        sizes = func(*(a.abs() if isinstance(a, torch.Tensor) else a for a in args), **factors)
        return sizes * self._ways(sizes).to(sizes.dtype) * min(self.unit, _FLOAT32)  # type: ignore[no-any-return]

    def _holds(self, value: torch.Tensor) -> torch.Tensor:
        """Is a number of float64 one of the narrower dtype?"""
        return value == value.to(self.narrow.to_complex() if value.is_complex() else self.narrow)

    def _terms(self, name: str, args: Sequence[Any], out: Any) -> float:
        """How many roundings an operation's result may be off by."""
        return 1.0

    def _way(self) -> int:
        self.done += 1
        if self.pattern is None:
            return self.random.choice((-1, 1))
        return 1 if self.pattern >> self.done % 3 & 1 else -1

    def _parts(self, func: Any) -> Callable[..., Any]:
        """An operator as the operators that it is made of, rounded one by one, where it hides terms that cancel."""
        made = _hidden().get(func)
        if made is None and func in _HIDDEN:
            made = func.decompose
        if made is None:
            return func  # type: ignore[no-any-return]

        def apart(*args: Any, **kwargs: Any) -> Any:
            with self:
                return made(*args, **kwargs)

        return apart


class Reordered(Rounded):  # type: ignore[no-untyped-call]
    """Inside, the result of a sum of n terms is moved by the square root of n roundings, as another order of its terms
    may move it (the rule of thumb for the sum of n errors, Higham, section 2.8); others by one."""

    def _terms(self, name: str, args: Sequence[Any], out: Any) -> float:
        given = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if name not in SUMS or given is None or given.dim() == 0:
            return 1.0
        made = out if isinstance(out, torch.Tensor) else out[0]
        return math.sqrt(max(given.numel() / max(made.numel(), 1), *given.shape, 1))


class Converted(Rounded):  # type: ignore[no-untyped-call]
    """Inside, what an operation makes of whole numbers is moved by one rounding where float32 does not hold it, and
    nothing else is: what it holds, every right kernel has, and a floor or a comparison may follow.

    A whole number is exact, so no nudge of the inputs shows what the first rounding behind it comes to: an angle of 999
    times a frequency is off by 6e-5.
    """

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        out = func(*args, **kwargs)
        moves = isinstance(out, torch.Tensor) and out.is_floating_point() and any(map(_is_whole, args))
        if not moves or func.overloadpacket.__name__ in self.exact or func._schema.returns[0].alias_info is not None:
            return out
        # a reference that names float32 makes it here, too: whether a number needed rounding, float64 tells
        wide = [a.double() if isinstance(a, torch.Tensor) and a.dtype == torch.float32 else a for a in args]
        held = self._holds(func(*wide, **kwargs))
        return out.where(held, out * (1 + self.unit * self._way()))


class Narrowed(Operators):  # type: ignore[no-untyped-call]
    """Inside, each factor of the operators ``names`` is moved at random by at most half a unit of TF32's last place, as
    tensor cores may round it. What follows may amplify that (a norm takes a large mean away), whatever precision the
    framework itself chose."""

    def __init__(self, names: Collection[str], seed: int) -> None:
        super().__init__()
        self.names = names
        self.seed = seed

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func.overloadpacket.__name__ in self.names:
            args = [self._moved(a) for a in args]
        return func(*args, **kwargs)

    def _moved(self, value: Any) -> Any:
        # a bias is no factor
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dim() < 2:
            return value
        self.seed += 1
        generator = torch.Generator(value.device).manual_seed(self.seed % (1 << 31))
        by = torch.rand(value.shape, generator=generator, dtype=value.dtype, device=value.device)
        return by.mul_(2).sub_(1).mul_(_TF32).add_(1).mul_(value)


class Widened(Operators):  # type: ignore[no-untyped-call]
    """Inside, what is made in a narrower float is made in float64, also where its dtype is named; complex numbers in
    complex128."""

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if kwargs.get("dtype") in _WIDER:
            kwargs = {**kwargs, "dtype": _WIDER[kwargs["dtype"]]}
        out = func(*args, **kwargs)
        if any(r.alias_info is not None for r in func._schema.returns):
            return out
        return _each(out, lambda t: t.to(_WIDER.get(t.dtype, t.dtype)))


#: what decompositions call in turn, as one
_HIDDEN = (torch.ops.aten._scaled_dot_product_attention_math.default,)


@cache
def _hidden() -> Mapping[Any, Callable[..., Any]]:
    return get_decompositions([torch.ops.aten.gelu, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu])


def _is_whole(value: Any) -> bool:
    """Does a tensor hold whole numbers alone, in whatever dtype?"""
    if not isinstance(value, torch.Tensor):
        return False
    if not value.is_floating_point():
        return value.dtype in _WHOLE
    # torch 2.11 rounds no float8
    wide = value.float() if value.element_size() == 1 else value
    return bool((wide == wide.round()).all())


def _each(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value) if is_inexact(value) else value
    if isinstance(value, (tuple, list)):
        return type(value)(_each(v, change) for v in value)
    return value
