"""TOLERANCE, PRECISION, DOMAIN and STATIC of a task's module, checked and normalised."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernellab.errors import TaskError
from kernellab.task.task import Arg

OPERATOR_CLASSES = ("matmul", "conv")
PRECISIONS = ("ieee", "tf32", "bf16x3", "bf16x6", "tf32x3", "bf16", "f16")
#: what a result may be off by: its relative norm, and the share of elements with a larger error
_TOLERANCES = ("floor", "tau")
#: words of DOMAIN without arguments
DOMAINS = ("prob", "unit", "positive", "nonnegative", "sorted", "fixed", "real")
_WITH_ARGUMENTS = re.compile(r"(index|range)\(([^()]*)\)")


@dataclass(frozen=True)
class Domain:
    """One word of DOMAIN with its arguments: numbers, or expressions over Dims."""

    word: str
    arguments: tuple[str, ...] = ()

    @property
    def interval(self) -> tuple[float, float]:
        """Return the ends of a ``range(a, b)``, both included. Raises ValueError for other arguments."""
        low, high = map(float, self.arguments)
        return low, high


def read_domain(text: str) -> Domain | None:
    """Return the domain that ``text`` states; None for an unknown one."""
    if text in DOMAINS:
        return Domain(text)
    match = _WITH_ARGUMENTS.fullmatch(text)
    if match is None:
        return None
    domain = Domain(match[1], tuple(part.strip() for part in match[2].split(",")))
    try:
        return domain if domain.word == "index" or domain.interval else None
    except ValueError:
        return None


@dataclass(frozen=True)
class Policy:
    precision: Mapping[str, str] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    domain: Mapping[str, str] = field(default_factory=dict)
    static: tuple[str, ...] = ()


def read_policy(namespace: Mapping[str, Any], args: Sequence[Arg]) -> Policy:
    """Return the four optional declarations of a task.

    Raises:
        TaskError: a declaration of the wrong form, or one with an unknown argument.
    """
    names = [a.name for a in args]
    return Policy(
        _precision(namespace.get("PRECISION")),
        _tolerance(namespace.get("TOLERANCE")),
        _domain(namespace.get("DOMAIN"), names),
        _static(namespace.get("STATIC"), names),
    )


def _precision(stated: Any) -> dict[str, str]:
    if stated is None:
        return {}
    table = dict.fromkeys(OPERATOR_CLASSES, stated) if isinstance(stated, str) else stated
    remedy = (
        f"Write PRECISION = {{'matmul': 'ieee'}}, with {', '.join(PRECISIONS)} for {' or '.join(OPERATOR_CLASSES)}."
    )
    if not isinstance(table, Mapping):
        raise TaskError("PRECISION is neither a word nor a dictionary.", remedy)
    for operator, word in table.items():
        if operator not in OPERATOR_CLASSES or word not in PRECISIONS:
            raise TaskError(f"PRECISION says {operator!r}: {word!r}, which is not known.", remedy)
    return dict(table)


def _tolerance(stated: Any) -> dict[str, float]:
    if stated is None:
        return {}
    table = stated if isinstance(stated, Mapping) else {"floor": stated}
    for name, value in table.items():
        if name not in _TOLERANCES or isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise TaskError(
                f"TOLERANCE says {name!r}: {value!r}, which is not known.",
                "Write TOLERANCE = 1e-3, the relative error of the whole result, or {'floor': 1e-3, 'tau': 5e-2}; "
                "there are no rtol and atol of single elements.",
            )
    return {k: float(v) for k, v in table.items()}


def _domain(stated: Any, names: Sequence[str]) -> dict[str, str]:
    if stated is None:
        return {}
    if not isinstance(stated, Mapping):
        raise TaskError("DOMAIN is not a dictionary.", "Write DOMAIN = {'p': 'prob'}.")
    for name, word in stated.items():
        _known(name, names, "DOMAIN")
        if not isinstance(word, str) or read_domain(word) is None:
            raise TaskError(
                f"DOMAIN says {name!r}: {word!r}, which is not known.",
                f"Use {', '.join(DOMAINS)}, index(N) or range(a, b).",
            )
    return dict(stated)


def _static(stated: Any, names: Sequence[str]) -> tuple[str, ...]:
    if stated is None:
        return ()
    listed = (stated,) if isinstance(stated, str) else tuple(stated) if isinstance(stated, (tuple, list, set)) else None
    if listed is None:
        raise TaskError("STATIC is not a list of argument names.", "Write STATIC = ['w'].")
    for name in listed:
        _known(name, names, "STATIC")
    return tuple(n for n in names if n in listed)


def _known(name: Any, names: Sequence[str], where: str) -> None:
    if name not in names:
        raise TaskError(f"{where} names {name!r}, which is not an argument.", f"The arguments are {', '.join(names)}.")
