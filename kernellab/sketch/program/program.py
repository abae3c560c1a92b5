"""The resolved sketch: typed, with everything implicit in the text made explicit.

``check`` turns a syntax tree into a :class:`Program`; the interpreter, the cost model and every lowering read only
this. What the text leaves implicit is explicit here: dtypes and shapes of every value, casts (``Apply("cast")`` is
inserted wherever an operand is promoted or a write rounds), which assignment declares a tile and which updates one,
which loops are parallel. Broadcasting alone stays NumPy's: arguments of a pointwise ``Apply`` align at the right,
and a dimension that is the literal 1 stretches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from sys import float_info
from typing import Union

from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.syntax.tree import NOWHERE, Span


class DType(str, Enum):
    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"

    @property
    def is_float(self) -> bool:
        return self.value[0] in "f" or self is DType.BF16

    @property
    def bytes(self) -> int:
        return {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2}.get(self.value, 1)

    @property
    def compute(self) -> DType:
        """The dtype of arithmetic: f32 for the narrow floats, else the dtype itself."""
        return DType.F32 if self.is_float and self is not DType.F64 else self

    @property
    def torch_name(self) -> str:
        return _TORCH_NAMES[self]


#: floats of 8 bits, any two of which can be multiplied without a cast
FLOAT8 = frozenset([DType.F8E4M3, DType.F8E5M2])
_TORCH_NAMES = {
    DType.F64: "float64", DType.F32: "float32", DType.F16: "float16", DType.BF16: "bfloat16",
    DType.F8E4M3: "float8_e4m3fn", DType.F8E5M2: "float8_e5m2",
    DType.I64: "int64", DType.I32: "int32", DType.I16: "int16", DType.I8: "int8", DType.U8: "uint8",
    DType.BOOL: "bool",
}  # fmt: skip


# -- declarations ------------------------------------------------------------------------------------------------------


class TensorRole(str, Enum):
    IN = "in"
    OUT = "out"
    INOUT = "inout"
    TEMP = "temp"


@dataclass(frozen=True)
class Tensor:
    """A tensor in global memory; shape in elements, row-major contiguous in its declared (viewed) shape."""

    name: str
    shape: tuple[IntExpr, ...]
    dtype: DType
    role: TensorRole
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Constexpr:
    """A compile-time constant; ``choices`` non-empty makes it tunable; ``value`` None must be supplied."""

    name: str
    value: int | float | None
    choices: tuple[int | float, ...] = ()
    #: used in an extent, a step or an index, and so an integer
    is_extent: bool = False
    span: Span = field(default=NOWHERE, compare=False)

    def unfit(self, value: int | float) -> str:
        """Return why it cannot be ``value``, in a sentence; "" if it can."""
        short = isinstance(value, float) or abs(value) < _DIGITS
        statement = f"{self.name} = {value if short else 'a number of many digits'}"
        if not self.is_extent:
            return "" if isinstance(value, float) or abs(value) <= _LARGEST else f"{statement} is no number of float64."
        if isinstance(value, float) and not value.is_integer():
            return f"{statement} is an extent or an index and not a whole number."
        return "" if abs(value) <= _MOST_EXTENT else f"{statement} is an extent or an index, which has 32 bits."


#: largest value of an extent or index, which has 32 bits in a kernel; of a number; and of one that is written out
_MOST_EXTENT, _LARGEST, _DIGITS = 2**31 - 1, int(float_info.max), 10**20


@dataclass(frozen=True)
class Tile:
    """An on-chip value with a name. ``uid`` is unique in its kernel (sibling blocks may reuse a name)."""

    name: str
    uid: str
    shape: tuple[IntExpr, ...]
    dtype: DType
    hints: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape)


# -- values ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Type:
    """Shape and dtype of a value; rank 0 is a scalar."""

    shape: tuple[IntExpr, ...]
    dtype: DType


@dataclass(frozen=True)
class Const:
    """A literal in the dtype of its context; ``inf``, ``-inf`` and ``nan`` are float values."""

    type: Type
    value: int | float | bool


@dataclass(frozen=True)
class Param:
    """A numeric constexpr (eps) used as a number."""

    type: Type
    name: str


@dataclass(frozen=True)
class Index:
    """An index scalar (symbol, loop variable, integer constexpr, or arithmetic on them) used as a number."""

    type: Type
    expr: IntExpr


@dataclass(frozen=True)
class Read:
    """The value that a tile holds when the statement runs."""

    type: Type
    tile: Tile


@dataclass(frozen=True)
class Apply:
    """An operation of the table (``ops.OPS``) on values.

    ``attrs`` by kind of operation: reductions ``axes: tuple[int, ...]``, ``keepdims: bool``; scans ``axis: int``,
    ``reverse: True`` where they run from the end, and for associative_scan ``combine: str``; ``cast`` takes its
    target from ``type.dtype``; ``transpose`` ``perm: tuple[int, ...]``; ``reshape``/``broadcast``/``full``/``arange``
    take theirs from ``type.shape``
    (``arange`` may have ``start: IntExpr``); ``concat`` ``axis: int``; ``dot`` ``precision: str``;
    ``newaxis`` ``axes: tuple[int, ...]`` (positions of new dimensions in the result). ``gather`` has one index value a
    dimension, and ``tensor: Tensor``, ``pad: float``, ``items`` (the Point or Range that an index was written as).
    """

    type: Type
    op: str
    args: tuple[Value, ...]
    attrs: tuple[tuple[str, object], ...] = ()

    def attr(self, name: str, default: object = None) -> object:
        return dict(self.attrs).get(name, default)


Value = Union[Const, Param, Index, Read, Apply]


# -- places in tensors -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One index: drops the dimension."""

    at: IntExpr


@dataclass(frozen=True)
class Range:
    """``extent`` elements from ``start``, ``step`` apart; ``extent`` is free of loop variables."""

    start: IntExpr
    extent: IntExpr
    step: IntExpr


@dataclass(frozen=True)
class Region:
    """A rectangle of a tensor. Elements outside the tensor (negative indices too) read as pad and write nowhere."""

    tensor: Tensor
    index: tuple[Union[Point, Range], ...]

    @property
    def shape(self) -> tuple[IntExpr, ...]:
        return tuple(i.extent for i in self.index if isinstance(i, Range))


# -- statements --------------------------------------------------------------------------------------------------------


class Touch(str, Enum):
    """What a statement does to a region."""

    READ = "read"
    WRITE = "write"
    ADD = "add"


class Step:
    """The interface of every statement; it excludes the statements inside it, and most parts are empty for most
    statements."""

    @property
    def values(self) -> tuple[Value, ...]:
        """Return the values that it computes."""
        return ()

    @property
    def touches(self) -> tuple[tuple[Region, Touch], ...]:
        """Return the regions that it reads and writes, without elements at computed indices."""
        return ()

    @property
    def bodies(self) -> tuple[tuple[Statement, ...], ...]:
        """Return the blocks inside it, in order."""
        return ()


@dataclass(frozen=True)
class Alloc(Step):
    """A fresh tile each time it is reached; undefined unless ``init_zero``."""

    tile: Tile
    init_zero: bool
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Load(Step):
    """Region -> tile, cast to the tile's dtype. ``declares``: the tile did not exist before."""

    tile: Tile
    region: Region
    pad: float
    declares: bool
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def touches(self) -> tuple[tuple[Region, Touch], ...]:
        return ((self.region, Touch.READ),)


@dataclass(frozen=True)
class Store(Step):
    """Value -> region, cast to the tensor's dtype; the value's shape broadcasts to the region's."""

    region: Region
    value: Value
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.value,)

    @property
    def touches(self) -> tuple[tuple[Region, Touch], ...]:
        return ((self.region, Touch.WRITE),)


@dataclass(frozen=True)
class AtomicAdd(Step):
    region: Region
    value: Value
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.value,)

    @property
    def touches(self) -> tuple[tuple[Region, Touch], ...]:
        return ((self.region, Touch.ADD),)


@dataclass(frozen=True)
class Scatter(Step):
    """Value -> the elements that ``index`` names (one value a dimension, broadcasting to ``shape``).

    ``items`` has the slice or scalar that an index was written as, None for a tile. ``add``: accumulate. ``unique``:
    the author states that no element is named twice, which the interpreter checks. ``whole``: each element is named,
    which the gate checks."""

    tensor: Tensor
    index: tuple[Value, ...]
    items: tuple[Union[Point, Range, None], ...]
    shape: tuple[IntExpr, ...]
    value: Value
    add: bool
    unique: bool
    whole: bool
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.value, *self.index)


@dataclass(frozen=True)
class Assign(Step):
    """``tile = value`` (value has the tile's dtype; a scalar or smaller value broadcasts to its shape)."""

    tile: Tile
    value: Value
    declares: bool
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.value,)


@dataclass(frozen=True)
class Gemm(Step):
    """``acc += a @ b`` over the last two dimensions; ``acc`` is f32 for narrow floats, i32 for i8, f64 for f64."""

    acc: Tile
    a: Value
    b: Value
    precision: str = "ieee"
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.a, self.b)


@dataclass(frozen=True)
class MultiAssign(Step):
    """``mean, var = welford(x, axis=0)``: an operation with several results."""

    tiles: tuple[Tile, ...]
    op: str
    args: tuple[Value, ...]
    attrs: tuple[tuple[str, object], ...]
    declares: tuple[bool, ...]
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def values(self) -> tuple[Value, ...]:
        return self.args


@dataclass(frozen=True)
class LoopHints:
    """Speed only. ``axis`` is the second word of a parallel hint (grididx.x, coreidx, threadidx, warp).

    Without a number, a pipeline has 2 stages and swizzle groups of 8; unroll and split have 0, which leaves the count
    to the lowering."""

    parallel: bool = False
    axis: str = ""
    vectorize: bool = False
    unroll: int | None = None
    pipeline: int | None = None
    persistent: bool = False
    swizzle: int | None = None
    split: int | None = None
    #: the chip's copy engine fills the buffers of this pipeline
    copy_engine: bool = False
    #: one warp loads, and this many groups of warps multiply, each a share of the tile's rows
    warp_roles: int | None = None
    #: the groups compute whole tiles in turn; one group's end overlaps the next group's products
    in_turn: bool = False
    #: registers of each thread that multiplies; None leaves them to the lowering
    registers: int | None = None
    #: products are issued before earlier ones finish, with a wait at the first read of their result
    ahead: bool = False
    #: the copy engine stores a tile's results while the next tile is computed, in this many parts of its columns
    async_store: int | None = None
    #: this many blocks that follow each other along a parallel loop share what they all load: it is multicast to them
    cluster: int | None = None
    #: programs of one tile divide the iterations and wait for each other after the loop
    team: bool = False


@dataclass(frozen=True)
class Loop(Step):
    var: str
    start: IntExpr
    stop: IntExpr
    step: IntExpr
    body: tuple[Statement, ...]
    hints: LoopHints = LoopHints()
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def bodies(self) -> tuple[tuple[Statement, ...], ...]:
        return (self.body,)

    @property
    def trips(self) -> IntExpr:
        """The number of iterations: ceil(stop - start, step), at least 0."""
        return int_op("max", num(0), int_op("cdiv", int_op("-", self.stop, self.start), self.step))


@dataclass(frozen=True)
class If(Step):
    """``cond`` is an IntExpr of comparisons on indices and constexprs; non-zero is true."""

    cond: IntExpr
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...]
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def bodies(self) -> tuple[tuple[Statement, ...], ...]:
        return (self.then, self.orelse)


SettingValue = Union[int, float, bool, str, tuple[int, ...], None]


@dataclass(frozen=True)
class Whole:
    """A whole tensor as an operand of a library operation; ``order`` has the tensor's dimension for each one here."""

    tensor: Tensor
    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[IntExpr, ...]:
        return tuple(self.tensor.shape[d] for d in self.order)

    @property
    def region(self) -> Region:
        """The region that is read: the whole tensor."""
        return whole(self.tensor)


@dataclass(frozen=True)
class LibraryCall(Step):
    """``out = library.op(operands, settings)``: a call of the framework, the only statement of its kernel.

    ``op`` is an entry of :data:`kernellab.sketch.program.library.LIBRARY`; ``settings`` has a value for each of its
    settings. All tensors have one dtype, except those of ``library.aten``; ``precision`` ("ieee", "tf32") is what
    torch's flags allow; the cost model reads it."""

    op: str
    out: Tensor
    operands: tuple[Whole, ...]
    settings: tuple[tuple[str, SettingValue], ...] = ()
    precision: str = "ieee"
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def touches(self) -> tuple[tuple[Region, Touch], ...]:
        return (*((o.region, Touch.READ) for o in self.operands), (whole(self.out), Touch.WRITE))


def whole(tensor: Tensor) -> Region:
    """Return the region of all of ``tensor``."""
    return Region(tensor, tuple(Range(num(0), extent, num(1)) for extent in tensor.shape))


Statement = Union[Alloc, Load, Store, AtomicAdd, Scatter, Assign, Gemm, MultiAssign, LibraryCall, Loop, If]


# -- programs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """One sketch: one outermost nest, one launch.

    ``body`` is the whole body; the parallel loops form one grid: each is the last statement of the enclosing one,
    preceded only by side-effect-free statements that are recomputed for each inner iteration.
    """

    name: str
    body: tuple[Statement, ...]
    #: names of the tensors that this kernel reads or writes
    reads: frozenset[str]
    writes: frozenset[str]
    span: Span = field(default=NOWHERE, compare=False)
    #: the constexprs that the sketch declares or names; None for a kernel that was not read from text
    constexprs: frozenset[str] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Program:
    """A whole sketch file, resolved. Tensors of one name are one tensor, shared by the kernels in order.

    A kernel may use another shape with as many elements: its regions have that view, ``tensors`` the first one."""

    kernels: tuple[Kernel, ...]
    symbols: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    constexprs: tuple[Constexpr, ...]
    requires: tuple[IntExpr, ...]
    #: the text from which the program was resolved; spans refer to it
    text: str = field(default="", compare=False)
    #: names of opaque operations; a program with any can be neither run nor lowered
    opaque: tuple[str, ...] = ()
    #: symbols with a value, that of the task for which the sketch is written; each is in ``symbols`` too
    sizes: tuple[tuple[str, int], ...] = ()

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.role in (TensorRole.IN, TensorRole.INOUT))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.role in (TensorRole.OUT, TensorRole.INOUT))

    @property
    def tunables(self) -> tuple[Constexpr, ...]:
        return tuple(c for c in self.constexprs if c.choices)

    def declares(self, kernel: str, option: str) -> bool:
        """Does the sketch of that name declare the launch option? Other sketches of the file do not count."""
        named = next(k.constexprs for k in self.kernels if k.name == kernel)
        return option in {c.name for c in self.constexprs} and (named is None or option in named)
