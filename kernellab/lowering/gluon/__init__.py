"""Asynchronous kernels for Hopper in Gluon, in addition to the Triton kernels that run where they cannot.

The sketch's hints decide what is asynchronous (``knowledge/language/hints.md``): the loops whose buffers the copy
engine fills, the warps that load and those that multiply, the products that are issued early, the stores through the
copy engine. A launch whose hints the chip or this lowering does not support keeps its Triton kernel, and the reason is
recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.lowering.gluon.boxes import Refused
from kernellab.lowering.gluon.multiply import multiplies
from kernellab.lowering.gluon.names import HELPERS, IMPORTS
from kernellab.lowering.gluon.offsets import placed
from kernellab.lowering.gluon.padded import padded
from kernellab.lowering.gluon.parts import Function
from kernellab.lowering.gluon.plan import plan
from kernellab.lowering.gluon.roles import Roles
from kernellab.lowering.gluon.shares import substituted
from kernellab.lowering.python_text import python_int, tidy
from kernellab.lowering.triton.shapes import Computed
from kernellab.lowering.unseen import Walk
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op
from kernellab.sketch.program.program import Kernel, Program
from kernellab.target import Target


@dataclass(frozen=True)
class Asynchronous:
    """One kernel in Gluon: its functions, callee first, and what the host passes."""

    functions: list[Function]
    #: parameters of all functions in order (tensors, descriptors, constexprs), and whether each is a constexpr
    parameters: dict[str, bool]
    #: descriptors by parameter: tensor, shape, box and, of a cluster's, how its blocks divide the box
    descriptors: dict[str, tuple[str, ...]]
    grid: str
    persistent: bool
    groups: int
    #: numbers of warps and buffers, by launch option
    options: dict[str, int]
    #: tensors that the copy engine reads or writes
    tensors: tuple[str, ...]
    #: constexprs that the host computes
    computed: dict[str, Computed]
    #: blocks of a cluster, where the installed Triton has clusters
    cluster: int
    #: arguments other than the variables of their names
    given: dict[str, str]

    def text(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """Return each function's head and lines, indented for the file's test for Gluon."""
        functions = []
        for function in self.functions:
            taken = ", ".join(f"{n}: gl.constexpr" if self.parameters.get(n) else n for n in function.parameters)
            head = "    @kl_mapped\n" if function is self.functions[-1] else ""
            head += f'    @gluon.jit\n    def {function.name}({taken}):\n        """{function.doc}"""\n'
            functions.append((head, [(f"    {text}", line) for text, line in function.lines]))
        return functions


def asynchronous(
    program: Program,
    kernel: Kernel,
    values: Mapping[str, int],
    wide: str,
    target: Target,
    options: Mapping[str, int],
    walk: Walk | None = None,
) -> Asynchronous:
    """Return ``kernel`` in Gluon; ``walk``: the steps of its loop that are not masked entirely.

    Raises:
        Refused: the kernel stays in Triton, with the reason.
    """
    if wide:
        raise Refused("its offsets may need 64 bits, or its sizes are known only when it is called")
    kernel, offsets = placed(padded(kernel))
    planned = plan(program, kernel, values, target, options)
    planned.offsets = offsets
    if offsets and planned.shares:
        raise Refused("its tiles lie at offsets from memory, and several groups share their rows")
    if walk is not None and (walk.loop.var != planned.loop.var or planned.outer is not None):
        walk = None
    roles = Roles(program, planned, values, walk)
    place = roles.place()
    place.parameters[:] = ["pid", *_taken(place, _parameters(program, roles))]
    loads, groups = roles.loads(place), multiplies(roles, place)
    parameters = _parameters(program, roles)
    loads.parameters[:] = _taken(loads, parameters)
    groups.parameters[:] = _taken(groups, parameters)
    whole = roles.kernel(loads, groups)
    own = [n for n in (*loads.parameters, *groups.parameters) if n in parameters and n not in _inside(roles)]
    used = whole.used() | frozenset(own)
    whole.parameters[:] = [n for n in parameters if n in used and n not in _inside(roles)]
    descriptors: dict[str, tuple[str, ...]] = {}
    for source in roles.sources:
        shape, block = (", ".join(tidy(python_int(e)) for e in part) for part in (source.box.shape, source.box.block))
        if planned.async_store is not None and source.name.endswith("_result") and planned.shares:
            block = ", ".join(
                tidy(python_int(e)) + (f" // {planned.groups}" if e.name == planned.rows else "")
                for e in source.box.block
            )
        descriptors[source.name] = (source.tensor, f"({shape})", f"({block})")
    tiles, cores, given = roles.tiles(), "_cores", {}
    if planned.cluster > 1:
        many = IntExpr(IntKind.CONSTEXPR, name="_cluster")
        rows = int_op("*", planned.height, many)
        for source in roles.sources:
            block = ", ".join(tidy(python_int(substituted(e, {planned.rows: rows}))) for e in source.box.block)
            divided = ", ".join("1" if k == roles.divided(source) else "0" for k in range(len(source.box.block)))
            descriptors[source.name] = (*descriptors[source.name][:2], f"({block})", f"({divided}), _cluster")
        tiles, cores = substituted(tiles, {planned.rows: rows}), "_cores // _cluster"
        given = {"CLUSTER": "_cluster", planned.rows: python_int(rows)}
    grid = tidy(python_int(tiles))
    return Asynchronous(
        [place, loads, groups, whole], parameters, descriptors,
        f"min({grid}, {cores})" if planned.persistent else grid, planned.persistent, planned.groups,
        {"num_warps": planned.warps, "num_stages": planned.stages},
        tuple(dict.fromkeys(s.tensor for s in roles.sources)), dict(roles.computed), planned.cluster, given,
    )  # fmt: skip


def _parameters(program: Program, roles: Roles) -> dict[str, bool]:
    """Return every name that a function may take, and whether it is a constexpr."""
    is_constexpr = dict.fromkeys((s.name for s in roles.sources), False)
    is_constexpr |= dict.fromkeys((t.name for t in program.tensors), False)
    is_constexpr |= dict.fromkeys(_inside(roles), False)
    is_constexpr |= dict.fromkeys(program.symbols, True)
    is_constexpr |= {c.name: True for c in program.constexprs if c.name not in ("num_warps", "num_stages")}
    is_constexpr |= dict.fromkeys(roles.computed, True)
    return is_constexpr | {"who": True, "STAGES": True, "WARPS": True, "GROUPS": True, "CLUSTER": True}


def _inside(roles: Roles) -> list[str]:
    """Return the names of buffers and barriers, which the kernel allocates."""
    p = roles.plan
    names = []
    for load in p.resident:
        names += [roles.buffer(load), roles.barrier([load], "ready"), roles.barrier([load], "free")]
    for group in p.streams:
        names += [roles.buffer(load) for load in group]
        names += [roles.barrier(group, word) for word in ("ready", "free", "taken")]
    return [*names, "result_buffer", "turns", "who"]


def _taken(function: Function, parameters: Mapping[str, bool]) -> list[str]:
    used = function.used()
    return [name for name in parameters if name in used]


__all__ = ["HELPERS", "IMPORTS", "Asynchronous", "Refused", "asynchronous"]
