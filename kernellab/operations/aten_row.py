"""The form of a row of the table of ATen's operations (``kernellab.operations.aten_table``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from kernellab.operations.sketch import OPS


class Role(str, Enum):
    """What an operation does. The value is the memory's word for it, part of stored vectors."""

    #: elementwise, as cheap as moving the element
    ARITHMETIC = "arithmetic"
    #: elementwise, dearer than moving the element
    FUNCTION = "function"
    PRODUCT = "product"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    SOFTMAX = "softmax"
    NORM = "norm"
    POOL = "pool"
    REDUCE = "reduce"
    #: the place of an extreme
    PLACE = "place"
    SCAN = "scan"
    ORDER = "order"
    GATHER = "gather"
    SCATTER = "scatter"
    LOSS = "loss"
    RECURRENT = "recurrent"
    #: the same elements in the same order
    RESHAPE = "reshape"
    #: the same elements with their dimensions in another order
    TURN = "turn"
    #: some of the elements: slices
    PART = "part"
    #: the same elements in the same shape
    SAME = "same"
    CAST = "cast"
    #: elements copied to other places
    MOVE = "move"
    #: a tensor of one value, or of positions
    FILL = "fill"
    #: memory without contents
    EMPTY = "empty"
    RANDOM = "random"
    #: a tensor's value becomes a number of the host
    READ = "read"
    #: a check, or a question about shape, dtype or device
    QUERY = "query"
    RESAMPLE = "resample"
    SPECTRUM = "spectrum"
    LINALG = "linalg"
    #: results of a size that values decide
    DYNAMIC = "dynamic"
    #: several passes, in ways that no family of known designs has
    ALGORITHM = "algorithm"
    #: a step of a backward
    GRADIENT = "gradient"


class Copies(Enum):
    """Whether the result is in new memory."""

    NEVER = "never"
    #: where the operand's strides ask for it
    MAYBE = "maybe"
    ALWAYS = "always"


class Per(Enum):
    """What FLOPs are counted for: each element of the result, or each of the largest operand."""

    RESULT = "result"
    OPERAND = "operand"


class Capture(Enum):
    """What a capture does with an operation that torch's export would write with others, or would leave whole."""

    #: torch's export decides
    DEFAULT = "default"
    #: it stays one node, so that the Designer sees it
    WHOLE = "whole"
    #: torch's own decomposition, which an export does not use by itself
    APART = "apart"


@dataclass(frozen=True)
class AtenOp:
    """One operation of ATen, in whatever overload.

    ``sketch``: the operations of a sketch that it is made of, for each element counted by ``per``; its FLOPs are their
    sum, unless ``number`` says another (a function that is written with too many to list).
    """

    name: str
    role: Role
    sketch: tuple[str, ...] = ()
    per: Per = Per.RESULT
    number: float | None = None
    #: ``sketch`` is one operation with the same operands in the same order
    direct: bool = False
    copies: Copies = Copies.ALWAYS
    #: the memory's word for it: all spellings of a computation have one
    word: str = ""
    #: words of what it consists of, where the same is also written out
    parts: tuple[str, ...] = ()
    #: the memory's vectors count it as structure of a kernel; vectors that are stored depend on it
    structural: bool = False
    #: which axis it runs along is part of what it computes
    along_axis: bool = False
    commutes: bool = False
    #: overloads that ``capture`` is about; all of them where empty
    overloads: tuple[str, ...] = ()
    capture: Capture = Capture.DEFAULT
    #: torch's decomposition is used when a backward is traced, so that what is designed are operations with a rule
    apart_in_backward: bool = False

    @cached_property
    def flops(self) -> float:
        """FLOPs for each element counted by ``per``."""
        return sum(OPS[op].flops for op in self.sketch) if self.number is None else self.number


#: roles that compute no number: they move, choose, fill or describe
FREE = frozenset((
    Role.RESHAPE, Role.TURN, Role.PART, Role.SAME, Role.CAST, Role.MOVE, Role.FILL, Role.EMPTY, Role.QUERY, Role.READ,
    Role.GATHER,
))  # fmt: skip
POINTWISE = frozenset((Role.ARITHMETIC, Role.FUNCTION))
