"""Guards: the calls for which a kernel was verified, by dtypes, devices, shapes, strides, alignment, numbers and
values."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import torch

Extent = Any


@dataclass(frozen=True)
class Parameter:
    """One argument: a tensor's dtype and shape (numbers, or expressions over Dims), or a number's kind."""

    name: str
    kind: str
    dtype: str
    shape: tuple[Extent, ...] = ()
    default: Any = None

    @property
    def is_tensor(self) -> bool:
        return self.kind != "scalar"


@dataclass(frozen=True)
class Refusal:
    """The reason why a kernel does not accept a call; ``key`` is its kind, so that each is reported once."""

    key: str
    reason: str


class _FormulaSize(NamedTuple):
    """A size that is a formula of Dims, such as ``N + 1``: of which argument, and in which dimension."""

    argument: int
    dim: int
    formula: str


@dataclass(frozen=True)
class ShapeClass:
    """One verified kernel, and the calls that it accepts."""

    folder: str
    entry_file: str
    entry: str
    dsl: str
    device: str
    parameters: tuple[Parameter, ...]
    #: Dim -> smallest and largest verified size
    dims: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: "any", "rows" (the last dimension is contiguous) or "contiguous"
    layout: str = "contiguous"
    expanded: bool = False
    #: may two arguments share memory?
    shared: bool = True
    #: alignment of inputs in bytes
    alignment: int = 1
    #: numbers that must have their verified values
    only: Mapping[str, Any] = field(default_factory=dict)
    #: argument -> domain of its values, a word and its arguments: index N, unit, prob, positive, nonnegative, sorted,
    #: range a b
    domain: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: argument -> least and greatest value for which the kernel is right; None without a bound
    intervals: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    #: argument -> smallest nonzero magnitude for which the kernel is right
    magnitudes: Mapping[str, float] = field(default_factory=dict)
    #: arguments in which a NaN gives a wrong result
    not_nan: Sequence[str] = ()
    #: may its launches be replayed from C?
    repeatable: bool = False
    interpreted: bool = False
    #: trust, figures and the source's hash, as text
    verified: str = ""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> ShapeClass:
        parameters = tuple(Parameter(**{**p, "shape": tuple(p.get("shape", ()))}) for p in facts["parameters"])
        dims = {name: (low, high) for name, (low, high) in facts.get("dims", {}).items()}
        return cls(**{**facts, "parameters": parameters, "dims": dims})

    def refuses(self, args: Sequence[Any]) -> Refusal | None:
        """Return the first reason against a call, without reading values; None if there is none."""
        sizes: dict[str, int] = {}
        for parameter, value in zip(self.parameters, args, strict=True):
            if not parameter.is_tensor:
                if parameter.name in self.only and value != self.only[parameter.name]:
                    return Refusal(
                        f"{parameter.name}: number", f"{parameter.name} is {value}, not {self.only[parameter.name]}"
                    )
                continue
            refusal = self._refuses_tensor(parameter, value, sizes)
            if refusal is not None:
                return refusal
        self._solve(args, sizes)
        for name, size in sizes.items():
            low, high = self.dims.get(name, (size, size))
            if not low <= size <= high:
                return Refusal(f"{name}: {name} dim", f"{name} is {size}, outside {low} to {high}")
        for parameter, value in zip(self.parameters, args, strict=True):
            for size, extent in zip(value.shape, parameter.shape, strict=True) if parameter.is_tensor else ():
                if isinstance(extent, str) and value_of(extent, sizes) not in (None, size):
                    return Refusal(f"{parameter.name}: shape", f"{parameter.name} has {size} where {extent} is meant")
        return None

    def _refuses_tensor(self, parameter: Parameter, value: torch.Tensor, sizes: dict[str, int]) -> Refusal | None:
        """Return a reason against a tensor by itself; ``sizes`` gets the Dims of its shape."""
        name = parameter.name
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is of type {type(value).__name__}, where a tensor is meant")
        if value.device.type != self.device:
            return Refusal(f"{name}: device", f"{name} is on {value.device}, not on {self.device}")
        refusal = self._refuses_form(parameter, value, sizes)
        if refusal is not None or not value.numel():
            return refusal
        reason = "" if value.is_contiguous() else self._strides_reason(name, value)
        if reason:
            return Refusal(f"{name}: strides", reason)
        if value.data_ptr() % self.alignment:
            reason = f"{name} does not begin at a multiple of {self.alignment} bytes"
            return Refusal(f"{name}: alignment", reason)
        return None

    def _strides_reason(self, name: str, value: torch.Tensor) -> str:
        """Return the reason against the strides of a tensor that is not contiguous; "" if there is none."""
        if self.layout == "contiguous":
            return f"{name} is not contiguous"
        if self.layout == "rows" and value.dim() and value.stride(-1) != 1 and value.shape[-1] > 1:
            return f"the rows of {name} are not contiguous"
        if not self.expanded and any(s == 0 and n > 1 for s, n in zip(value.stride(), value.shape, strict=True)):
            return f"{name} is expanded"
        return ""

    def has_form(self, args: Sequence[Any]) -> bool:
        """Are a call's tensors of the task's dtypes and shapes, at any sizes of its Dims?"""
        sizes: dict[str, int] = {}
        tensors = [(p, a) for p, a in zip(self.parameters, args, strict=True) if p.is_tensor]
        if any(self._refuses_form(p, a, sizes) for p, a in tensors):
            return False
        self._solve(args, sizes)
        return all(value_of(e, sizes) in (None, n) for p, a in tensors for n, e in zip(a.shape, p.shape, strict=True))

    @staticmethod
    def _refuses_form(parameter: Parameter, value: torch.Tensor, sizes: dict[str, int]) -> Refusal | None:
        """Return a reason against a tensor's dtype or shape."""
        name = parameter.name
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype != parameter.dtype:
            return Refusal(f"{name}: dtype", f"{name} has dtype {dtype}, not {parameter.dtype}")
        if value.dim() != len(parameter.shape):
            return _other_shape(parameter, value)
        for size, extent in zip(value.shape, parameter.shape, strict=True):
            if isinstance(extent, int) and size != extent:
                return _other_shape(parameter, value)
            if isinstance(extent, str) and extent.isidentifier() and sizes.setdefault(extent, size) != size:
                return Refusal(f"{name}: shape", f"{name} has {size} where {extent} is {sizes[extent]}")
        return None

    def refuses_shared(self, args: Sequence[Any]) -> Refusal | None:
        """Return a reason if two arguments share memory and must not; strides alone do not show this."""
        if self.shared:
            return None
        tensors = [(p.name, a) for p, a in zip(self.parameters, args, strict=True) if p.is_tensor and a.numel()]
        memory = {name: _memory(tensor) for name, tensor in tensors}
        for one, other in combinations(memory, 2):
            if memory[one].start < memory[other].stop and memory[other].start < memory[one].stop:
                return Refusal(f"{other}: shared", f"{one} and {other} share memory")
        return None

    def refuses_values(self, args: Sequence[Any]) -> Refusal | None:
        """Return a reason for the first argument with values outside the verified ones; this waits for a device."""
        sizes = self.sizes(args)
        for parameter, value in zip(self.parameters, args, strict=True):
            if not parameter.is_tensor or not value.numel():
                continue
            domain = self.domain.get(parameter.name)
            if domain and not _inside(value, domain, sizes):
                return Refusal(
                    f"{parameter.name}: values", f"values of {parameter.name} are outside {_domain_text(domain)}"
                )
            low, high = self.intervals.get(parameter.name, (None, None))
            if not _between(value, low, high):
                ends = ("-inf" if low is None else f"{low:g}", "inf" if high is None else f"{high:g}")
                shown = " to ".join(ends)
                return Refusal(f"{parameter.name}: values", f"values of {parameter.name} are outside {shown}")
            least = self.magnitudes.get(parameter.name)
            if least is not None and bool(((value != 0) & (value.abs() < least)).any()):
                reason = f"values of {parameter.name} lie between 0 and {least:g}"
                return Refusal(f"{parameter.name}: values", reason)
            if parameter.name in self.not_nan and bool(value.isnan().any()):
                return Refusal(f"{parameter.name}: values", f"{parameter.name} has a NaN")
        return None

    @property
    def limits_values(self) -> bool:
        """Do the guards depend on values of tensors?"""
        return bool(self.domain or self.intervals or self.magnitudes or self.not_nan)

    def sizes(self, args: Sequence[Any]) -> dict[str, Any]:
        """Return the Dims' sizes, each from the first shape with its name, or with it as the only unknown of a sum."""
        sizes: dict[str, Any] = {}
        for parameter, value in zip(self.parameters, args, strict=True):
            if parameter.is_tensor:
                for size, extent in zip(value.shape, parameter.shape, strict=False):
                    if isinstance(extent, str) and extent.isidentifier():
                        sizes.setdefault(extent, size)
        self._solve(args, sizes)
        return sizes

    @cached_property
    def _sums(self) -> tuple[_FormulaSize, ...]:
        """Return the sizes that are formulas of Dims."""
        return tuple(
            _FormulaSize(at, dim, extent)
            for at, parameter in enumerate(self.parameters)
            if parameter.is_tensor
            for dim, extent in enumerate(parameter.shape)
            if isinstance(extent, str) and not extent.isidentifier()
        )

    def _solve(self, args: Sequence[Any], sizes: dict[str, Any]) -> None:
        """Add to ``sizes`` the Dims that are the only unknown of a formula."""
        # a solved size may leave another formula with one unknown
        for _ in self._sums:
            for size in self._sums:
                shape = args[size.argument].shape
                if size.dim < len(shape):
                    sizes.update(_solved(size.formula, shape[size.dim], sizes))

    @property
    def breadth(self) -> float:
        """Return the number of shapes that it accepts; narrower classes are tried first."""
        count = 1.0
        for low, high in self.dims.values():
            count *= high - low + 1
        return count


def _other_shape(parameter: Parameter, value: torch.Tensor) -> Refusal:
    expected = f"[{', '.join(map(str, parameter.shape))}]"
    reason = f"{parameter.name} has shape {list(value.shape)}, not {expected}"
    return Refusal(f"{parameter.name}: shape", reason)


def _memory(x: torch.Tensor) -> range:
    """Return the addresses of its bytes, from the first to the last."""
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return range(x.data_ptr(), x.data_ptr() + span * x.element_size())


def _between(x: torch.Tensor, low: float | None, high: float | None) -> bool:
    """Are all values from ``low`` to ``high``? A NaN is not."""
    if low is None and high is None:
        return True
    least, greatest = (float(v) for v in torch.aminmax(x.float() if x.is_floating_point() else x))
    return (least >= low if low is not None else least == least) and (high is None or greatest <= high)


def _domain_text(domain: Sequence[str]) -> str:
    word, *arguments = domain
    return f"{word}({', '.join(arguments)})" if arguments else word


def _inside(x: torch.Tensor, domain: Sequence[str], sizes: Mapping[str, Any]) -> bool:
    word, *arguments = domain
    values = [value_of(part, sizes) for part in arguments]
    if word == "sorted":
        return x.dim() == 0 or bool((x.diff(dim=-1) >= 0).all())
    low, high = (float(v) for v in torch.aminmax(x.float() if x.is_floating_point() else x))
    if word == "index":
        return values[0] is not None and low >= 0 and high < values[0]
    if word == "range":
        return values[0] is not None and values[1] is not None and values[0] <= low and high <= values[1]
    limits = {
        "unit": low >= 0 and high <= 1,
        "prob": low >= 0 and high <= 1,
        "positive": low > 0,
        "nonnegative": low >= 0,
    }
    return limits.get(word, True)


def value_of(expression: Extent, sizes: Mapping[str, Any]) -> Any:
    """Return an extent or a bound: a number, or ``+ - * // %`` over sizes; None if a size is unknown."""
    if not isinstance(expression, str):
        return expression
    try:
        return _value(_parsed(expression), sizes)
    except KeyError:
        return None


def _solved(expression: str, size: Any, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the only unknown of sums and products that equal ``size``, rounded down; empty unless there is exactly
    one."""
    nodes = list(ast.walk(_parsed(expression)))
    unknown = {n.id for n in nodes if isinstance(n, ast.Name)} - sizes.keys()
    if len(unknown) != 1 or any(isinstance(n, (ast.FloorDiv, ast.Mod)) for n in nodes):
        return {}
    (name,) = unknown
    base, next_one, third = (value_of(expression, {**sizes, name: n}) for n in range(3))
    step = next_one - base
    return {name: (size - base) // step} if step and third - next_one == step else {}


def _value(node: ast.expr, sizes: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, sizes)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, sizes), _value(node.right, sizes)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.FloorDiv():
                return left // right
            case ast.Mod():
                return left % right
    raise ValueError(f"not an extent: {ast.unparse(node)}")


@lru_cache(maxsize=256)
def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


__all__ = ["Parameter", "Refusal", "ShapeClass", "value_of"]
