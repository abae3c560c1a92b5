"""Selection of parents. A policy is one module with one function, and one entry in :data:`POLICIES`."""

from __future__ import annotations

from kernellab.evolve.policies.beam import BEAM
from kernellab.evolve.policies.greedy import GREEDY
from kernellab.evolve.policies.islands import ISLANDS
from kernellab.evolve.policies.lfbo import LFBO
from kernellab.evolve.policies.map_elites import MAP_ELITES
from kernellab.evolve.policies.policy import Policy, Request
from kernellab.evolve.policies.ucb import UCB
from kernellab.evolve.policies.uniform import UNIFORM

POLICIES: dict[str, Policy] = {p.name: p for p in (ISLANDS, UCB, BEAM, GREEDY, MAP_ELITES, LFBO, UNIFORM)}

__all__ = ["POLICIES", "Policy", "Request"]
