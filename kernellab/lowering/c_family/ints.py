"""Index expressions as C++ text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kernellab.lowering.bounds import Bounds
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.program import Tensor

_COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
#: always in parentheses: compilers warn where the precedence of these operators matters
_BITS = frozenset(("&", "|", "^", "<<", ">>"))
_PRECEDENCE = {"or": 1, "and": 2, "not": 9, "+": 5, "-": 5, "*": 6, "//": 6, "%": 6} | dict.fromkeys(_COMPARISONS, 3)
_ATOM = 10
_SPELL = {"//": "/", "and": "&&", "or": "||"}


@dataclass
class Spelled:
    """The C++ names in a text; ``indexing`` are those that select an element of memory."""

    names: set[str] = field(default_factory=set)
    indexing: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Sum:
    """An index as ``base + last``, where ``last`` is one name: ``i * N + j`` has the base ``i * N``.

    ``names`` are all names in it, ``base_names`` those in ``base``."""

    names: frozenset[str]
    last: str = ""
    base: str = ""
    base_names: frozenset[str] = frozenset()


@dataclass
class Ints(Bounds):
    """Facts about the integers of one kernel, and their C++ text; ``spell`` maps a name to its C++ name."""

    spell: Mapping[str, str]
    #: records of names that were spelled, so that no text is searched for a name
    spelled: Spelled = field(default_factory=Spelled, kw_only=True)
    _sums: dict[str, Sum] = field(default_factory=dict, kw_only=True)

    @contextmanager
    def watch(self, *, indexes: bool = False) -> Iterator[Spelled]:
        """Yield a record of the names that are spelled inside; with ``indexes`` all of them select an element of
        memory."""
        outer, self.spelled = self.spelled, Spelled()
        try:
            yield self.spelled
        finally:
            inner, self.spelled = self.spelled, outer
            self.note(inner.names, inner.names if indexes else inner.indexing)

    def note(self, names: Iterable[str], indexing: Iterable[str] = ()) -> None:
        """Record that ``names``, or the names that those are composed of, were spelled."""
        for name in names:
            self.spelled.names.update(self.parts(name).names)
        self.spelled.indexing.update(indexing)

    def composed(self, text: str, names: Sequence[str], base: str | None = None) -> str:
        """Return ``text``, an index made of ``names``: spelling it spells them.

        With ``base``, it is the sum of ``base`` and the last of ``names``."""
        if text not in self._sums and text not in names:
            parts = [self.parts(name) for name in names]
            every = frozenset().union(*(part.names for part in parts))
            if base is None:
                self._sums[text] = Sum(every)
            else:
                before = frozenset().union(*(part.names for part in parts[:-1])) | parts[-1].base_names
                whole = " + ".join(filter(None, (base, parts[-1].base)))
                self._sums[text] = Sum(every, parts[-1].last, whole, before)
        return text

    def parts(self, text: str) -> Sum:
        """Return the parts of an index: itself, if it was not composed."""
        return self._sums.get(text) or Sum(frozenset((text,)), text)

    def cpp(self, expr: IntExpr) -> str:
        """Return ``expr`` as C++."""
        return self._cpp(expr)[0]

    def tensor(self, tensor: Tensor) -> str:
        return self.spell.get(tensor.name, tensor.name)

    def operand(self, expr: IntExpr) -> str:
        """Return ``expr`` as C++ that may be an operand of any operator."""
        text, precedence = self._cpp(expr)
        return text if precedence == _ATOM else f"({text})"

    def _cpp(self, expr: IntExpr) -> tuple[str, int]:
        if expr.kind is IntKind.NUM:
            return str(expr.value), _ATOM if expr.value >= 0 else 5
        if expr.kind is not IntKind.OP:
            name = self.spell.get(expr.name, expr.name)
            self.note([name])
            return name, _ATOM
        op, args = expr.op, expr.args
        if op in ("min", "max"):
            text = self.cpp(args[0])
            for arg in args[1:]:
                text = f"kl::i{op}({text}, {self.cpp(arg)})"
            return text, _ATOM
        if op == "cdiv":
            return f"kl::cdiv({self.cpp(args[0])}, {self.cpp(args[1])})", _ATOM
        if op in ("//", "%") and not (self.nonnegative(args[0]) and self.nonnegative(args[1])):
            name = "fdiv" if op == "//" else "fmod_"
            return f"kl::{name}({self.cpp(args[0])}, {self.cpp(args[1])})", _ATOM
        if len(args) == 1:
            return f"{'!' if op == 'not' else op}{self.operand(args[0])}", 9
        if op in _BITS:
            if op in ("<<", ">>"):
                self.check_shift(expr)
            return f"({self.operand(args[0])} {op} {self.operand(args[1])})", _ATOM
        precedence = _PRECEDENCE[op]
        left, left_precedence = self._cpp(args[0])
        right, right_precedence = self._cpp(args[1])
        left = left if left_precedence >= precedence else f"({left})"
        right = right if right_precedence > precedence else f"({right})"
        return f"{left} {_SPELL.get(op, op)} {right}", precedence


__all__ = ["Ints", "Spelled", "Sum"]
