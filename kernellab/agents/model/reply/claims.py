"""Checks a claim's numbers against the record. A claim without a number cannot be checked, and is not refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Unit -> (kind, factor to the kind's base unit).
_UNITS: Mapping[str, tuple[str, float]] = {
    "ns": ("time", 1e-6), "us": ("time", 1e-3), "µs": ("time", 1e-3), "ms": ("time", 1.0), "s": ("time", 1e3),
    "seconds": ("time", 1e3), "second": ("time", 1e3), "milliseconds": ("time", 1.0),
    "x": ("ratio", 1.0), "×": ("ratio", 1.0), "times": ("ratio", 1.0),
    "%": ("share", 0.01), "percent": ("share", 0.01),
    "B": ("bytes", 1.0), "bytes": ("bytes", 1.0), "kB": ("bytes", 1e3), "KB": ("bytes", 1e3), "KiB": ("bytes", 2.0**10),
    "MB": ("bytes", 1e6), "MiB": ("bytes", 2.0**20), "GB": ("bytes", 1e9), "GiB": ("bytes", 2.0**30),
    "FLOP": ("flops", 1.0), "MFLOP": ("flops", 1e6), "GFLOP": ("flops", 1e9), "TFLOP": ("flops", 1e12),
    "GB/s": ("rate", 1e9), "MB/s": ("rate", 1e6), "TB/s": ("rate", 1e12),
    "tokens": ("tokens", 1.0), "usd": ("money", 1.0),
}  # fmt: skip
#: Suffix of a fact's name -> its kind, if its value is a plain number.
_NAMES = {"_ms": ("time", 1.0), "_s": ("time", 1e3), "bytes": ("bytes", 1.0), "flops": ("flops", 1.0),
          "speedup": ("ratio", 1.0), "share": ("share", 1.0), "headroom": ("share", 1.0), "tokens": ("tokens", 1.0),
          "usd": ("money", 1.0)}  # fmt: skip
_NUMBER = re.compile(
    r"(?<![\w.])(?P<money>\$ ?)?(?P<number>[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"(?P<unit> ?(?:[KMGT]?i?B/s|[MGT]?FLOPs?|[kKMG]i?B|ns|us|µs|ms|milliseconds?|seconds?|s|percent|times|tokens|bytes"
    r"|usd|B|x|×|%)(?![\w/]))?(?![\w.]*\w)"
)
#: Words that state the reference of a number; numbers with different references are not comparable.
_QUALIFIERS = {
    "eager": ("eager", "pytorch"),
    "compile": ("compile", "compiled", "inductor"),
    "bound": ("bound", "roofline", "light"),
    "baseline": ("baseline",),
}


@dataclass(frozen=True)
class Figure:
    """A number in a text: its value in its kind's base unit, and half a unit of its last digit."""

    value: float
    kind: str
    slack: float
    text: str
    about: frozenset[str] = frozenset()


def check_claims(claims: Iterable[str], facts: Mapping[str, object]) -> list[tuple[str, bool | None, str]]:
    """For each claim: whether the record contains its numbers (None if it has none), and a sentence with the reason.

    ``facts`` maps a name to a number or to text with numbers and units. A number agrees with a fact of the same kind
    (time, ratio, share, bytes ...) that rounds to the written value; if both state a reference (eager, compile, the
    bound), the references must agree too.
    """
    known_figures = [figure for name, value in facts.items() for figure in _of_fact(name, value)]
    return [(claim, *_judge(claim, known_figures)) for claim in claims]


def _judge(claim: str, known: list[Figure]) -> tuple[bool | None, str]:
    claimed = figures(claim)
    if not claimed:
        return None, "It has no number to check."
    unknown: list[str] = []
    for figure in claimed:
        comparable = [k for k in known if _comparable(figure, k)]
        if figure.kind == "number" and not any(_agrees(figure, k) for k in comparable):
            # a count without a unit may refer to anything: only a fact of that name can contradict it
            comparable = [k for k in comparable if _words(claim) & _words(k.text)]
            if not comparable:
                unknown.append(figure.text)
                continue
        if not comparable:
            return False, f"The record has no {_kind_words(figure)}, so {figure.text} is not from it."
        if not any(_agrees(figure, k) for k in comparable):
            nearest = min(comparable, key=lambda k: abs(k.value - figure.value))
            return False, f"The record has {nearest.text} where the claim says {figure.text}."
    if unknown:
        return None, f"The record does not say what {', '.join(unknown)} counts."
    return True, "The record holds " + ", ".join(f.text for f in claimed) + "."


def _words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"[a-z]{3,}", text.lower())}


def figures(text: str) -> list[Figure]:
    """The numbers of a sentence with their units, and the references that the sentence names."""
    words = set(re.findall(r"[a-z]+", text.lower()))
    about = frozenset(name for name, spellings in _QUALIFIERS.items() if words & set(spellings))
    result = []
    for match in _NUMBER.finditer(text):
        unit = (match["unit"] or "").strip()
        singular = unit if unit in _UNITS else unit.rstrip("s")
        kind, factor = _UNITS.get(singular, ("number", 1.0))
        if match["money"]:
            kind, factor = "money", 1.0
        digits = match["number"].replace(",", "")
        result.append(Figure(float(digits) * factor, kind, _slack(digits) * factor, match.group().strip(), about))
    return result


def _of_fact(name: str, value: object) -> list[Figure]:
    if isinstance(value, bool) or value is None:
        return []
    if not isinstance(value, (int, float)):
        return figures(f"{name}: {value}")
    kind, factor = next((k for ending, k in _NAMES.items() if name.endswith(ending)), ("number", 1.0))
    about = figures(f"{name} 1")[-1].about
    return [Figure(value * factor, kind, 0.0, f"{name.replace('_', ' ')} {value:.6g}", about)]


def _comparable(claim: Figure, fact: Figure) -> bool:
    """Whether two figures are comparable: a plain number with any fact, one with a unit only with its kind."""
    same_kind = claim.kind in (fact.kind, "number")
    is_other = claim.about and fact.about and not claim.about & fact.about
    return same_kind and not is_other


def _agrees(claim: Figure, fact: Figure) -> bool:
    slack = max(claim.slack, fact.slack, 1e-9 * abs(fact.value))
    if claim.kind == "number" and fact.kind == "share" and abs(claim.value - 100 * fact.value) <= slack:
        return True
    return abs(claim.value - fact.value) <= slack * (1 + 1e-9)


def _slack(digits: str) -> float:
    """Half a unit of the last digit: 2.9 represents 2.85 to 2.95."""
    mantissa, _, exponent = digits.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * float(10.0 ** (int(exponent or 0) - decimals))


def _kind_words(figure: Figure) -> str:
    reference = f" about {' and '.join(sorted(figure.about))}" if figure.about else ""
    return {"number": "such number", "ratio": "ratio"}.get(figure.kind, figure.kind) + reference
