"""Asynchronous kernels for Hopper in Gluon, in addition to the Triton kernels that run where they cannot.

The sketch's hints decide what is asynchronous (``knowledge/language/hints.md``): the loops whose buffers the copy
engine fills, the warps that load and those that multiply, the products that are issued early, the stores through the
copy engine. A launch whose hints the chip or this lowering does not support keeps its Triton kernel, and the reason is
recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernellab.lowering.gluon import barriers
from kernellab.lowering.gluon.boxes import Refused
from kernellab.lowering.gluon.kernel import KernelStart
from kernellab.lowering.gluon.multiply import multiplies
from kernellab.lowering.gluon.offsets import placed
from kernellab.lowering.gluon.padded import padded
from kernellab.lowering.gluon.parts import Function, Source
from kernellab.lowering.gluon.plan import Plan
from kernellab.lowering.gluon.planner import plan
from kernellab.lowering.gluon.roles import Roles
from kernellab.lowering.gluon.shares import substituted
from kernellab.lowering.python_text import python_int, tidy
from kernellab.lowering.triton.shapes import Computed
from kernellab.lowering.unseen import Walk
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op
from kernellab.sketch.program.program import Kernel, Program
from kernellab.target import Target


@dataclass(frozen=True)
class Descriptor:
    """What the host makes a descriptor of, as Python: a tensor, the shape that it is seen as, and the engine's box.

    ``divided`` (of a cluster's): for each dimension 1 if its blocks divide the box there, else 0."""

    tensor: str
    shape: str
    block: str
    divided: str = ""

    def call(self) -> str:
        cluster = [self.divided, "_cluster"] if self.divided else []
        return f"kl_blocks({', '.join([self.tensor, self.shape, self.block, *cluster])})"


@dataclass(frozen=True)
class Asynchronous:
    """One kernel in Gluon: its functions, callee first, and what the host passes."""

    functions: list[Function]
    #: parameters of all functions in order (tensors, descriptors, constexprs), and whether each is a constexpr
    parameters: dict[str, bool]
    #: descriptors by parameter
    descriptors: dict[str, Descriptor]
    #: number of programs, in Python
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
    #: arguments by parameter, where they are not the variable of that name
    arguments: dict[str, str]

    def text(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """Return each function's head and lines, indented for the file's test for Gluon."""
        functions = []
        for function in self.functions:
            signature = ", ".join(f"{n}: gl.constexpr" if self.parameters.get(n) else n for n in function.parameters)
            head = "    @kl_mapped\n" if function is self.functions[-1] else ""
            head += f'    @gluon.jit\n    def {function.name}({signature}):\n        """{function.doc}"""\n'
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
    planned = replace(plan(program, kernel, values, target, options), offsets=offsets)
    if offsets and planned.shares_rows:
        raise Refused("its tiles lie at offsets from memory, and several groups share their rows")
    if walk is not None and (walk.loop.var != planned.loop.var or planned.outer is not None):
        walk = None
    roles = Roles(program, planned, values, walk)
    parameters, functions = _functions(program, roles)
    clustered = _Clustered(planned) if planned.cluster > 1 else None
    tiles, cores, arguments = roles.tiles(), "_cores", {}
    if clustered is not None:
        tiles, cores = clustered.substituted(tiles), "_cores // _cluster"
        arguments = {"CLUSTER": "_cluster", planned.rows_name: python_int(clustered.rows)}
    grid = tidy(python_int(tiles))
    return Asynchronous(
        functions=functions,
        parameters=parameters,
        descriptors={source.name: _descriptor(source, roles, clustered) for source in roles.sources},
        grid=f"min({grid}, {cores})" if planned.persistent else grid,
        persistent=planned.persistent,
        groups=planned.groups,
        options={"num_warps": planned.warps, "num_stages": planned.stages},
        tensors=tuple(dict.fromkeys(s.tensor for s in roles.sources)),
        computed=dict(roles.computed),
        cluster=planned.cluster,
        arguments=arguments,
    )


def _functions(program: Program, roles: Roles) -> tuple[dict[str, bool], list[Function]]:
    """Return every parameter, and whether it is a constexpr; and the functions, each with the parameters it needs."""
    place = roles.place()
    place.parameters[:] = ["pid", *_used_parameters(place, _parameters(program, roles))]
    loads, groups = roles.loads(place), multiplies(roles, place)
    # writing these functions adds constexprs that the host computes
    parameters = _parameters(program, roles)
    loads.parameters[:] = _used_parameters(loads, parameters)
    groups.parameters[:] = _used_parameters(groups, parameters)
    kernel = KernelStart(roles).write(loads, groups)
    used = kernel.used().union(loads.parameters, groups.parameters)
    allocated = _allocated_names(roles)
    kernel.parameters[:] = [name for name in parameters if name in used and name not in allocated]
    return parameters, [place, loads, groups, kernel]


class _Clustered:
    """Integers of a kernel in terms of all blocks of a cluster, whose rows take the place of one block's."""

    def __init__(self, planned: Plan) -> None:
        self.rows = int_op("*", planned.tile_rows, IntExpr(IntKind.CONSTEXPR, name="_cluster"))
        self._rows_name = planned.rows_name

    def substituted(self, expr: IntExpr) -> IntExpr:
        return substituted(expr, {self._rows_name: self.rows})


def _descriptor(source: Source, roles: Roles, clustered: _Clustered | None) -> Descriptor:
    planned, block = roles.plan, source.box.block
    shape = ", ".join(tidy(python_int(e)) for e in source.box.shape)
    if clustered is not None:
        divided = ", ".join("1" if k == roles.divided(source) else "0" for k in range(len(block)))
        texts = [tidy(python_int(clustered.substituted(e))) for e in block]
        return Descriptor(source.tensor, f"({shape})", f"({', '.join(texts)})", f"({divided})")
    texts = [tidy(python_int(e)) for e in block]
    if planned.async_store is not None and source.name.endswith("_result") and planned.shares_rows:
        # each group stores its share of the rows
        is_rows = [e.name == planned.rows_name for e in block]
        texts = [f"{text} // {planned.groups}" if own else text for text, own in zip(texts, is_rows, strict=True)]
    return Descriptor(source.tensor, f"({shape})", f"({', '.join(texts)})")


def _parameters(program: Program, roles: Roles) -> dict[str, bool]:
    """Return every name that a function may take, and whether it is a constexpr."""
    is_constexpr = dict.fromkeys((s.name for s in roles.sources), False)
    is_constexpr |= dict.fromkeys((t.name for t in program.tensors), False)
    is_constexpr |= dict.fromkeys(_allocated_names(roles), False)
    is_constexpr |= dict.fromkeys(program.symbols, True)
    is_constexpr |= {c.name: True for c in program.constexprs if c.name not in ("num_warps", "num_stages")}
    is_constexpr |= dict.fromkeys(roles.computed, True)
    return is_constexpr | {"who": True, "STAGES": True, "WARPS": True, "GROUPS": True, "CLUSTER": True}


def _allocated_names(roles: Roles) -> list[str]:
    """Return the names of buffers and barriers, which the kernel allocates."""
    p = roles.plan
    names = []
    for group in [*((load,) for load in p.resident), *p.streams]:
        names += [roles.buffer(load) for load in group]
        names += [barriers.name(group, event) for event in ("ready", "free", "taken")]
    return [*names, "result_buffer", "turns", "who"]


def _used_parameters(function: Function, parameters: Mapping[str, bool]) -> list[str]:
    used = function.used()
    return [name for name in parameters if name in used]


__all__ = ["Asynchronous", "Refused", "asynchronous"]
