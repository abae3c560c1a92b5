"""The reference in float64 with each operation's result rounded as in a narrower dtype, at worst, or with the factors
of products rounded to TF32 where the task allows it.

Where terms cancel, the remainder is the rounding of the terms, which no nudge of the inputs shows: the divergence of a
row from itself is always zero, but p log p and p log q, each rounded, leave a remainder. An implementation that fuses a
product with the difference rounds only one of them, for every element alike. So each operation's result moves by one
rounding, in one direction for all its elements, drawn for each operation (the bound of a running error analysis,
Higham, section 3.3, in one run). An operator in which terms cancel is decomposed first: in a GELU's far tail, 1 +
erf(x) is zero, in float64 from -8.3 on, and a kernel that uses erfc is more accurate. Each element of a product also
moves by one rounding of its summed magnitudes, which remains where the terms cancel in another order (the same, section
3.5), and which a following exponential amplifies.
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

#: Operators that select, move or truncate, and so do not round.
EXACT = frozenset((
    "round", "floor", "ceil", "trunc", "sign", "neg", "abs", "relu", "clamp", "clamp_min", "clamp_max", "maximum",
    "minimum", "amax", "amin", "max", "min", "where", "gather", "index", "index_select", "embedding", "sort", "topk",
    "cat", "stack", "clone", "_to_copy", "contiguous", "flip", "roll", "tril", "triu", "constant_pad_nd", "masked_fill",
    "scatter", "zeros", "ones", "full", "arange", "zeros_like", "ones_like", "full_like", "copy", "scalar_tensor",
))  # fmt: skip
#: Operators that sum, over the longest of a tensor's dimensions or over several.
SUMS = frozenset((
    "sum", "mean", "cumsum", "cumprod", "prod", "logcumsumexp", "_softmax", "_log_softmax", "logsumexp", "var", "std",
    "var_mean", "linalg_vector_norm", "norm", "native_layer_norm", "native_group_norm", "mm", "bmm", "addmm", "baddbmm",
    "mv", "dot", "convolution",
))  # fmt: skip
#: Operators of these that sum products.
PRODUCTS = frozenset(("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "convolution"))
#: Half a unit in the last place of float32, in which products of narrower numbers are summed too.
_FLOAT32 = 2.0**-24
#: Integer dtypes.
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_NARROW = (torch.float32, torch.bfloat16, torch.float16)
_WIDER = {**dict.fromkeys(_NARROW, torch.float64), torch.complex64: torch.complex128, torch.complex32: torch.complex128}
#: Half a unit in the last of TF32's ten mantissa bits.
_TF32 = 2.0**-11


class Rounded(Operators):  # type: ignore[no-untyped-call]
    """Context in which each operation moves its new floating tensors by ``unit`` of their size, up or down."""

    def __init__(
        self, unit: float, seed: int, exact: Collection[str] = (), pattern: int | None = None, narrow: Any = None,
        apart: bool = False,
    ) -> None:  # fmt: skip
        """``exact``: operators whose results are not rounded. ``pattern``: bits that select the direction for each
        third operation instead of chance. ``narrow``: a dtype whose numbers need no rounding. ``apart``: round each
        element randomly instead of all elements of an operation alike."""
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
            # A view, or an in-place write: either nothing is rounded, or moving it would move another tensor.
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
        """Return a function that moves a tensor by ``unit`` of its elements' sizes."""
        if not self.apart:
            factor = 1 + unit * self._way()
            return lambda t: t * factor
        return lambda t: t * (1 + unit * self._ways(t))

    def _ways(self, like: torch.Tensor) -> torch.Tensor:
        """Return 1 or -1 for each element."""
        self.done += 1
        generator = torch.Generator(like.device).manual_seed(self.random.getrandbits(31))
        way = torch.rand(like.shape, generator=generator, dtype=torch.float64, device=like.device)
        return way.sub_(0.5).sign_()

    def _left(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
        """Return a rounding of the magnitudes that a product sums, up or down for each element separately."""
        factors = {k: abs(v) if isinstance(v, (int, float)) else v for k, v in kwargs.items()}  # alpha, beta
        sizes = func(*(a.abs() if isinstance(a, torch.Tensor) else a for a in args), **factors)
        return sizes * self._ways(sizes).to(sizes.dtype) * min(self.unit, _FLOAT32)  # type: ignore[no-any-return]

    def _holds(self, value: torch.Tensor) -> torch.Tensor:
        """Return where float64 numbers are representable in the narrower dtype."""
        return value == value.to(self.narrow.to_complex() if value.is_complex() else self.narrow)

    def _terms(self, name: str, args: Sequence[Any], out: Any) -> float:
        """Return by how many roundings an operation's result may be off."""
        return 1.0

    def _way(self) -> int:
        self.done += 1
        if self.pattern is None:
            return self.random.choice((-1, 1))
        return 1 if self.pattern >> self.done % 3 & 1 else -1

    def _parts(self, func: Any) -> Callable[..., Any]:
        """Return an operator decomposed into operators that are rounded one by one, if it hides terms that cancel."""
        decomposed = _hidden().get(func)
        if decomposed is None and func in _HIDDEN:
            decomposed = func.decompose
        if decomposed is None:
            return func  # type: ignore[no-any-return]

        def apart(*args: Any, **kwargs: Any) -> Any:
            with self:
                return decomposed(*args, **kwargs)

        return apart


class Reordered(Rounded):  # type: ignore[no-untyped-call]
    """Context in which a sum of n terms moves by the square root of n roundings, as another order of its terms may move
    it (the rule of thumb for the sum of n errors, Higham, section 2.8); other results move by one."""

    def _terms(self, name: str, args: Sequence[Any], out: Any) -> float:
        first_operand = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if name not in SUMS or first_operand is None or first_operand.dim() == 0:
            return 1.0
        result = out if isinstance(out, torch.Tensor) else out[0]
        return math.sqrt(max(first_operand.numel() / max(result.numel(), 1), *first_operand.shape, 1))


class Converted(Rounded):  # type: ignore[no-untyped-call]
    """Context in which results of operations on integers move by one rounding if float32 cannot represent them; nothing
    else moves. Representable results are the same in every right kernel, and a floor or a comparison may follow.

    An integer is exact, so no nudge of the inputs shows the effect of the first rounding after it: an angle of 999
    times a frequency is off by 6e-5.
    """

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        out = func(*args, **kwargs)
        moves = isinstance(out, torch.Tensor) and out.is_floating_point() and any(map(_is_whole, args))
        if not moves or func.overloadpacket.__name__ in self.exact or func._schema.returns[0].alias_info is not None:
            return out
        # A reference that names float32 computes it here too; float64 shows whether a number needs rounding.
        wide = [a.double() if isinstance(a, torch.Tensor) and a.dtype == torch.float32 else a for a in args]
        representable = self._holds(func(*wide, **kwargs))
        return out.where(representable, out * (1 + self.unit * self._way()))


class Piled(Operators):  # type: ignore[no-untyped-call]
    """Context in which each sum moves by what adding its terms one by one in float32 may lose, at worst.

    An addition rounds by at most half a unit of the partial sum, and loses no more than the term. Equal terms after
    larger ones all round the same way, so that these errors add up: n terms of 5e-5 after a 1 lose up to n half units
    of the sum (Higham, eq. 4.4), where n terms that are equal from the first on lose half of that. Errors of other
    terms are independent.
    """

    def __init__(self, pattern: int) -> None:
        """``pattern``: bits that select the direction for every other sum."""
        super().__init__()
        self.pattern, self.done = pattern, 0

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        decomposed = _WITH_SUMS.get(func)
        if decomposed is not None:
            with self:
                return decomposed(*args, **kwargs)
        out = func(*args, **kwargs)
        if func.overloadpacket.__name__ not in ("sum", "mean") or not isinstance(args[0], torch.Tensor):
            return out
        terms = args[0]
        if terms.dtype not in (torch.float64, torch.float32) or not out.numel() or not terms.dim():
            return out
        dims = args[1] if len(args) > 1 and args[1] is not None else kwargs.get("dim")
        dims = [dims] if isinstance(dims, int) else list(dims or range(terms.dim()))
        places = [d % terms.dim() for d in dims]
        rows = terms.permute([d for d in range(terms.dim()) if d not in places] + places)
        rows = rows.reshape(out.numel(), -1)
        if rows.shape[1] < 2:
            return out
        lost = _lost_by_one(rows) / (rows.shape[1] if func.overloadpacket.__name__ == "mean" else 1)
        self.done += 1
        return out + lost.reshape(out.shape).to(out) * (1 if self.pattern >> self.done % 2 & 1 else -1)


def _lost_by_one(rows: torch.Tensor) -> torch.Tensor:
    """Return a bound on the error of each row's float32 sum with its largest terms first."""
    terms = rows.double().abs().nan_to_num(0.0, 0.0, 0.0).sort(-1, descending=True).values
    lost = torch.minimum(terms.cumsum(-1) * _FLOAT32, terms)
    lost[:, 0] = 0.0
    other = torch.zeros_like(terms, dtype=torch.int64)
    other[:, 1:] = (terms[:, 1:].float() != terms[:, :-1].float()).long()
    alike = torch.zeros_like(terms).scatter_add_(-1, other.cumsum(-1), lost)
    return alike.square().sum(-1).sqrt()


def _below_top(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return ``x`` less the largest of its row along ``dim``; an empty row has none."""
    return x - x.amax(dim, keepdim=True) if x.dim() and x.shape[dim] else x


def _softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    exponentials = _below_top(_computed(x), dim).exp()
    out = exponentials / exponentials.sum(dim, keepdim=True)
    return out if half_to_float else out.to(x.dtype)


def _log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    below = _below_top(_computed(x), dim)
    out = below - below.exp().sum(dim, keepdim=True).log()
    return out if half_to_float else out.to(x.dtype)


def _logsumexp(x: torch.Tensor, dim: Sequence[int], keepdim: bool = False) -> torch.Tensor:
    wide, dims = _computed(x), tuple(dim)
    if x.numel():
        top = wide.amax(dims, keepdim=True)
        top = top.masked_fill(top.abs() == math.inf, 0.0)
        out = (wide - top).exp().sum(dims, keepdim=True).log() + top
    else:
        out = wide.exp().sum(dims, keepdim=True).log()
    out = out if keepdim else out.squeeze(dims)
    return out.to(x.dtype) if is_inexact(x) else out


def _gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    wide = _computed(x)
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * (wide * wide * wide))
        return (0.5 * wide * (1 + inner.tanh())).to(x.dtype)
    return (wide * 0.5 * (1 + (wide * math.sqrt(0.5)).erf())).to(x.dtype)


def _computed(x: torch.Tensor) -> torch.Tensor:
    """Return ``x`` in the dtype that torch computes it in."""
    if x.dtype in (torch.bfloat16, torch.float16):
        return x.float()
    return x if is_inexact(x) else x.to(torch.get_default_dtype())


#: Operators that sum, as sums; torch's own tables of such forms load a system for symbolic algebra (45 MB).
_WITH_SUMS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten._softmax.default: _softmax,
    torch.ops.aten._log_softmax.default: _log_softmax,
    torch.ops.aten.logsumexp.default: _logsumexp,
}


class Narrowed(Operators):  # type: ignore[no-untyped-call]
    """Context in which each factor of the operators ``names`` moves randomly by at most half a unit in TF32's last
    place, as tensor cores may round it. Later operations may amplify that (a norm subtracts a large mean), whatever
    precision the framework chose."""

    def __init__(self, names: Collection[str], seed: int) -> None:
        super().__init__()
        self.names = names
        self.seed = seed

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func.overloadpacket.__name__ in self.names:
            args = [self._moved(a) for a in args]
        return func(*args, **kwargs)

    def _moved(self, value: Any) -> Any:
        # A bias is not a factor.
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dim() < 2:
            return value
        self.seed += 1
        generator = torch.Generator(value.device).manual_seed(self.seed % (1 << 31))
        factor = torch.rand(value.shape, generator=generator, dtype=value.dtype, device=value.device)
        return factor.mul_(2).sub_(1).mul_(_TF32).add_(1).mul_(value)


class Widened(Operators):  # type: ignore[no-untyped-call]
    """Context in which narrower floats are computed in float64 even if a dtype is named; complex numbers in
    complex128."""

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if kwargs.get("dtype") in _WIDER:
            kwargs = {**kwargs, "dtype": _WIDER[kwargs["dtype"]]}
        out = func(*args, **kwargs)
        if any(r.alias_info is not None for r in func._schema.returns):
            return out
        return _each(out, lambda t: t.to(_WIDER.get(t.dtype, t.dtype)))


#: Operators that decompositions call in turn, treated as one.
_HIDDEN = (torch.ops.aten._scaled_dot_product_attention_math.default,)


@cache
def _hidden() -> Mapping[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    known = get_decompositions([
        aten._scaled_dot_product_flash_attention_for_cpu, aten._softmax_backward_data, aten._log_softmax_backward_data,
        aten.native_layer_norm_backward, aten.native_group_norm_backward,
    ])  # fmt: skip
    attention_backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    return {**known, attention_backward: _attention_backward, aten.gelu.default: _gelu}


def _attention_backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logsumexp: torch.Tensor, dropout_p: float, is_causal: bool, *, attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Torch has none: of shares times the difference of a product and its sum of a row, little may remain."""
    groups = query.shape[1] // key.shape[1]
    keys, values = (t.repeat_interleave(groups, 1) for t in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ keys.mT * scale
    if is_causal:
        above = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(above, -math.inf)
    if attn_mask is not None:
        hides = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if hides else scores + attn_mask
    # the decomposed forward leaves no logarithms of sums; a row that sees nothing has no shares
    shares = torch.softmax(scores, -1).nan_to_num(0.0)
    to_scores = shares * (grad @ values.mT - (grad * out).sum(-1, keepdim=True)) * scale
    to_key, to_value = (_of_groups(t, groups) for t in (to_scores.mT @ query, shares.mT @ grad))
    return to_scores @ keys, to_key, to_value


def _of_groups(x: torch.Tensor, groups: int) -> torch.Tensor:
    return x.reshape(x.shape[0], x.shape[1] // groups, groups, *x.shape[2:]).sum(2)


def _is_whole(value: Any) -> bool:
    """Return whether a tensor holds only whole numbers, in any dtype."""
    if not isinstance(value, torch.Tensor):
        return False
    if not value.is_floating_point():
        return value.dtype in _WHOLE
    # torch 2.11 does not round float8.
    wide = value.float() if value.element_size() == 1 else value
    return bool((wide == wide.round()).all())


def _each(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value) if is_inexact(value) else value
    if isinstance(value, (tuple, list)):
        return type(value)(_each(v, change) for v in value)
    return value
