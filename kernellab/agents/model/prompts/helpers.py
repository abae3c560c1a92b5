"""The helpers of lowered code, as one page of signatures extracted from their text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from kernellab.models.tokens import estimate

#: A function or macro at the outermost level of a header, with the line of its template if it has one.
_C = re.compile(
    r"^(?:template <(?P<parameters>[^\n]*)>[ \n])?(?:(?:KL_INLINE|inline|static inline|__device__[\w ]*)\s+"
    r"(?P<signature>[^\n{;]*?\b(?P<name>\w+)\([^{;]*?\))\s*(?:\{|;)|#define (?P<macro>(?P<word>KL_\w+)\([^)]*\)))",
    re.MULTILINE,
)
_PYTHON = re.compile(r"^def (?P<signature>(?P<name>\w+)\([^\n]*\)):", re.MULTILINE)
_BUDGET = 320
#: Maximum number of characters of a comment that is quoted completely.
_SAID = 90
#: Files with functions on single numbers.
_NUMBERS = re.compile(r"_(math|special|half)\.")


def is_helper(name: str) -> bool:
    """Whether the file is included in every lowered source of its language."""
    return PurePosixPath(name).name.startswith("kl_")


def helpers_page(files: Mapping[str, str], main: str) -> str:
    """Return the signatures of the helpers that ``main`` calls, in about 450 tokens.

    ``files`` are a lowered source's, including its helpers; the result is empty if it has none. Helpers on tiles
    precede those on numbers, and comments are omitted before signatures.
    """
    used_names = set(re.findall(r"\b(?:kl::)?(\w+)\s*[(<]", main))
    called: dict[str, tuple[str, str]] = {}
    for file, text in sorted(files.items(), key=lambda item: (bool(_NUMBERS.search(item[0])), item[0])):
        if not is_helper(file):
            continue
        functions = _functions(file, text)
        for name, signature, comment in functions:
            if name in used_names:
                called.setdefault(name, (f"{signature};", comment))
    lines = _within([signature for signature, _ in called.values()], _BUDGET)
    remaining = _BUDGET - sum(estimate(line) + 1 for line in lines)
    for number, (_, comment) in enumerate(list(called.values())[: len(lines)]):
        if comment and (remaining := remaining - estimate(comment) - 2) >= 0:
            lines[number] += f"  // {comment}"
    return "\n".join(lines)


def _functions(file: str, text: str) -> list[tuple[str, str, str]]:
    """The (name, signature, first sentence of the comment above) of each function."""
    pattern = _PYTHON if file.endswith(".py") else _C
    functions = []
    for match in pattern.finditer(text):
        parts = match.groupdict()
        name = parts["name"] or parts.get("word") or ""
        signature = " ".join((parts.get("signature") or parts.get("macro") or "").split())
        if parameters := _chosen(parts.get("parameters") or "", signature):
            signature = f"template <{parameters}> {signature}"
        functions.append((name, signature, _comment(text[: match.start()])))
    return functions


def _chosen(parameters: str, signature: str) -> str:
    """A template's parameters if a caller must give one because the arguments do not determine it."""
    arguments = signature[signature.find("(") :]
    names = [part.split("=")[0].split()[-1].lstrip(".") for part in parameters.split(",") if part.strip()]
    return parameters if any(not re.search(rf"\b{name}\b", arguments) for name in names) else ""


def _comment(before: str) -> str:
    """The first sentence of the comment that ends at the function, or the first part of a long one."""
    lines: list[str] = []
    for line in reversed(before.rstrip("\n").splitlines()):
        if not line.startswith(("// ", "# ")) or "--" in line:
            break
        lines.insert(0, line.lstrip("/# ").strip())
    if not lines:
        return ""
    sentence = re.split(r"(?<=[a-z\])])[.;] ", " ".join(lines).replace("``", "`"))[0].rstrip(".")
    if len(sentence) <= _SAID:
        return sentence
    # text after a colon is an explanation; otherwise cut at a clause
    cut = re.search(r": ", sentence[:_SAID]) or re.search(r"[;,] (?!.*[;,] )", sentence[:_SAID])
    return sentence[: cut.start()] if cut else sentence


def _within(lines: list[str], budget: int) -> list[str]:
    result: list[str] = []
    for line in lines:
        budget -= estimate(line) + 1
        if budget < 0:
            break
        result.append(line)
    return result
