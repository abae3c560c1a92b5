"""The form of a row of the table of ATen's operations (``kernellab.operations.aten_table``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from kernellab.operations.sketch import OPS


class Role(str, Enum):
    """The kind of an operation. The value is the memory's word for it and a part of stored vectors."""

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
    #: the index of an extreme
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
    #: a tensor of one value, or of indices
    FILL = "fill"
    #: memory without contents
    EMPTY = "empty"
    RANDOM = "random"
    #: a tensor's value becomes a number of the host
    READ = "read"
    #: a check, or a query of shape, dtype or device
    QUERY = "query"
    RESAMPLE = "resample"
    SPECTRUM = "spectrum"
    LINALG = "linalg"
    #: results whose size depends on values
    DYNAMIC = "dynamic"
    #: several passes, unlike any family of known designs
    ALGORITHM = "algorithm"
    #: a step of a backward pass
    GRADIENT = "gradient"


class Copies(Enum):
    """Is the result in new memory?"""

    NEVER = "never"
    #: if the operand's strides require it
    MAYBE = "maybe"
    ALWAYS = "always"


class Per(Enum):
    """The elements for which FLOPs are counted: those of the result, or of the largest operand."""

    RESULT = "result"
    OPERAND = "operand"


class Capture(Enum):
    """The treatment in a capture of an operation that torch's export would decompose or keep."""

    #: torch's export decides
    DEFAULT = "default"
    #: it stays one node, so that the Designer sees it
    WHOLE = "whole"
    #: torch's decomposition, which an export does not use by default
    APART = "apart"


@dataclass(frozen=True)
class AtenOp:
    """One operation of ATen, with all overloads.

    ``sketch``: its operations in a sketch, for each element counted by ``per``; its FLOPs are their sum, unless
    ``number`` is set (for a function with too many operations to list)."""

    name: str
    role: Role
    sketch: tuple[str, ...] = ()
    per: Per = Per.RESULT
    number: float | None = None
    #: ``sketch`` is one operation with the same operands in the same order
    direct: bool = False
    copies: Copies = Copies.ALWAYS
    #: the memory's word for it, the same for all spellings of a computation
    word: str = ""
    #: words of its parts, if the same computation is also written out
    parts: tuple[str, ...] = ()
    #: the memory's vectors count it as structure of a kernel; stored vectors depend on this
    structural: bool = False
    #: its axis is a part of what it computes
    along_axis: bool = False
    commutes: bool = False
    #: overloads to which ``capture`` applies; empty: all
    overloads: tuple[str, ...] = ()
    capture: Capture = Capture.DEFAULT
    #: a trace of a backward uses torch's decomposition, so that the Designer gets operations with a rule
    apart_in_backward: bool = False

    @cached_property
    def flops(self) -> float:
        """Return the FLOPs for each element counted by ``per``."""
        return sum(OPS[op].flops for op in self.sketch) if self.number is None else self.number


#: roles without arithmetic: they move, choose, fill or describe
FREE = frozenset((
    Role.RESHAPE, Role.TURN, Role.PART, Role.SAME, Role.CAST, Role.MOVE, Role.FILL, Role.EMPTY, Role.QUERY, Role.READ,
    Role.GATHER,
))  # fmt: skip
POINTWISE = frozenset((Role.ARITHMETIC, Role.FUNCTION))
