"""The stage static: checks of the source text, before any of it runs.

A fatal finding of the static analysis (:mod:`kernellab.verifier.static`) refuses the source; every other one becomes a
condition of the verdict.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from kernellab.conditions import StaticFinding
from kernellab.dsls.base import Finding
from kernellab.dsls.text import parsed
from kernellab.records import CompilerLine, Evidence
from kernellab.task import load_task
from kernellab.verifier.stages.context import Context
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.static.bounded import analyse

#: Rules of findings that are waived if the caller allows the framework's operators.
_OWN_KERNEL_RULES = ("no-kernel", "no-launch", "library-call")
#: Names that make offsets 64-bit.
_WIDE_NAMES = ("int64", "make_block_ptr", "tensor_descriptor")
#: Elements of a tensor from which an offset does not fit into 32 bits.
_MOST_ELEMENTS = 1 << 31


def lint(context: Context) -> str:
    """Check the source text, add findings that are not fatal, and return the stage's note.

    Raises:
        Refused: The text does not parse, or breaks a fatal rule.
    """
    source, findings = context.source, context.findings
    result = analyse(source, context.adapter)
    if result.refused:
        raise Refused(f"{result.refused}.", Evidence(signature="source"))
    if result.errors:
        line = result.errors[0]
        report = Evidence(signature="syntax", compiler=list(result.errors))
        raise Refused(f"{line.file}, line {line.line}: {line.message}.", report)
    allowed = context.options.allow_library
    fatal = [f for f in result.findings if f.fatal and not _is_waived(f, allowed, result.model)]
    if fatal:
        findings.add(*(_condition(f) for f in result.findings if not f.fatal))
        raise _refusal(fatal)
    findings.add(*(_condition(f) for f in (*result.findings, *_narrow_offsets(context))))
    return ""


def _refusal(fatal: list[Finding]) -> Refused:
    """Return the refusal by the first finding; the evidence has a line for each."""
    first, *others = fatal
    lines = [CompilerLine(file=first.file, line=first.line, message=first.message)]
    lines += [CompilerLine(file=f.file, line=f.line, message=f"{f.rule}: {f.message}") for f in others]
    place = f"{first.file}, line {first.line}: " if first.line else ""
    message = first.message.rstrip(".")
    reason = f"{place}{message[:1].upper()}{message[1:]}."
    return Refused(reason, Evidence(signature=first.rule, compiler=lines))


def _narrow_offsets(context: Context) -> Iterator[Finding]:
    """Yield Triton kernels with 32-bit offsets, for a task in which a tensor may have 2^31 elements."""
    texts = {f: t for f, t in context.source.files.items() if f.endswith(".py") and "program_id(" in t}
    task = load_task(context.request.task_text, context.request.task_name) if texts else None
    if task is None or not task.dims or not task.tensors:
        return
    sizes = {d.name: d.max for d in task.dims}
    most, name = max((math.prod(a.extents(sizes)), a.name) for a in task.tensors)
    for file, text in texts.items() if most >= _MOST_ELEMENTS else ():
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.FunctionDef) and node.decorator_list and _has_narrow_offsets(node):
                message = f"offsets of 32 bits, and {name} has up to {most} elements; use program_id(...).to(tl.int64)"
                yield Finding("narrow-offsets", message, file, node.lineno)


def _has_narrow_offsets(kernel: ast.FunctionDef) -> bool:
    """Return whether a kernel uses a ``program_id`` that it does not convert, and names nothing that is 64-bit."""
    parts = [n for n in ast.walk(kernel) if isinstance(n, (ast.Call, ast.Attribute))]
    ids = {n for n in parts if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("program_id")}
    converted = {n.value for n in parts if isinstance(n, ast.Attribute)}
    return bool(ids - converted) and not any(name in ast.unparse(kernel) for name in _WIDE_NAMES)


def _is_waived(finding: Finding, allow_library: bool, is_model: bool) -> bool:
    """Return whether a fatal finding does not count: library calls are allowed, or a ModelNew is called, from which
    only these are refused."""
    of_model = is_model and finding.rule != "library-call"
    return finding.rule in _OWN_KERNEL_RULES and (allow_library or of_model)


def _condition(finding: Finding) -> StaticFinding:
    return StaticFinding(rule=finding.rule, message=finding.message, file=finding.file, line=finding.line)
