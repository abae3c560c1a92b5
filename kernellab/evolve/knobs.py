"""Checks a search's knobs: their values, and the names of policies and operators in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernellab.errors import EvolveError
from kernellab.evolve.policies import POLICIES
from kernellab.evolve.vary import models, rules
from kernellab.models import Budget
from kernellab.options import build
from kernellab.options.file import choose
from kernellab.options.search import Knobs


def make_knobs(usual: Knobs, changed: Mapping[str, Any]) -> Knobs:
    """Raise EvolveError for an unknown knob or an invalid value, and KernellabError for an invalid budget."""
    if unknown := sorted(set(changed) - set(Knobs.model_fields)):
        raise EvolveError(f"A search has no knob {unknown[0]!r}.", choose(unknown[0], Knobs.model_fields))
    return checked(build(Knobs, {**usual.model_dump(), **changed}, EvolveError, "knob"))


def checked(knobs: Knobs) -> Knobs:
    """Check the knobs' names and return the knobs. Raises like :func:`make_knobs`."""
    _check_operators(knobs.operators)
    if knobs.select not in POLICIES:
        raise EvolveError(f"There is no policy {knobs.select!r}.", choose(knobs.select, POLICIES))
    Budget.parse(knobs.budget)
    return knobs


def _check_operators(named: Sequence[str]) -> None:
    """Raise EvolveError for a name that is neither an operator nor a kind; models' names are not known in advance."""
    names = list(dict.fromkeys([rules.KIND, models.KIND, *rules.operators()]))
    unknown = [name for name in named if name not in names and not name.startswith(("model", "agent:", "replay:"))]
    if unknown:
        raise EvolveError(f"There is no operator {unknown[0]!r}.", f"Name some of {', '.join(names)}.")
