"""The request of a ``design`` call: one record, with its defaults, for every front end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from pydantic import ConfigDict, ValidationError

from kernellab.agents.roles import is_model
from kernellab.content import installed
from kernellab.dsls import get_adapter
from kernellab.errors import SessionError, TargetError, refused
from kernellab.models import Budget
from kernellab.models.exchanges import Exchange
from kernellab.options.design import ABLATIONS, DesignCall, DesignOptions
from kernellab.records import Role, Source
from kernellab.session.record.events import Created
from kernellab.verifier.remote import check as check_where

if TYPE_CHECKING:
    from kernellab.task import Task

    TaskLike = Union[str, Path, Task]
else:
    TaskLike = Any


class DesignRequest(DesignCall):
    """A design to begin: its options and the additional arguments of a call from Python."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    #: A module's text, a path, or a Task.
    task: TaskLike = ""
    name: str | None = None
    workspace: str | Path | None = None
    #: Block until the session ends or needs a person.
    wait: bool = False
    #: The person's existing sketch and source, if any.
    sketch: str | None = None
    source: Source | None = None
    #: Also time a finished session's best against torch.compile, in the background.
    compare: bool = False
    #: Exchanges that led to the task.
    asked: tuple[Exchange, ...] = ()

    def filled(self, usual: DesignCall) -> DesignRequest:
        """Return the request with the workspace's values for options that the call did not set."""
        missing = usual.model_fields_set - self.model_fields_set
        return self.model_copy(update={name: getattr(usual, name) for name in missing})

    def check(self, specs: Mapping[Role, str]) -> None:
        """Check the call before anything runs; ``specs`` are its parsed roles.

        Raises:
            TargetError, SessionError, ModelError: an argument is invalid; the message names it.
        """
        if self.target:
            check_where(self.target)
            if self.dsl is not None:
                get_adapter(self.dsl)  # the other machine checks its readiness
        else:
            _check_target(self.dsl)
        _check_options(self.options)
        Budget.parse(self.budget)
        if unknown := sorted(set(self.ablation) - set(ABLATIONS)):
            raise SessionError(f"Unknown part {unknown[0]!r} in without.", f"Choose one of {', '.join(ABLATIONS)}.")
        if self.lift and not is_model(specs[Role.DESIGNER]):
            remedy = "Give roles='designer=model'."
            raise SessionError("Lifting a sketch from a source takes a model as Designer.", remedy)
        if self.counters and self.target:
            raise SessionError("A GPU's counters are read on this machine only.", "Leave out counters or target.")
        if self.counters:
            from kernellab.lens.counters.preflight import preflight

            if not (ready := preflight()).ncu:
                raise SessionError(ready.reason, ready.remedy)

    def created(self, name: str, text: str, roles: Mapping[Role, str], approval: str) -> Created:
        """The session's first event, with a key that is equal for a repetition of the same call."""
        options = {option: getattr(self, option) for option in DesignOptions.model_fields}
        created = Created(
            **{**options, "ablation": tuple(sorted(set(self.ablation)))},
            name=name,
            text=text,
            key="",
            roles=dict(roles),
            approval=approval,
            start_sketch=self.sketch,
            start_source=self.source,
            version=installed(),
        )
        return created.model_copy(update={"key": _key(created)})


#: Options that may differ in a call that continues the same session.
_MAY_DIFFER = {"max_turns", "budget"}
#: Options that are part of every key. Others are included only if not the default, so that a new option does not
#: change the keys of calls without it.
_FIRST = {"dsl", "chip", "constexpr", "options"}


def _key(created: Created) -> str:
    optional = set(DesignOptions.model_fields) - _FIRST - _MAY_DIFFER
    default_of = {name: field.default for name, field in DesignOptions.model_fields.items()}
    omitted = {name for name in optional if getattr(created, name) in (default_of[name], False)}
    fields = created.model_dump(mode="json", exclude={"time", "key", "approval", "previous", *_MAY_DIFFER, *omitted})
    if created.roles.get(Role.ANALYST) == "rules":
        del fields["roles"][Role.ANALYST.value]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _check_options(options: Mapping[str, Any]) -> None:
    from kernellab.verifier.protocol.options import VerifyOptions

    try:
        VerifyOptions.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        raise SessionError(
            f"The option {first['loc'][0]!r} cannot be {first['input']!r}.", f"{refused(first)}."
        ) from None


def _check_target(dsl: str | None) -> None:
    if dsl is None:
        return
    adapter = get_adapter(dsl)
    ready = adapter.readiness()
    if not ready.ready:
        raise TargetError(ready.reason, ready.remedy)
