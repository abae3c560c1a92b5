"""Identifiers in C++ and CUDA C++: the sketch's names, if the language allows them."""

from __future__ import annotations

from collections.abc import Iterator

from kernellab.sketch.program.program import Alloc, Assign, Kernel, Load, Loop, MultiAssign, Program, Statement, Tile
from kernellab.sketch.program.walk import statements

_RESERVED_WORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept "
    "const consteval constexpr const_cast continue decltype default delete do double dynamic_cast else "
    "enum explicit export extern false float for friend goto if inline int long mutable namespace new "
    "noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast "
    "requires return short signed sizeof static static_assert static_cast struct switch template this "
    "thread_local throw true try typedef typeid typename union unsigned using virtual void volatile "
    "wchar_t while xor xor_eq kl NAN INFINITY NULL EOF linux unix int64_t int32_t int16_t int8_t uint8_t "
    "kernel_body args main "
)
RESERVED = frozenset(_RESERVED_WORDS.split())


def safe(name: str) -> str:
    """Return ``name`` as an identifier that is no keyword, macro or helper."""
    return f"{name}_" if name in RESERVED or name.startswith("__") else name


def function(program: Program, kernel: Kernel) -> str:
    """Return the name of the function of ``kernel``: the kernel's name, unless something else has that name where it is
    called."""
    taken = {t.name for t in program.tensors} | set(program.symbols) | {c.name for c in program.constexprs}
    taken |= {k.name for k in program.kernels if k is not kernel}
    name = safe(kernel.name)
    while name in taken:
        name += "_"
    return name


class Names:
    """All identifiers of a kernel's function; ``reserved`` are words of a DSL in addition to those of C++."""

    def __init__(self, program: Program, kernel: Kernel, reserved: frozenset[str] = frozenset()) -> None:
        reserved |= RESERVED
        self.taken = {t.name for t in program.tensors} | set(program.symbols) | {c.name for c in program.constexprs}
        self.taken |= {s.var for s in statements(kernel.body) if isinstance(s, Loop)}
        self.taken |= {t.name for t in _tiles(kernel.body)} | reserved | {kernel.name}
        #: names that a tile must not hide
        self.outer = {t.name for t in program.tensors} | {kernel.name}
        loop_vars = [v for v in "ijklabcdpqrstuvwxyz" if v not in self.taken][:8]
        self.loop_vars = tuple(loop_vars) + tuple(f"i{n}" for n in range(8 - len(loop_vars)))
        self.taken |= set(self.loop_vars)
        #: tensors that had to be renamed
        self.tensors = {t.name: self.fresh(f"{t.name}_tensor") for t in program.tensors if t.name in reserved}

    def fresh(self, base: str) -> str:
        """Return a new identifier: ``base``, with a number if that is taken."""
        name, count = safe(base), 1
        while name in self.taken:
            count += 1
            name = f"{base}{count}"
        self.taken.add(name)
        return name

    def tile(self, tile: Tile) -> str:
        """Return the identifier of a tile."""
        return f"{tile.name}_" if tile.name in self.outer or tile.name in RESERVED else tile.name


def _tiles(body: tuple[Statement, ...]) -> Iterator[Tile]:
    for stmt in statements(body):
        if isinstance(stmt, (Alloc, Load, Assign)):
            yield stmt.tile
        elif isinstance(stmt, MultiAssign):
            yield from stmt.tiles


__all__ = ["RESERVED", "Names", "function", "safe"]
