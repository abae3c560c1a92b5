"""Who plays a role: ``rules | human | model[:name] | agent:NAME | replay:FILE``, and the corresponding objects.

``model:A>model:B>rules`` is a list: each player is asked if the one before did not answer.

To add a variant, write one class that follows the role's protocol in :mod:`kernellab.agents.briefs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Union

from kernellab.errors import SessionError
from kernellab.records import Role

#: The roles that a person may assign; the Verifier cannot be replaced.
ASSIGNABLE = (Role.DESIGNER, Role.CODER, Role.CONDUCTOR, Role.ANALYST)
VARIANTS = ("rules", "human", "model", "agent", "replay")

_RULES = {
    Role.DESIGNER: ("kernellab.agents.rules.designer", "RulesDesigner"),
    Role.CODER: ("kernellab.agents.rules.coder", "RulesCoder"),
    Role.CONDUCTOR: ("kernellab.agents.rules.conductor", "RulesConductor"),
    Role.ANALYST: ("kernellab.agents.rules.analyst", "RulesAnalyst"),
}

_MODELS = {
    Role.DESIGNER: ("kernellab.agents.model", "ModelDesigner"),
    Role.CODER: ("kernellab.agents.model", "ModelCoder"),
    Role.CONDUCTOR: ("kernellab.agents.model", "ModelConductor"),
    Role.ANALYST: ("kernellab.agents.model", "ModelAnalyst"),
}

#: A spec for every role, a spec or an object for some, or "designer=human,coder=rules".
Roles = Union[str, Mapping[str, Any], None]


def parse_roles(roles: Roles) -> tuple[dict[Role, str], dict[Role, Any]]:
    """Return the spec of each role, and the role objects that were given instead of specs.

    Raises:
        SessionError: the role or variant is unknown, or cannot play here.
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
    """Return the assignable role of that name. Raises SessionError, with the nearest name."""
    role_name = name.value if isinstance(name, Role) else str(name).strip().lower()
    for role in ASSIGNABLE:
        if role.value == role_name:
            return role
    raise SessionError(f"Unknown role {name!r}.", _nearest(role_name, [role.value for role in ASSIGNABLE]))


def check_spec(spec: str) -> str:
    """Return ``spec`` if it can play a role here; a replay's file is returned as an absolute path.

    Raises:
        SessionError: the variant is unknown, or the replay file does not exist.
    """
    spec = spec.strip()
    if ">" in spec:
        return _checked_list(spec)
    variant, sign, rest = spec.partition(":")
    if variant in ("rules", "human") and not sign:
        return variant
    if variant == "model":
        if sign and not rest.strip():
            raise SessionError("The role 'model:' names no model.", "Write model, or model:NAME.")
        return f"model:{rest.strip()}" if sign else "model"
    if variant == "agent":
        if not rest.strip():
            raise SessionError("The role 'agent' names no agent.", "Write agent:NAME, for a table [agents.NAME].")
        return f"agent:{rest.strip()}"
    if variant == "replay":
        return f"replay:{_replay_file(rest.strip())}"
    raise SessionError(f"Unknown role variant {spec!r}.", _nearest(variant, VARIANTS))


def _checked_list(spec: str) -> str:
    players = [check_spec(part) for part in spec.split(">")]
    if "human" in players:
        raise SessionError(
            f"A person cannot be in the list {spec!r}.",
            "List models and rules; a person takes a role over at any time.",
        )
    return ">".join(players)


def players_of(spec: str) -> tuple[str, ...]:
    """The players of a role, in the order in which they are asked: one, or those of a list."""
    return tuple(spec.split(">"))


def is_model(spec: str) -> bool:
    """Whether a model, live or replayed, or an agent plays the role, or is in its list."""
    return any(player.partition(":")[0] in ("model", "agent", "replay") for player in players_of(spec))


def is_agent(spec: str) -> bool:
    """Whether the player is an agent's program."""
    return spec.startswith("agent:")


def make_role(role: Role, spec: str, talk: Any = None, knowledge: Any = None) -> Any:
    """Return the object that plays ``role``; its module is imported here, so that a session starts without torch.

    A model sends requests through ``talk`` (:class:`kernellab.models.Talk`) and quotes from ``knowledge``.

    Raises:
        SessionError: ``spec`` is a person, or an object that belongs to another process.
    """
    players = _MODELS if is_model(spec) and talk is not None else _RULES if spec == "rules" else None
    if players is None:
        raise SessionError(
            f"The {role.value} was {spec.removeprefix('object:')}, which this process does not have.",
            f"Set the role again: set_role({role.value!r}, 'rules').",
        )
    module, cls = players[role]
    player = getattr(import_module(module), cls)
    return player(talk, knowledge) if players is _MODELS else player()


def _replay_file(name: str) -> Path:
    if not name:
        raise SessionError("The role 'replay:' names no file.", "Write replay:FILE, a file of recorded exchanges.")
    path = Path(name).expanduser().resolve()
    if not path.is_file():
        raise SessionError(
            f"There is no file {name} to replay.", "Write one with `kernellab replay export SESSION --out FILE`."
        )
    return path


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
