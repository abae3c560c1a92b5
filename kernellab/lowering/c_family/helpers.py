"""The ``kl::`` functions that a program's operations use, and those that a header defines."""

from __future__ import annotations

import re

from kernellab.operations.sketch import OPS
from kernellab.sketch.program.program import Apply, Program
from kernellab.sketch.program.walk import statements, subvalues

_DEFINED = re.compile(
    r"^(?:template <[^>]*> )?(?:KL_INLINE|inline) \w+ (\w+)\(|^KL_(?:FLOAT|PAIR)\((\w+),", re.MULTILINE
)


def used_helpers(program: Program, dsl: str) -> set[str]:
    """Return the names, without ``kl::``, of the functions that the operations of ``program`` use in ``dsl``."""
    values = [v for k in program.kernels for s in statements(k.body) for root in s.values for v in subvalues(root)]
    used = {v.op for v in values if isinstance(v, Apply)}
    return {name for op in used for name in re.findall(r"kl::(\w+)", OPS[op].spell.get(dsl, ""))}


def defined_helpers(header: str) -> set[str]:
    """Return the names of the functions that the text of a header defines."""
    return {plain or macro for plain, macro in _DEFINED.findall(header)}


__all__ = ["defined_helpers", "used_helpers"]
