"""The syntax tree of a sketch file, with places, comments and pins.

``parse`` makes it, ``print`` writes it back in canonical form, ``check`` resolves it into a
:class:`~kernellab.sketch.program.program.Program`. Equality ignores places and comments, so that
``parse(print(tree)) == tree``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union


@dataclass(frozen=True)
class Span:
    """A place in the text; lines and columns count from 1, the end is exclusive."""

    line: int
    col: int
    end_line: int
    end_col: int


NOWHERE = Span(0, 0, 0, 0)


def _span() -> Span:
    return field(default=NOWHERE, compare=False, repr=False)


# -- expressions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Num:
    """A literal; ``inf`` and ``-inf`` are Num too. ``text`` is the literal as written (1e-6); 1 is not 1.0."""

    value: int | float
    text: str = field(default="", compare=False)
    span: Span = _span()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Num):
            return NotImplemented
        return type(self.value) is type(other.value) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True)
class Str:
    value: str
    span: Span = _span()


@dataclass(frozen=True)
class Bool:
    value: bool
    span: Span = _span()


@dataclass(frozen=True)
class Name:
    id: str
    span: Span = _span()


@dataclass(frozen=True)
class Unary:
    """``op`` is one of ``- + ~ not``."""

    op: str
    operand: Expr
    span: Span = _span()


@dataclass(frozen=True)
class Binary:
    """``op`` is one of ``+ - * / // % ** & | ^ << >> < <= > >= == != and or``."""

    op: str
    left: Expr
    right: Expr
    span: Span = _span()


@dataclass(frozen=True)
class Keyword:
    name: str
    value: Expr
    span: Span = _span()


@dataclass(frozen=True)
class Call:
    """``func(args, name=value)``; in ``library.mm(...)`` ``func`` has the dot in it.

    ``misordered`` marks a positional argument written after a keyword.
    """

    func: str
    args: tuple[Expr, ...] = ()
    keywords: tuple[Keyword, ...] = ()
    misordered: bool = field(default=False, compare=False)
    span: Span = _span()


@dataclass(frozen=True)
class List:
    items: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True)
class Slice:
    """``start:stop[:step]``; a missing bound is None."""

    start: Expr | None = None
    stop: Expr | None = None
    step: Expr | None = None
    span: Span = _span()


@dataclass(frozen=True)
class NewAxis:
    """``None`` inside ``x[:, None]``."""

    span: Span = _span()


@dataclass(frozen=True)
class Subscript:
    """``X[i, a:b]`` of a tensor, or ``x[:, None]`` of a tile."""

    name: str
    items: tuple[Union[Expr, Slice, NewAxis], ...]
    span: Span = _span()


@dataclass(frozen=True)
class Indexed:
    """``exp(x)[:, None]`` and ``(x + y)[:, None]``: a value that has no name."""

    value: Expr
    items: tuple[Union[Expr, Slice, NewAxis], ...]
    span: Span = _span()


Expr = Union[Num, Str, Bool, Name, Unary, Binary, Call, List, Subscript, Indexed]


# -- declarations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SymbolDecl:
    """``M``, or ``M = 4096``: the value that a task of fixed shapes gives it."""

    name: str
    value: Expr | None = None
    span: Span = _span()


@dataclass(frozen=True)
class TensorDecl:
    """``X[M, N]: f32 out``; role is in, out, inout, temp, or None when not written (inferred)."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str
    role: str | None = None
    span: Span = _span()


@dataclass(frozen=True)
class ConstDecl:
    """``BLOCK = 1024 in {256, 512}``; a value set makes it tunable. ``BLOCK`` alone has neither."""

    name: str
    value: Expr | None = None
    choices: tuple[Expr, ...] = ()
    span: Span = _span()


@dataclass(frozen=True)
class OpaqueDecl:
    """``fft(x[N]: f32) -> [N]: f32``: an operation that only a model Coder can write."""

    name: str
    params: tuple[TensorDecl, ...]
    result_shape: tuple[Expr, ...]
    result_dtype: str
    span: Span = _span()


@dataclass(frozen=True)
class Comments:
    """Comments of a line: whole lines before it, and one after it (without ``#``)."""

    before: tuple[str, ...] = ()
    behind: str | None = None


NO_COMMENTS = Comments()


@dataclass(frozen=True)
class Declaration:
    """One ``kind: ...;`` line; kind is symbols, tensors, constexpr, require or opaque.

    ``items`` holds SymbolDecl, TensorDecl, ConstDecl, Expr for require, OpaqueDecl.
    AKG's bare ``m0, n0 = 128, 256`` before the first loop parses as a constexpr Declaration.
    """

    kind: str
    items: tuple[Union[SymbolDecl, TensorDecl, ConstDecl, OpaqueDecl, Expr], ...]
    comments: Comments = field(default=NO_COMMENTS, compare=False)
    pinned: bool = False
    span: Span = _span()


# -- statements --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hint:
    """``@llm_hint("parallel", "grididx")`` before a loop."""

    args: tuple[Expr, ...]
    comments: Comments = field(default=NO_COMMENTS, compare=False)
    span: Span = _span()


@dataclass(frozen=True)
class For:
    var: str
    #: the arguments of range(): stop | start, stop | start, stop, step
    range: tuple[Expr, ...]
    body: tuple[Stmt, ...]
    hints: tuple[Hint, ...] = ()
    comments: Comments = field(default=NO_COMMENTS, compare=False)
    pinned: bool = False
    span: Span = _span()


@dataclass(frozen=True)
class If:
    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()
    comments: Comments = field(default=NO_COMMENTS, compare=False)
    pinned: bool = False
    span: Span = _span()


@dataclass(frozen=True)
class Assign:
    """``x = expr``, ``mean, var = welford(...)``; ``alloc`` is an Assign of a Call."""

    targets: tuple[Name, ...]
    value: Expr
    comments: Comments = field(default=NO_COMMENTS, compare=False)
    pinned: bool = False
    span: Span = _span()


@dataclass(frozen=True)
class Move:
    """``load(X[...] -> x, pad=0)``, ``store(x -> Y[...])``, ``atomic_add(x -> Y[...])``; op is the word."""

    op: str
    source: Expr
    dest: Expr
    keywords: tuple[Keyword, ...] = ()
    comments: Comments = field(default=NO_COMMENTS, compare=False)
    pinned: bool = False
    span: Span = _span()


@dataclass(frozen=True)
class CallStmt:
    """An operation in call spelling whose last positional argument (or ``dst=``) is the destination."""

    call: Call
    comments: Comments = field(default=NO_COMMENTS, compare=False)
    pinned: bool = False
    span: Span = _span()


Stmt = Union[For, If, Assign, Move, CallStmt]


@dataclass(frozen=True)
class Sketch:
    name: str
    declarations: tuple[Declaration, ...]
    body: tuple[Stmt, ...]
    comments: Comments = field(default=NO_COMMENTS, compare=False)
    #: comment lines after the last statement, before ``}``
    trailing: tuple[str, ...] = field(default=(), compare=False)
    span: Span = _span()


@dataclass(frozen=True)
class SketchFile:
    """One file: sketches that run in order as separate launches and share tensors by name."""

    sketches: tuple[Sketch, ...]
    trailing: tuple[str, ...] = field(default=(), compare=False)
