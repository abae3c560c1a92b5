"""Asynchronous kernels for Hopper in Gluon, in addition to the Triton kernels that run where they cannot.

What is asynchronous is the sketch's to say (``knowledge/language/hints.md``): which loop's buffers the copy engine
fills, which warps load and which multiply, which products are begun early, whether results leave that way too. A
launch that asks for what its chip cannot give, or this lowering cannot write, keeps its Triton kernel, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.lowering.gluon.boxes import Refused
from kernellab.lowering.gluon.multiply import multiplies
from kernellab.lowering.gluon.names import HELPERS, IMPORTS
from kernellab.lowering.gluon.padded import padded
from kernellab.lowering.gluon.parts import Function
from kernellab.lowering.gluon.plan import plan
from kernellab.lowering.gluon.roles import Roles
from kernellab.lowering.python_text import python_int, tidy
from kernellab.lowering.triton.shapes import Computed
from kernellab.lowering.unseen import Walk
from kernellab.sketch.program.program import Kernel, Program
from kernellab.target import Target


@dataclass(frozen=True)
class Asynchronous:
    """One kernel in Gluon: its functions, callee first, and what the host passes."""

    functions: list[Function]
    #: what every function may take, in order: tensors, descriptors, constexprs; is it known when the kernel is compiled
    parameters: dict[str, bool]
    #: descriptors by parameter: tensor, shape, box
    descriptors: dict[str, tuple[str, str, str]]
    grid: str
    persistent: bool
    groups: int
    #: warps and buffers, by the launch option that has their number where the kernel declares it
    options: dict[str, int]
    #: tensors that the copy engine reads or writes
    tensors: tuple[str, ...]
    #: constexprs that the host computes
    computed: dict[str, Computed]

    def text(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """Each function's head, and its lines, within the file's test for Gluon."""
        found = []
        for function in self.functions:
            taken = ", ".join(f"{n}: gl.constexpr" if self.parameters.get(n) else n for n in function.parameters)
            head = "    @kl_mapped\n" if function is self.functions[-1] else ""
            head += f'    @gluon.jit\n    def {function.name}({taken}):\n        """{function.doc}"""\n'
            found.append((head, [(f"    {text}", line) for text, line in function.lines]))
        return found


def asynchronous(
    program: Program,
    kernel: Kernel,
    known: Mapping[str, int],
    wide: str,
    target: Target,
    options: Mapping[str, int],
    walk: Walk | None = None,
) -> Asynchronous:
    """``kernel`` in Gluon; ``walk``: the steps of its loop that show something.

    Raises:
        Refused: why it stays in Triton.
    """
    if wide:
        raise Refused("its offsets may need 64 bits, or its sizes are known only when it is called")
    found = plan(program, padded(kernel), known, target, options)
    if walk is not None and (walk.loop.var != found.loop.var or found.outer is not None):
        walk = None
    roles = Roles(program, found, known, walk)
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
    descriptors = {}
    for source in roles.sources:
        shape, block = (", ".join(tidy(python_int(e)) for e in part) for part in (source.box.shape, source.box.block))
        if found.async_store is not None and source.name.endswith("_result") and found.shares:
            block = ", ".join(
                tidy(python_int(e)) + (f" // {found.groups}" if e.name == found.rows else "") for e in source.box.block
            )
        descriptors[source.name] = (source.tensor, f"({shape})", f"({block})")
    grid = tidy(python_int(roles.tiles()))
    return Asynchronous(
        [place, loads, groups, whole], parameters, descriptors,
        f"min({grid}, _cores)" if found.persistent else grid, found.persistent, found.groups,
        {"num_warps": found.warps, "num_stages": found.stages},
        tuple(dict.fromkeys(s.tensor for s in roles.sources)), dict(roles.computed),
    )  # fmt: skip


def _parameters(program: Program, roles: Roles) -> dict[str, bool]:
    """Every name that a function may take, and whether it is a constexpr."""
    found = dict.fromkeys((s.name for s in roles.sources), False)
    found |= dict.fromkeys((t.name for t in program.tensors), False)
    found |= dict.fromkeys(_inside(roles), False)
    found |= dict.fromkeys(program.symbols, True)
    found |= {c.name: True for c in program.constexprs if c.name not in ("num_warps", "num_stages")}
    found |= dict.fromkeys(roles.computed, True)
    return found | {"who": True, "STAGES": True, "WARPS": True, "GROUPS": True}


def _inside(roles: Roles) -> list[str]:
    """Buffers and barriers, which the kernel makes."""
    p = roles.plan
    found = []
    for load in p.resident:
        found += [roles.buffer(load), roles.barrier([load], "ready"), roles.barrier([load], "free")]
    for group in p.streams:
        found += [roles.buffer(load) for load in group]
        found += [roles.barrier(group, word) for word in ("ready", "free")]
    return [*found, "result_buffer", "turns", "who"]


def _taken(function: Function, parameters: Mapping[str, bool]) -> list[str]:
    used = function.used()
    return [name for name in parameters if name in used]


__all__ = ["HELPERS", "IMPORTS", "Asynchronous", "Refused", "asynchronous"]
