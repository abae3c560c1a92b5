"""Complex numbers that a reference creates or views, traced as pairs of real tensors: a sketch has no complex tensors.

``torch.polar``, ``torch.complex`` and ``torch.view_as_complex`` return a :class:`Pair`, and operations on it act on its
parts. A function that is not known here receives a complex tensor of torch.
"""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: methods that move elements or sum them: the same for both parts
_SAME = frozenset((
    "reshape", "view", "flatten", "unflatten", "unsqueeze", "squeeze", "transpose", "swapaxes", "permute", "movedim",
    "expand", "broadcast_to", "repeat", "repeat_interleave", "tile", "flip", "roll", "contiguous", "clone", "detach",
    "sum", "mean", "cumsum", "t", "select", "narrow", "index_select", "diagonal", "tril", "triu", "split", "chunk",
    "unbind", "getitem",
))  # fmt: skip
#: attributes that are the same for a complex tensor and its parts
_TOLD = frozenset(("shape", "device", "ndim", "dim", "size", "numel", "is_contiguous", "layout", "requires_grad"))


class Pair:
    """The real and the imaginary part of a complex tensor; torch's functions dispatch to it."""

    def __init__(self, real: Any, imag: Any) -> None:
        self.real, self.imag = real, imag

    @property
    def dtype(self) -> Any:
        return self.real.dtype.to_complex()

    @property
    def whole(self) -> Tensor:
        """The pair as a complex tensor of torch."""
        return torch.ops.aten.complex(self.real, self.imag)

    def __getattr__(self, name: str) -> Any:
        if name in _TOLD:
            return getattr(self.real, name)
        if name in _FUNCTIONS or name in _SAME:
            return lambda *args, **keywords: _called(name, None, (self, *args), keywords)
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.whole, name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _called(getattr(func, "__name__", "").strip("_"), func, args, kwargs or {})

    def __len__(self) -> int:
        return len(self.real)

    def __getitem__(self, key: Any) -> Pair:
        return Pair(self.real[key], self.imag[key])

    def __add__(self, other: Any) -> Any:
        return _add(self, other)

    def __sub__(self, other: Any) -> Any:
        return _sub(self, other)

    def __rsub__(self, other: Any) -> Any:
        return _sub(other, self)

    def __mul__(self, other: Any) -> Any:
        return _mul(self, other)

    def __truediv__(self, other: Any) -> Any:
        return _div(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _div(other, self)

    def __matmul__(self, other: Any) -> Any:
        return _matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _matmul(other, self)

    def __neg__(self) -> Any:
        return Pair(-self.real, -self.imag)

    __radd__, __rmul__ = __add__, __mul__


def _called(name: str, func: Any, args: Any, keywords: dict[str, Any]) -> Any:
    if name in _SAME:
        return _same(name, args, keywords)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*args, **keywords)
    if name in ("cat", "concat", "stack"):
        return _joined(func, *args, **keywords)
    if func is None:
        return getattr(args[0].whole, name)(*args[1:], **keywords)
    return func(*_whole(args), **{k: v.whole if isinstance(v, Pair) else v for k, v in keywords.items()})


def _same(name: str, args: Any, keywords: dict[str, Any]) -> Any:
    method = "__getitem__" if name == "getitem" else name
    parts = [getattr(part, method)(*args[1:], **keywords) for part in (args[0].real, args[0].imag)]
    return tuple(map(Pair, *parts)) if isinstance(parts[0], (tuple, list)) else Pair(*parts)


def _joined(func: Any, values: Any, *args: Any, **keywords: Any) -> Pair:
    pairs = [_pair(v) for v in values]
    parts = ([p.real for p in pairs], [p.imag for p in pairs])
    return Pair(*(func(part, *args, **keywords) for part in parts))


def _whole(value: Any) -> Any:
    if isinstance(value, Pair):
        return value.whole
    return type(value)(map(_whole, value)) if type(value) in (tuple, list) else value


def _pair(value: Any) -> Pair:
    """Return ``value`` as a pair; the imaginary part of a real number is 0."""
    if isinstance(value, Pair):
        return value
    if isinstance(value, torch.Tensor) and value.is_complex():
        parts = torch.view_as_real(value)
        return Pair(parts[..., 0], parts[..., 1])
    if isinstance(value, complex):
        return Pair(value.real, value.imag)
    return Pair(value, torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0.0)


def _is_real(value: Any) -> bool:
    return not isinstance(value, (Pair, complex)) and not (hasattr(value, "is_complex") and value.is_complex())


def _add(a: Any, b: Any, alpha: float = 1) -> Pair:
    x, y = _pair(a), _pair(b)
    y = y if alpha == 1 else Pair(y.real * alpha, y.imag * alpha)
    return Pair(x.real + y.real, x.imag + y.imag)


def _sub(a: Any, b: Any, alpha: float = 1) -> Pair:
    return _add(a, b, -alpha)


def _mul(a: Any, b: Any) -> Pair:
    if _is_real(a) or _is_real(b):
        pair, real = (b, a) if _is_real(a) else (a, b)
        pair = _pair(pair)
        return Pair(pair.real * real, pair.imag * real)
    x, y = _pair(a), _pair(b)
    return Pair(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


def _div(a: Any, b: Any) -> Pair:
    if _is_real(b):
        pair = _pair(a)
        return Pair(pair.real / b, pair.imag / b)
    y = _pair(b)
    numerator, size = _mul(a, Pair(y.real, -y.imag)), y.real * y.real + y.imag * y.imag
    return Pair(numerator.real / size, numerator.imag / size)


def _matmul(a: Any, b: Any) -> Pair:
    x, y = _pair(a), _pair(b)
    return Pair(x.real @ y.real - x.imag @ y.imag, x.real @ y.imag + x.imag @ y.real)


def _outer(a: Any, b: Any) -> Pair:
    return _mul(_pair(a)[:, None], _pair(b)[None])


def _einsum(equation: str, *operands: Any) -> Any:
    """Compute an einsum of two operands; more are multiplied by torch's complex numbers."""
    factors = operands[0] if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    if len(factors) == 1:
        z = _pair(factors[0])
        return Pair(torch.einsum(equation, z.real), torch.einsum(equation, z.imag))
    if len(factors) != 2:
        return torch.einsum(equation, *map(_whole, factors))
    if any(map(_is_real, factors)):
        (a, b), (c, d) = (((v, v) if _is_real(v) else (_pair(v).real, _pair(v).imag)) for v in factors)
        return Pair(torch.einsum(equation, a, c), torch.einsum(equation, b, d))
    x, y = map(_pair, factors)

    def of(a: Any, b: Any) -> Any:
        return torch.einsum(equation, a, b)

    return Pair(of(x.real, y.real) - of(x.imag, y.imag), of(x.real, y.imag) + of(x.imag, y.real))


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    product = _matmul(x, _pair(weight).t())
    return product if bias is None else _add(product, bias)


def _where(condition: Any, input: Any, other: Any) -> Pair:
    if not (isinstance(condition, Tensor) and condition.dtype == torch.bool):  # as a method
        condition, input = input, condition
    x, y = _pair(input), _pair(other)
    return Pair(torch.where(condition, x.real, y.real), torch.where(condition, x.imag, y.imag))


def _full_like(z: Pair, fill_value: Any, **keywords: Any) -> Any:
    if (keywords.get("dtype") or z.dtype) != z.dtype:
        return torch.full_like(z.real, fill_value, **keywords)
    filled = _pair(fill_value)
    return Pair(torch.full_like(z.real, filled.real), torch.full_like(z.real, filled.imag))


def _abs(z: Pair) -> Tensor:
    return torch.hypot(z.real, z.imag)


def _exp(z: Pair) -> Pair:
    return polar(z.real.exp(), z.imag)


def _to(z: Pair, *args: Any, **keywords: Any) -> Any:
    dtypes = [a for a in (*args, *keywords.values()) if type(a).__name__ == "dtype"]
    if not dtypes:
        return z
    kind = dtypes[0]
    return Pair(z.real.to(kind.to_real()), z.imag.to(kind.to_real())) if kind.is_complex else z.real.to(kind)


def polar(size: Tensor, angle: Tensor) -> Pair:
    """Return the numbers with these magnitudes and angles."""
    return Pair(size * torch.cos(angle), size * torch.sin(angle))


def complex_of(real: Tensor, imag: Tensor) -> Pair:
    """Return the numbers with these parts."""
    return Pair(real, imag)


def view_as_complex(x: Tensor) -> Pair:
    """Return the numbers whose parts are adjacent in the last dimension."""
    return Pair(x[..., 0], x[..., 1])


def view_as_real(z: Pair) -> Tensor:
    """Return the parts, adjacent in the last dimension."""
    return torch.stack((z.real, z.imag), -1)


def _atan2(z: Pair) -> Tensor:
    return torch.atan2(z.imag, z.real)


#: function of torch, or method -> the same for pairs
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _add, "radd": _add, "sub": _sub, "subtract": _sub, "rsub": lambda a, b: _sub(b, a),
    "mul": _mul, "multiply": _mul, "rmul": _mul, "div": _div, "divide": _div, "true_divide": _div, "truediv": _div,
    "rtruediv": lambda a, b: _div(b, a), "rdiv": lambda a, b: _div(b, a), "matmul": _matmul, "bmm": _matmul,
    "mm": _matmul, "rmatmul": lambda a, b: _matmul(b, a), "neg": lambda z: Pair(-z.real, -z.imag),
    "einsum": _einsum, "outer": _outer, "linear": _linear, "where": _where, "full_like": _full_like,
    "zeros_like": lambda z, **keywords: _full_like(z, 0.0, **keywords),
    "ones_like": lambda z, **keywords: _full_like(z, 1.0, **keywords),
    "square": lambda z: _mul(z, z), "exp": _exp, "abs": _abs, "absolute": _abs, "angle": _atan2,
    "conj": lambda z: Pair(z.real, -z.imag), "conj_physical": lambda z: Pair(z.real, -z.imag),
    "resolve_conj": lambda z: z, "real": lambda z: z.real, "imag": lambda z: z.imag, "is_complex": lambda z: True,
    "view_as_real": view_as_real, "to": _to, "type": _to, "is_floating_point": lambda z: False,
}  # fmt: skip


def _of_complex(name: str) -> Callable[..., Any]:
    """Return the function of that name, applied if a Python number among its operands is complex."""

    def handle(*args: Any, **keywords: Any) -> Any:
        if not any(isinstance(a, complex) for a in args):
            return NotImplemented
        return _FUNCTIONS[name](*args, **keywords)

    return handle


def _to_complex(x: Any, *args: Any, **keywords: Any) -> Any:
    dtypes = [a for a in (*args, *keywords.values()) if type(a).__name__ == "dtype" and a.is_complex]
    if not dtypes or not _is_real(x):
        return NotImplemented
    return _pair(x.to(dtypes[0].to_real()))


#: function of torch -> function that is called instead and returns pairs
PAIRS: dict[str, Callable[..., Any]] = {
    "polar": polar, "complex": complex_of, "view_as_complex": view_as_complex, "to": _to_complex,
    "type": _to_complex, **{
        spelled: _of_complex(name)
        for name in ("add", "radd", "sub", "rsub", "mul", "rmul", "div", "truediv", "rdiv", "rtruediv")
        for spelled in (name, f"__{name}__")
    },
}  # fmt: skip
