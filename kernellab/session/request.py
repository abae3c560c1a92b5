"""What a call of ``design`` asks for: one record, with its defaults, for every front end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kernellab.agents.briefs import ABLATIONS
from kernellab.agents.roles import Roles, is_model
from kernellab.dsls import get_adapter
from kernellab.errors import SessionError, TargetError
from kernellab.models import Budget
from kernellab.records import Exchange, Role, Source
from kernellab.session.config import Defaults
from kernellab.session.engine.steps import Stops
from kernellab.session.record.records import Created

if TYPE_CHECKING:
    from kernellab.task import Task


@dataclass(frozen=True)
class DesignRequest:
    """A design to begin. What is None is taken from ``[session]`` of ``kernellab.toml``."""

    #: a module's text, a path, or a Task
    task: str | Path | Task
    dsl: str | None = None
    roles: Roles = None
    #: none, routing, all, or a predicate on a finished turn
    approve: str | Stops | None = None
    name: str | None = None
    max_turns: int | None = None
    workspace: str | Path | None = None
    #: block until the session ends or needs a person
    wait: bool = False
    chip: str | None = None
    #: constants of every sketch
    constexpr: Mapping[str, int | float] | None = None
    #: the verifier's options, by name
    options: Mapping[str, Any] | None = None
    #: what a person already has
    sketch: str | None = None
    source: Source | None = None
    #: the Designer, a model, begins by lifting a sketch from ``source``
    lift: bool = False
    #: a new session, though the same call was made before
    fresh: bool = False
    #: time a finished session's best against torch.compile too, in the background
    compare: bool = False
    #: what may be spent: "tokens=200000,usd=1,minutes=30,gpu_s=600"
    budget: str | None = None
    #: go on after a kernel passed, while there is headroom; by default when a model designs or codes
    improve: bool | None = None
    #: parts of the method that are left out (:data:`kernellab.agents.briefs.ABLATIONS`)
    ablation: Iterable[str] = ()
    #: so many points of the rules Designer's schedules are measured, and the fastest taken
    tune: int = 0
    #: "on", "off", a store's place (any URI that LanceDB takes); None: as kernellab.toml says, else where there is one
    memory: str | None = None
    #: nothing that was remembered of the task's own computation is used
    hold_out: bool = False
    #: exchanges that led to the task
    asked: Iterable[Exchange] = ()

    def filled(self, usual: Defaults) -> DesignRequest:
        """With what the workspace says for what the call did not."""
        names = ("dsl", "roles", "approve", "max_turns", "budget", "improve")
        return replace(self, **{name: getattr(usual, name) for name in names if getattr(self, name) is None})

    def check(self, specs: Mapping[Role, str]) -> None:
        """What can be seen to be wrong with the call before anything runs; ``specs`` are its roles, read.

        Raises:
            TargetError, SessionError, ModelError: naming the argument.
        """
        _check_target(self.dsl)
        _check_options(self.options or {})
        Budget.parse(self.budget or "")
        if self.max_turns is not None and self.max_turns < 1:
            raise SessionError(f"max_turns is {self.max_turns}.", "Allow at least one turn.")
        if unknown := sorted(set(self.ablation) - set(ABLATIONS)):
            raise SessionError(f"Unknown part {unknown[0]!r} in without.", f"Choose one of {', '.join(ABLATIONS)}.")
        if self.lift and not is_model(specs[Role.DESIGNER]):
            remedy = "Give roles='designer=model'."
            raise SessionError("Lifting a sketch from a source takes a model as Designer.", remedy)

    def created(self, name: str, text: str, roles: Mapping[Role, str], approval: str) -> Created:
        """The session's first event, with the key that the same call made again has too."""
        usual = Created.model_fields["max_turns"].default
        created = Created(
            name=name,
            text=text,
            key="",
            dsl=self.dsl,
            chip=self.chip,
            roles=dict(roles),
            approval=approval,
            max_turns=self.max_turns if self.max_turns is not None else usual,
            constexpr=dict(self.constexpr or {}),
            options=dict(self.options or {}),
            start_sketch=self.sketch,
            start_source=self.source,
            lift=self.lift,
            budget=self.budget or "",
            improve=self.improve,
            ablation=tuple(sorted(set(self.ablation))),
            tune=self.tune,
            memory=self.memory or "",
            hold_out=self.hold_out,
            version=_version(),
        )
        return created.model_copy(update={"key": _key(created)})


def _key(created: Created) -> str:
    fields = created.model_dump(
        mode="json",
        exclude={
            "time", "key", "approval", "previous", "max_turns", "budget", "lift", "improve", "ablation", "tune",
            "memory", "hold_out",
        },
    )  # fmt: skip
    # what a call did not say leaves the key as it was before it could be said
    late = ("lift", "improve", "ablation", "tune", "memory", "hold_out")
    fields |= {name: value for name in late if (value := getattr(created, name))}
    if created.roles.get(Role.ANALYST) == "rules":
        del fields["roles"][Role.ANALYST.value]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _version() -> str:
    try:
        return version("kernellab")
    except PackageNotFoundError:
        return ""


def _check_options(options: Mapping[str, Any]) -> None:
    from kernellab.verifier.protocol.options import VerifyOptions

    try:
        VerifyOptions.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        raise SessionError(
            f"The option {first['loc'][0]!r} cannot be {first['input']!r}.", f"{first['msg']}."
        ) from None


def _check_target(dsl: str | None) -> None:
    if dsl is None:
        return
    adapter = get_adapter(dsl)
    ready = adapter.readiness()
    if not ready.ready:
        raise TargetError(ready.reason, ready.remedy)
