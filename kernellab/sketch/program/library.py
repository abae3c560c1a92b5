"""The table of library operations: one entry for each call of the framework that a sketch may make.

``y = library.mm(x, w)`` is the only statement of its sketch and works on whole tensors. Its meaning is the entry's
torch function: the interpreter and the gate call it (in float64 where they compute in float64), a lowered source calls
it in the tensors' dtype. To add an operation, add one entry: the torch function, its operands and settings, the rule
that gives its result's shape, its FLOPs, and a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Union

from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import DType, Kernel, LibraryCall, SettingValue

Shape = Sequence[IntExpr]
Sizes = Sequence[int]
Settings = Mapping[str, SettingValue]

#: the prefix of a library operation: ``library.mm``
PREFIX = "library."
#: the operation for all other operations of torch, by name
ATEN = "aten"
MOST_OPERANDS = 10
#: dtypes that the framework multiplies on a CPU and on a GPU
DTYPES = (DType.F64, DType.F32, DType.F16, DType.BF16)
#: precisions of the framework's products, which torch's flags and so a task's PRECISION set; only kernels split
#: products
PRECISIONS = ("ieee", "tf32")


class Misfit(Exception):
    """An operation does not accept its operands or settings: what is wrong, and the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


class SettingKind(str, Enum):
    """Kinds of a setting's value."""

    #: whole numbers, one for each spatial dimension; a single number applies to all
    INTS = "ints"
    INT = "int"
    FLAG = "flag"
    NUMBER = "number"
    #: a call of ATen: kernellab.sketch.program.aten
    CALL = "call"


@dataclass(frozen=True)
class Setting:
    """A keyword of an operation, with torch's name. ``default`` None: torch chooses."""

    name: str
    kind: SettingKind
    default: Union[int, bool, str, None]
    least: int = 0


@dataclass(frozen=True)
class LibraryOp:
    """One operation. ``shape`` raises Misfit; ``flops`` takes the sizes of the operands and of the result, and the
    settings."""

    name: str
    #: a function of torch by its dotted name: the operands by position, then the settings by keyword
    torch: str
    #: names of the operands; an optional one ends with "?"
    operands: tuple[str, ...]
    settings: tuple[Setting, ...]
    shape: Callable[[Sequence[Shape], Settings], tuple[IntExpr, ...]]
    flops: Callable[[Sequence[Sizes], Sizes, Settings], float]
    doc: str
    #: ATen operations, by name without the overload, with this meaning and these operands
    aten: tuple[str, ...] = ()
    #: the result's memory may have another order than row-major
    strided: bool = False
    #: operands and result may have any dtype, and the result has the declared shape; running the call checks both
    free: bool = False

    @property
    def least(self) -> int:
        """The smallest number of operands."""
        return sum(not o.endswith("?") for o in self.operands)

    @property
    def signature(self) -> str:
        """The operation's signature."""
        names = [o.replace("?", "=?") for o in self.operands]
        return f"y = {PREFIX}{self.name}({', '.join([*names, *(f'{s.name}=?' for s in self.settings)])})"


# -- shapes ------------------------------------------------------------------------------------------------------------


def _joined(a: IntExpr, b: IntExpr, what: str, remedy: str) -> None:
    if not same_extent(a, b):
        raise Misfit(what.format(a=affine.simplify(a), b=affine.simplify(b)), remedy)


def _of_rank(shape: Shape, name: str, ranks: Sequence[int], form: str) -> None:
    if len(shape) not in ranks:
        allowed = " or ".join(map(str, ranks))
        raise Misfit(
            f"'{name}' has {len(shape)} dimensions and {allowed} are wanted",
            f"Declare it as {form}: a view of as many elements is free.",
        )


_TURN = "Turn a factor with transpose(...), or declare it in another shape of as many elements."


def _mm(shapes: Sequence[Shape], settings: Settings) -> tuple[IntExpr, ...]:
    a, b = shapes
    _of_rank(a, "a", (2,), "[rows, summed]")
    _of_rank(b, "b", (2,), "[summed, columns]")
    _joined(a[1], b[0], "'a' has {a} columns and 'b' has {b} rows", _TURN)
    return a[0], b[1]


def _bmm(shapes: Sequence[Shape], settings: Settings) -> tuple[IntExpr, ...]:
    a, b = shapes
    _of_rank(a, "a", (3,), "[batch, rows, summed]")
    _of_rank(b, "b", (3,), "[batch, summed, columns]")
    _joined(a[0], b[0], "'a' is a batch of {a} and 'b' of {b}", "Give both one batch.")
    _joined(a[2], b[1], "'a' has {a} columns and 'b' has {b} rows", _TURN)
    return a[0], a[1], b[2]


def _addmm(shapes: Sequence[Shape], settings: Settings) -> tuple[IntExpr, ...]:
    product = _mm(shapes[1:], settings)
    _of_rank(shapes[0], "bias", (1, 2), "[columns] or [rows, columns]")
    for mine, theirs in zip(reversed(shapes[0]), reversed(product), strict=False):
        if not mine.is_one:
            _joined(mine, theirs, "'bias' has an extent of {a} where the product has {b}", "Give the bias [columns].")
    return product


def _linear(shapes: Sequence[Shape], settings: Settings) -> tuple[IntExpr, ...]:
    x, w = shapes[:2]
    if not x:
        raise Misfit("'x' has no dimension", "Declare it as [..., features].")
    _of_rank(w, "w", (2,), "[features out, features in]")
    _joined(x[-1], w[1], "'x' has {a} features and 'w' takes {b}", "Declare w as [features out, features in].")
    _bias(shapes, w[0])
    return (*x[:-1], w[0])


def _bias(shapes: Sequence[Shape], features: IntExpr) -> None:
    if len(shapes) > 2:
        _of_rank(shapes[2], "bias", (1,), "[features out]")
        _joined(shapes[2][0], features, "'bias' has {a} elements and {b} are wanted", "Give one for each feature out.")


def _conv(rank: int, transposed: bool) -> Callable[[Sequence[Shape], Settings], tuple[IntExpr, ...]]:
    def shape(shapes: Sequence[Shape], settings: Settings) -> tuple[IntExpr, ...]:
        x, w = shapes[:2]
        space = ", ".join(("depth", "height", "width")[3 - rank :])
        _of_rank(x, "x", (rank + 2,), f"[batch, channels, {space}]")
        pair = "channels in, channels out over groups" if transposed else "channels out, channels in over groups"
        _of_rank(w, "w", (rank + 2,), f"[{pair}, taps]")
        groups = num(_whole(settings, "groups"))
        channels_in = w[0] if transposed else int_op("*", w[1], groups)
        _joined(x[1], channels_in, "'x' has {a} channels and 'w' takes {b}", f"Declare w as [{pair}, taps].")
        channels_out = int_op("*", w[1], groups) if transposed else w[0]
        _bias(shapes, channels_out)
        stride, padding, dilation = (_each(settings, n, rank) for n in ("stride", "padding", "dilation"))
        more = _each(settings, "output_padding", rank) if transposed else (0,) * rank
        for m, s, d in zip(more, stride, dilation, strict=True):
            if transposed and m >= max(s, d):
                raise Misfit(
                    f"An output_padding of {m} is not below stride or dilation", "Give less, as torch wants it."
                )
        rule = _widened if transposed else _slid
        places = (
            rule(x[2 + i], w[2 + i], stride[i], padding[i], dilation[i], more[i]) for i in range(rank)
        )  # fmt: skip
        return (x[0], affine.simplify(channels_out), *places)

    return shape


def _slid(size: IntExpr, taps: IntExpr, stride: int, padding: int, dilation: int, more: int) -> IntExpr:
    """Return floor((n + 2 padding - dilation (taps - 1) - 1) / stride) + 1."""
    reach = int_op("*", num(dilation), int_op("-", taps, num(1)))
    free = int_op("-", int_op("+", size, num(2 * padding - 1)), reach)
    return affine.simplify(int_op("+", int_op("//", affine.simplify(free), num(stride)), num(1)))


def _widened(size: IntExpr, taps: IntExpr, stride: int, padding: int, dilation: int, more: int) -> IntExpr:
    """Return (n - 1) stride - 2 padding + dilation (taps - 1) + more + 1."""
    reach = int_op("*", num(dilation), int_op("-", taps, num(1)))
    first = int_op("*", int_op("-", size, num(1)), num(stride))
    return affine.simplify(int_op("+", int_op("+", first, reach), num(more + 1 - 2 * padding)))


def _sdpa(shapes: Sequence[Shape], settings: Settings) -> tuple[IntExpr, ...]:
    q, k, v = shapes
    for name, shape in zip("qkv", shapes, strict=True):
        _of_rank(shape, name, (3, 4), "[batch, heads, rows, width]")
    if not len(q) == len(k) == len(v):
        raise Misfit("'q', 'k' and 'v' differ in their number of dimensions", "Declare all as [batch, heads, ...].")
    for i in range(len(q) - 2):
        for name, other in (("k", k), ("v", v)):
            _joined(q[i], other[i], f"'q' has {{a}} and '{name}' has {{b}} in dimension {i}", "Give all one batch.")
    _joined(q[-1], k[-1], "'q' has rows of {a} and 'k' of {b}", _TURN)
    _joined(k[-2], v[-2], "'k' has {a} rows and 'v' has {b}", _TURN)
    return (*q[:-1], v[-1])


# -- work --------------------------------------------------------------------------------------------------------------


def _factors(at: int) -> Callable[[Sequence[Sizes], Sizes, Settings], float]:
    """Return two FLOPs for each element of the result and each summed element: the last extent of the operand
    ``at``."""
    return lambda operands, result, settings: 2.0 * prod(result) * operands[at][-1]


def _window(operands: Sequence[Sizes], result: Sizes, settings: Settings) -> float:
    return 2.0 * prod(result) * prod(operands[1][1:])


def _spread(operands: Sequence[Sizes], result: Sizes, settings: Settings) -> float:
    return 2.0 * prod(operands[0]) * prod(operands[1][1:])


def _attention(operands: Sequence[Sizes], result: Sizes, settings: Settings) -> float:
    scores = prod(operands[0][:-1]) * operands[1][-2]
    # two products, and for each score the exponential and the operations around it
    return scores * (2.0 * operands[0][-1] + 2.0 * operands[2][-1] + 25.0) * (0.5 if settings.get("is_causal") else 1.0)


def _declared(shapes: Sequence[Shape], settings: Settings) -> tuple[IntExpr, ...]:
    return ()


def _touched(operands: Sequence[Sizes], result: Sizes, settings: Settings) -> float:
    """Return the FLOPs of an unknown operation: one for each element of its operands and of its result."""
    return float(prod(result) + sum(map(prod, operands)))


# -- the table ---------------------------------------------------------------------------------------------------------

_CONV = (
    Setting("stride", SettingKind.INTS, 1, 1), Setting("padding", SettingKind.INTS, 0),
    Setting("dilation", SettingKind.INTS, 1, 1), Setting("groups", SettingKind.INT, 1, 1),
)  # fmt: skip
_TURNED = (*_CONV[:2], Setting("output_padding", SettingKind.INTS, 0), *_CONV[2:])
_X_W = ("x", "w", "bias?")


def _convolution(rank: int) -> LibraryOp:
    doc = f"A convolution over {rank} dimension{'s' if rank > 1 else ''} in space; w is [out, in over groups, taps]."
    return LibraryOp(
        f"conv{rank}d", f"torch.conv{rank}d", _X_W, _CONV, _conv(rank, False), _window, doc, strided=True
    )  # fmt: skip


def _transposed(rank: int) -> LibraryOp:
    where = f"over {rank} dimension{'s' if rank > 1 else ''} in space"
    doc = f"A transposed convolution {where}; w is [in, out over groups, taps]."
    return LibraryOp(
        f"conv_transpose{rank}d", f"torch.conv_transpose{rank}d", _X_W, _TURNED, _conv(rank, True), _spread, doc,
        strided=True,
    )  # fmt: skip


# ruff: noqa: E501 - one entry a line reads as a table
_TABLE = (
    LibraryOp("mm", "torch.mm", ("a", "b"), (), _mm, _factors(0), "The product of two matrices, [rows, summed] and [summed, columns].", ("mm",)),
    LibraryOp("bmm", "torch.bmm", ("a", "b"), (), _bmm, _factors(0), "Products of two batches of matrices.", ("bmm",)),
    LibraryOp("addmm", "torch.addmm", ("bias", "a", "b"), (), _addmm, _factors(1), "A product of two matrices, plus a bias that broadcasts.", ("addmm",)),
    LibraryOp("linear", "torch.nn.functional.linear", _X_W, (), _linear, _factors(0), "x times the transpose of w, [features out, features in], plus a bias.", ("linear",)),
    *map(_convolution, (1, 2, 3)),
    *map(_transposed, (1, 2, 3)),
    LibraryOp(
        "sdpa", "torch.nn.functional.scaled_dot_product_attention", ("q", "k", "v"),
        (Setting("is_causal", SettingKind.FLAG, False), Setting("scale", SettingKind.NUMBER, None)),
        _sdpa, _attention, "Attention: softmax(q k^T scale) v over the last two dimensions; scale is 1/sqrt(width) unless given.",
        ("scaled_dot_product_attention",), strided=True,
    ),
    LibraryOp(
        ATEN, "torch.ops.aten", ("x0", *(f"x{n}?" for n in range(1, MOST_OPERANDS))), (Setting("call", SettingKind.CALL, None),),
        _declared, _touched, 'An operation that has no rule, by its name in torch: call="kthvalue.default(x0, 3, -1)[0]".', strided=True, free=True,
    ),
)  # fmt: skip

LIBRARY: Mapping[str, LibraryOp] = {op.name: op for op in _TABLE}


# -- reading a call ----------------------------------------------------------------------------------------------------


def library_call(kernel: Kernel) -> LibraryCall | None:
    """Return the call that ``kernel`` consists of, else None."""
    return next((s for s in kernel.body if isinstance(s, LibraryCall)), None)


def is_library(kernel: Kernel) -> bool:
    """Is the sketch a call of the framework's library?"""
    return library_call(kernel) is not None


#: sizes at which extents are compared if affine arithmetic does not decide
_TRIED = (17, 64, 101, 250, 1024)


def same_extent(a: IntExpr, b: IntExpr) -> bool:
    """Are two extents equal, by affine arithmetic or at every size that is tried? (Running the call checks this
    too.)"""
    if affine.equal(a, b):
        return True
    names = sorted(a.names() | b.names())
    if not names:
        return False
    for tried in _TRIED:
        env = {name: tried + 3 * n for n, name in enumerate(names)}
        try:
            if a.evaluate(env) != b.evaluate(env):
                return False
        except ZeroDivisionError:
            return False
    return True


def _whole(settings: Settings, name: str) -> int:
    value = settings[name]
    assert isinstance(value, int)
    return value


def _each(settings: Settings, name: str, rank: int) -> tuple[int, ...]:
    """Return a setting's number for each spatial dimension."""
    value = settings[name]
    if isinstance(value, tuple):
        if len(value) != rank:
            raise Misfit(
                f"'{name}' has {len(value)} numbers for {rank} dimensions", "Give one for each, or one for all."
            )
        return value
    assert isinstance(value, int)
    return (value,) * rank
