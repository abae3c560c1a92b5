"""Are the numbers of a claim in the record? A claim without a number cannot be checked here, and is not refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: unit -> (kind, factor to the kind's own unit)
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
#: a fact's name that ends so has its kind, when its value is a bare number
_NAMES = {"_ms": ("time", 1.0), "_s": ("time", 1e3), "bytes": ("bytes", 1.0), "flops": ("flops", 1.0),
          "speedup": ("ratio", 1.0), "share": ("share", 1.0), "headroom": ("share", 1.0), "tokens": ("tokens", 1.0),
          "usd": ("money", 1.0)}  # fmt: skip
_NUMBER = re.compile(
    r"(?<![\w.])(?P<money>\$ ?)?(?P<number>[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"(?P<unit> ?(?:[KMGT]?i?B/s|[MGT]?FLOPs?|[kKMG]i?B|ns|us|µs|ms|milliseconds?|seconds?|s|percent|times|tokens|bytes"
    r"|usd|B|x|×|%)(?![\w/]))?(?![\w.]*\w)"
)
#: words that say what a number is measured against or of; a number with one is not the same as with another
_QUALIFIERS = {
    "eager": ("eager", "pytorch"),
    "compile": ("compile", "compiled", "inductor"),
    "bound": ("bound", "roofline", "light"),
    "baseline": ("baseline",),
}


@dataclass(frozen=True)
class Figure:
    """A number in a text: its value in its kind's unit, and half a unit of the last digit that is written."""

    value: float
    kind: str
    slack: float
    text: str
    about: frozenset[str] = frozenset()


def check_claims(claims: Iterable[str], facts: Mapping[str, object]) -> list[tuple[str, bool | None, str]]:
    """For each claim: does the record hold its numbers (None when it has none), and a sentence on why.

    ``facts`` maps a name to a number or to text with numbers and units. A number agrees with a fact of the same kind
    (time, ratio, share, bytes ...) that rounds to what is written; where both say what they are against (eager,
    compile, the bound), that must agree too.
    """
    known = [figure for name, value in facts.items() for figure in _of_fact(name, value)]
    return [(claim, *_judge(claim, known)) for claim in claims]


def _judge(claim: str, known: list[Figure]) -> tuple[bool | None, str]:
    said = figures(claim)
    if not said:
        return None, "It has no number to check."
    unknown: list[str] = []
    for figure in said:
        same = [k for k in known if _comparable(figure, k)]
        if figure.kind == "number" and not any(_agrees(figure, k) for k in same):
            # a count without a unit may be of anything: only a fact of that name can contradict it
            same = [k for k in same if _words(claim) & _words(k.text)]
            if not same:
                unknown.append(figure.text)
                continue
        if not same:
            return False, f"The record has no {_kind_words(figure)}, so {figure.text} is not from it."
        if not any(_agrees(figure, k) for k in same):
            nearest = min(same, key=lambda k: abs(k.value - figure.value))
            return False, f"The record has {nearest.text} where the claim says {figure.text}."
    if unknown:
        return None, f"The record does not say what {', '.join(unknown)} counts."
    return True, "The record holds " + ", ".join(f.text for f in said) + "."


def _words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"[a-z]{3,}", text.lower())}


def figures(text: str) -> list[Figure]:
    """The numbers of a sentence with their units, and what the sentence says they are about."""
    words = set(re.findall(r"[a-z]+", text.lower()))
    about = frozenset(name for name, spellings in _QUALIFIERS.items() if words & set(spellings))
    found = []
    for match in _NUMBER.finditer(text):
        unit = (match["unit"] or "").strip()
        singular = unit if unit in _UNITS else unit.rstrip("s")
        kind, factor = _UNITS.get(singular, ("number", 1.0))
        if match["money"]:
            kind, factor = "money", 1.0
        digits = match["number"].replace(",", "")
        found.append(Figure(float(digits) * factor, kind, _slack(digits) * factor, match.group().strip(), about))
    return found


def _of_fact(name: str, value: object) -> list[Figure]:
    if isinstance(value, bool) or value is None:
        return []
    if not isinstance(value, (int, float)):
        return figures(f"{name}: {value}")
    kind, factor = next((k for ending, k in _NAMES.items() if name.endswith(ending)), ("number", 1.0))
    about = figures(f"{name} 1")[-1].about
    return [Figure(value * factor, kind, 0.0, f"{name.replace('_', ' ')} {value:.6g}", about)]


def _comparable(claim: Figure, fact: Figure) -> bool:
    """A bare number may be any fact's; one with a unit is compared with its own kind."""
    same_kind = claim.kind in (fact.kind, "number")
    apart = claim.about and fact.about and not claim.about & fact.about
    return same_kind and not apart


def _agrees(claim: Figure, fact: Figure) -> bool:
    slack = max(claim.slack, fact.slack, 1e-9 * abs(fact.value))
    if claim.kind == "number" and fact.kind == "share" and abs(claim.value - 100 * fact.value) <= slack:
        return True
    return abs(claim.value - fact.value) <= slack * (1 + 1e-9)


def _slack(digits: str) -> float:
    """Half a unit of the last digit written: 2.9 stands for 2.85 to 2.95."""
    mantissa, _, exponent = digits.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * float(10.0 ** (int(exponent or 0) - decimals))


def _kind_words(figure: Figure) -> str:
    against = f" about {' and '.join(sorted(figure.about))}" if figure.about else ""
    return {"number": "such number", "ratio": "ratio"}.get(figure.kind, figure.kind) + against
