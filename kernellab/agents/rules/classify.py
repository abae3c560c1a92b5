"""The class of an error, by rules on the failed stage, the compiler's lines and the numeric signature."""

from __future__ import annotations

import re
from enum import Enum

from kernellab.records import CompilerLine, Evidence, Stage, Verdict


class ErrorClass(str, Enum):
    """The classes of Algorithm 1, and two that it omits: errors that no role can fix, and slowness."""

    SYNTAX = "syntax"
    API = "api"
    BUILD = "build"
    RUNTIME = "runtime"
    ALGORITHM = "algorithm"
    MEMORY_PATTERN = "memory-pattern"
    ENVIRONMENT = "environment"
    PERFORMANCE = "performance"
    NONE = "none"


#: Algorithm 1, line 6: classes that are fixed in the code.
CODE_ERRORS = frozenset({ErrorClass.SYNTAX, ErrorClass.API, ErrorClass.BUILD, ErrorClass.RUNTIME})

#: Signatures of wrong places (which elements are read and written), as opposed to wrong values.
PLACE_SIGNATURES = frozenset(
    (
        "edge-tile", "mask-missing", "transposed", "off-by-one", "race", "out-of-bounds", "guard", "aliasing",
        "scattered", "strided", "poison", "unwritten", "narrow-store",
    )
)  # fmt: skip

#: Signatures of runs that a time limit ended, of a call or of the verification: no numbers were compared.
LATE = frozenset(("hang", "deadline"))
#: Share of a verification's time below which the kernel's calls are not what took it.
_LITTLE_CALLED = 0.25

_ENVIRONMENT = re.compile(
    r"no space left on device|command not found|cannot execute|cc1plus: not found|(?:g\+\+|clang\+\+|nvcc|ninja|ptxas)"
    r"['\"]?(?::| is)? (?:not found|no such file)|(?:no such file or directory|permission denied): '?"
    r"(?:g\+\+|clang|nvcc|ninja)|"
    r"cannot allocate memory|no cuda-capable device|cuda driver version|read-only file system|"
    r"0 active drivers|cannot find -l|libcuda\.so",
    re.IGNORECASE,
)
_SYNTAX = re.compile(
    r"syntaxerror|indentationerror|invalid syntax|parse error|expected (?:'[^']+'|[\w-]+ expression|unqualified-id|"
    r"declaration|initializer|statement|identifier)|unterminated|stray '|missing terminating|unexpected indent",
    re.IGNORECASE,
)
_API = re.compile(
    r"not declared|undeclared|has no (?:member|attribute)|no member named|no matching function|is not a member of|"
    r"unexpected keyword|takes \d+ positional|missing \d+ required|importerror|modulenotfounderror|attributeerror|"
    r"nameerror|is not defined|unsupported (?:ptr|language construct|type)|too (?:many|few) arguments|"
    r"cannot convert|invalid conversion|does not define|no kernel|no-kernel|no-launch|not launched",
    re.IGNORECASE,
)
_MEMORY = re.compile(
    r"segmentation|sigsegv|sigbus|illegal memory access|misaligned address|out of bounds|heap corruption|double free|"
    r"munmap_chunk|corrupted size|stack smashing|out of resource: shared",
    re.IGNORECASE,
)


def classify(verdict: Verdict) -> ErrorClass:
    """The class of a failed verdict's error; NONE if it passed."""
    if verdict.passed:
        return ErrorClass.NONE
    evidence = verdict.evidence or Evidence()
    text = "\n".join(
        [verdict.reason, evidence.signature or "", *(line.message for line in evidence.compiler), evidence.log[-8000:]]
    )
    if _ENVIRONMENT.search(text):
        return ErrorClass.ENVIRONMENT
    if verdict.stage in (Stage.STATIC, Stage.BUILD):
        return _of_code(text, verdict.stage)
    if verdict.stage is Stage.SMOKE:
        return _of_run(text, evidence)
    if verdict.stage is Stage.FAST:
        return ErrorClass.ALGORITHM if evidence.signature or evidence.first_wrong else ErrorClass.ENVIRONMENT
    if (evidence.signature is None or evidence.signature in LATE) and evidence.first_wrong is None:
        return _of_run(text, evidence)
    return ErrorClass.MEMORY_PATTERN if evidence.signature in PLACE_SIGNATURES else ErrorClass.ALGORITHM


def is_of_judge(evidence: Evidence | None) -> bool:
    """Whether the judge's own work, such as the reference, or other work on the machine took the time of a verification
    that its deadline ended."""
    return evidence is not None and evidence.called is not None and evidence.called < _LITTLE_CALLED


def _of_code(text: str, stage: Stage) -> ErrorClass:
    if _SYNTAX.search(text):
        return ErrorClass.SYNTAX
    if _API.search(text):
        return ErrorClass.API
    return ErrorClass.API if stage is Stage.STATIC else ErrorClass.BUILD


def _of_run(text: str, evidence: Evidence) -> ErrorClass:
    if evidence.signature in ("shape", "dtype", "count", "device"):
        return ErrorClass.API
    if _MEMORY.search(text) or evidence.signature in PLACE_SIGNATURES:
        return ErrorClass.MEMORY_PATTERN
    return ErrorClass.API if _API.search(text) else ErrorClass.RUNTIME


def key_of(verdict: Verdict) -> str:
    """The identity of a failure: stage, class, signature, and the first compiler line without numbers."""
    evidence = verdict.evidence or Evidence()
    line = evidence.compiler[0] if evidence.compiler else CompilerLine(file="", line=None, message=verdict.reason)
    words = re.sub(r"0x[0-9a-f]+|[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", "#", line.message.lower())
    summary = "" if evidence.signature else words[:160]
    return f"{verdict.stage.value}|{classify(verdict).value}|{evidence.signature or ''}|{summary}"
