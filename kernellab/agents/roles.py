"""Who plays a role: ``rules | human | model[:name] | replay:FILE``, and the objects behind those words.

To add a variant, write one class that follows the role's protocol in :mod:`kernellab.agents.briefs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Union

from kernellab.errors import SessionError
from kernellab.records import Role

#: the roles that a person may hand out; the Verifier is nobody's to replace
ASSIGNABLE = (Role.DESIGNER, Role.CODER, Role.CONDUCTOR)
VARIANTS = ("rules", "human", "model", "replay")

_RULES = {
    Role.DESIGNER: ("kernellab.agents.designer", "RulesDesigner"),
    Role.CODER: ("kernellab.agents.coder", "RulesCoder"),
    Role.CONDUCTOR: ("kernellab.agents.conductor", "RulesConductor"),
}

#: a spec for every role, a spec or an object for some, or "designer=human,coder=rules"
Roles = Union[str, Mapping[str, Any], None]


def parse_roles(roles: Roles) -> tuple[dict[Role, str], dict[Role, Any]]:
    """The spec of each role, and the role objects that were given instead of words.

    Raises:
        SessionError: an unknown role or variant, or one that is not built yet.
    """
    specs = dict.fromkeys(ASSIGNABLE, "rules")
    objects: dict[Role, Any] = {}
    for name, value in _pairs(roles):
        for role in ASSIGNABLE if name is None else (parse_role(name),):
            if isinstance(value, str):
                specs[role] = check_spec(value)
            else:
                specs[role] = f"object:{type(value).__name__}"
                objects[role] = value
    return specs, objects


def parse_role(name: str | Role) -> Role:
    """The assignable role of that name. Raises SessionError, with the nearest name."""
    word = name.value if isinstance(name, Role) else str(name).strip().lower()
    for role in ASSIGNABLE:
        if role.value == word:
            return role
    raise SessionError(f"There is no role {name!r} to hand out.", _nearest(word, [role.value for role in ASSIGNABLE]))


def check_spec(spec: str) -> str:
    """``spec`` when it can play a role here.

    Raises:
        SessionError: an unknown variant, or one that is not built yet.
    """
    variant = spec.strip().partition(":")[0]
    if variant in ("rules", "human") and spec.strip() == variant:
        return variant
    if variant in ("model", "replay"):
        raise SessionError(f"The role variant {spec!r} is not built yet.", "Use rules or human.")
    raise SessionError(f"There is no role variant {spec!r}.", _nearest(variant, VARIANTS))


def make_role(role: Role, spec: str) -> Any:
    """The object that plays ``role``; its module is imported here, so that a session starts without torch.

    Raises:
        SessionError: ``spec`` names a person, or an object that another process held.
    """
    if spec != "rules":
        raise SessionError(
            f"The {role.value} was {spec.removeprefix('object:')}, which this process does not have.",
            f"Give the role anew: set_role({role.value!r}, 'rules').",
        )
    module, cls = _RULES[role]
    return getattr(import_module(module), cls)()


def _pairs(roles: Roles) -> list[tuple[str | None, Any]]:
    if roles is None:
        return []
    if isinstance(roles, Mapping):
        return [(str(getattr(name, "value", name)), value) for name, value in roles.items()]
    pairs: list[tuple[str | None, Any]] = []
    for part in filter(None, (part.strip() for part in roles.split(","))):
        name, sign, value = part.partition("=")
        pairs.append((name.strip(), value.strip()) if sign else (None, name))
    return pairs


def _nearest(word: str, known: list[str] | tuple[str, ...]) -> str:
    near = get_close_matches(word, known, n=1, cutoff=0.5)
    choose = f"Choose one of {', '.join(known)}."
    return f"Did you mean {near[0]!r}? {choose}" if near else choose
