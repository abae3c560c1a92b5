"""The stage static: what the source's text says, before anything of it runs."""

from __future__ import annotations

from kernellab.conditions import StaticFinding
from kernellab.dsls.base import Finding
from kernellab.records import CompilerLine, Evidence
from kernellab.verifier.stages.context import Context
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.static.bounded import analyse

#: findings that a caller who allows the framework's operators waives
_OWN_KERNEL = ("no-kernel", "no-launch", "library-call")


def lint(context: Context) -> str:
    """Puts what is no error into the findings.

    Raises:
        Refused: the text does not parse, or does what no honest kernel does.
    """
    source, noticed = context.source, context.findings.add
    result = analyse(source, context.adapter)
    if result.refused:
        raise Refused(f"{result.refused}.", Evidence(signature="source"))
    if result.errors:
        line = result.errors[0]
        raise Refused(f"{line.file}, line {line.line}: {line.message}.",
                      Evidence(signature="syntax", compiler=list(result.errors)))  # fmt: skip
    findings = result.findings
    allowed = context.options.allow_library
    fatal = [f for f in findings if f.fatal and not _waived(f, allowed, result.model)]
    if fatal:
        first = fatal[0]
        at = f"{first.file}, line {first.line}: " if first.line else ""
        lines = [CompilerLine(file=f.file, line=f.line, message=f"{f.rule}: {f.message}") for f in fatal]
        noticed(*(_condition(f) for f in findings if not f.fatal))
        allow = " --allow-library accepts a kernel that calls the framework." if first.rule in _OWN_KERNEL else ""
        raise Refused(f"{at}{_sentence(first.message)}{allow}", Evidence(signature=first.rule, compiler=lines))
    noticed(*(_condition(f) for f in findings))
    return ""


def _waived(finding: Finding, allow_library: bool, model: bool) -> bool:
    own = model and finding.rule != "library-call"
    return finding.rule in _OWN_KERNEL and (allow_library or own)


def _condition(finding: Finding) -> StaticFinding:
    return StaticFinding(rule=finding.rule, message=finding.message, file=finding.file, line=finding.line)


def _sentence(text: str) -> str:
    text = text.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
