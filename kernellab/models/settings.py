"""The model of each role, and its time limits. Contains no key, only the place of one (``keys.py``)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError, field_validator

from kernellab.errors import ModelError, ModelFault, refused
from kernellab.models.exchanges import Usage
from kernellab.models.keys import read_key
from kernellab.options import REQUEST
from kernellab.options.file import FILE, closest
from kernellab.options.models import ModelOptions
from kernellab.records import Role

#: The roles that a model can play.
MODEL_ROLES = (Role.DESIGNER, Role.CODER, Role.CONDUCTOR, Role.ANALYST)
#: A role's settings that affect requests to its model.
_ASKED = (
    "temperature", "max_tokens", "seed", "top_p", "reasoning_effort", "prompt_tokens", "extra_body", "headers",
    "organisation",
)  # fmt: skip
_OPENAI = "https://api.openai.com/v1"
_HOW = (
    "Set KERNELLAB_MODEL_URL, KERNELLAB_MODEL and, where the endpoint needs one, KERNELLAB_MODEL_KEY; "
    f"or write base_url and model under [models] in {FILE}."
)


class Price(BaseModel):
    """US dollars per million tokens. ``cached`` is for cached input; None means the input's price."""

    model_config = REQUEST

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)

    def of(self, usage: Usage) -> float:
        """The cost of ``usage`` in US dollars."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(usage.input_tokens - usage.cached_tokens, 0)
        return (fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output) / 1e6


class RoleSettings(ModelOptions):
    """One role's own settings; None uses the common one. A role with its own endpoint has its own key."""

    @field_validator("base_url")
    @classmethod
    def _address(cls, address: str | None) -> str | None:
        if address is None:
            return None
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it should be a web address such as http://localhost:8000/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("it may hold no user name, password, query or fragment; a key is named by key_env")
        return address.rstrip("/")

    @field_validator("key_env")
    @classmethod
    def _name(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,63}", name):
            raise ValueError("it should be the NAME of an environment variable, in capitals, not the key itself")
        return name

    @field_validator("headers")
    @classmethod
    def _no_key(cls, headers: dict[str, str] | None) -> dict[str, str] | None:
        if any(re.search(r"authori[sz]ation|key|token|secret|cookie", name, re.IGNORECASE) for name in headers or ()):
            raise ValueError("a header may hold no key; name the key's variable in key_env")
        for name, value in (headers or {}).items():
            if not re.fullmatch(r"[\w.-]+", name, re.ASCII) or not re.fullmatch(r"[ -~]*", value):
                raise ValueError(f"{name!r} is no header: letters, digits and signs of ASCII, on one line, are")
        return headers

    @field_validator("organisation")
    @classmethod
    def _one_line(cls, organisation: str | None) -> str | None:
        if organisation is not None and not re.fullmatch(r"[!-~]*", organisation):
            raise ValueError("it should be the organisation's name of ASCII letters, digits and signs, without spaces")
        return organisation

    @field_validator("extra_body")
    @classmethod
    def _not_ours(cls, body: dict[str, Any] | None) -> dict[str, Any] | None:
        if reserved := {"model", "messages", "stream"} & set(body or ()):
            raise ValueError(f"it may not replace {min(reserved)}")
        return body


class ModelSettings(RoleSettings):
    """All settings of models. Seconds are wall time.

    A key is sent only to the address next to it in the settings: OPENAI_API_KEY to OPENAI_BASE_URL or api.openai.com
    unless ``key_env`` names it, and a role with its own ``base_url`` does not get the common key.
    """

    roles: dict[Role, RoleSettings] = Field(
        default_factory=dict,
        description="a table for a role, with a model, base_url, key_env and so on that differ from the common ones",
    )
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description="the price of a model, by its name or a pattern with *: input, output and cached, US dollars a "
        "million tokens; a model without one costs None, not zero",
    )
    connect_s: float = Field(default=10, gt=0, description="seconds until the endpoint is connected")
    first_token_s: float = Field(
        default=300, gt=0,
        description="seconds from the request to the first token; models that reason in silence need minutes",
    )  # fmt: skip
    stall_s: float = Field(default=60, gt=0, description="seconds between two tokens")
    total_s: float = Field(default=1200, gt=0, description="seconds of one request with all its retries")
    concurrency: int = Field(default=4, ge=1, description="requests at the same time to one endpoint")
    retries: int = Field(default=4, ge=0, description="further attempts after a fault that may pass")
    retry_s: float = Field(
        default=0.5, gt=0, description="seconds of the first pause before a retry, doubled each time"
    )
    retry_max_s: float = Field(
        default=60, gt=0, description="seconds of the longest pause that is taken, also when the server asks for more"
    )
    max_reply_chars: int = Field(
        default=1_000_000, ge=1, description="a longer reply is stopped: a model that repeats itself never ends"
    )

    tools: bool = Field(default=False, description="a model may call kernellab's tools before it answers")
    tool_calls: int = Field(default=24, ge=1, description="calls of tools in one turn")
    tool_tokens: int = Field(default=200_000, ge=1, description="tokens that a turn with tools may take in all")
    tool_s: float = Field(default=900, gt=0, description="seconds after which a turn's model must answer")

    @field_validator("roles")
    @classmethod
    def _can_speak(cls, roles: dict[Role, RoleSettings]) -> dict[Role, RoleSettings]:
        if Role.VERIFIER in roles:
            raise ValueError("the Verifier is never played by a model")
        return roles

    @classmethod
    def load(cls, workspace: Path | None = None, **given: Any) -> ModelSettings:
        """Load the settings: the environment, then ``[models]`` of ``kernellab.toml``, then ``given`` (None is not
        given).

        The environment: KERNELLAB_MODEL_URL, KERNELLAB_MODEL_KEY, KERNELLAB_MODEL, each also with the suffix _DESIGNER,
        _CODER, _CONDUCTOR or _ANALYST; without any address, OPENAI_BASE_URL and OPENAI_API_KEY. ``workspace`` is the
        folder of the file; by default the nearest parent folder that has one.

        Raises:
            ModelError: the file or a value is invalid; the message names it and never quotes it.
        """
        settings: dict[str, Any] = {}
        origin = "the environment"
        for origin, values in (
            ("the environment", _from_environment()),
            (FILE, _from_file(workspace)),
            ("the values given", {name: value for name, value in given.items() if value is not None}),
        ):
            settings = _merged(settings, values)
            cls._checked(settings, origin)
        return cls._checked(_with_openai(settings), origin)

    @classmethod
    def _checked(cls, values: Mapping[str, Any], where: str) -> ModelSettings:
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            name = ".".join(str(part) for part in first["loc"])
            reason, remedy = refused(first, "it"), "Fix it there."
            if first["type"] == "extra_forbidden":
                last = name.rsplit(".", 1)[-1]
                is_key = last in ("key", "api_key", "token", "secret")
                reason = "a key does not belong there; name its variable in key_env" if is_key else "no such setting"
                remedy = (not is_key and closest(last, ModelSettings.model_fields)) or remedy
            raise ModelError(
                ModelFault.CONFIG, f"In {where}, the model setting {name!r} is wrong: {reason}.", remedy
            ) from None

    def endpoint(self, role: Role, model: str | None = None) -> Endpoint:
        """Return the endpoint of ``role``, with ``model`` instead of the configured one if given. Reads the key.

        Raises:
            ModelError: there is no address or model, or the key is not where the settings say.
        """
        role_settings = self.roles.get(role, RoleSettings())
        address = role_settings.base_url or self.base_url
        model = model or role_settings.model or self.model
        if address is None:
            raise ModelError(ModelFault.CONFIG, f"No endpoint is configured for the {role.value}.", _HOW)
        if not model:
            raise ModelError(
                ModelFault.CONFIG, f"No model is named for the {role.value} at {_host(address)}.",
                "Set KERNELLAB_MODEL, or say model:NAME.",
            )  # fmt: skip
        key_settings: RoleSettings = (
            self
            if role_settings.base_url is None and not (role_settings.key_env or role_settings.key_file)
            else role_settings
        )
        return Endpoint(
            base_url=address,
            model=model,
            key=read_key(key_settings.key_env or "", key_settings.key_file),
            **{name: getattr(self if getattr(role_settings, name) is None else role_settings, name) for name in _ASKED},
        )

    def price(self, model: str) -> Price | None:
        """The price of ``model``: by its name, otherwise by the first matching pattern."""
        if model in self.prices:
            return self.prices[model]
        return next((price for pattern, price in self.prices.items() if fnmatchcase(model, pattern)), None)


@dataclass(frozen=True)
class Endpoint:
    """One model at one address. The key is not in the repr."""

    base_url: str
    model: str
    key: str | None = field(repr=False)
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    top_p: float | None = None
    reasoning_effort: str | None = None
    prompt_tokens: int | None = None
    extra_body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None
    organisation: str | None = None

    @property
    def asked(self) -> tuple[str, ...]:
        """The settings that affect requests: names of settings, and of entries of ``extra_body``."""
        names = ("temperature", "max_tokens", "seed", "top_p", "reasoning_effort")
        return (*(name for name in names if getattr(self, name) is not None), *(self.extra_body or ()))

    @property
    def host(self) -> str:
        return _host(self.base_url)


@dataclass(frozen=True)
class Configured:
    """One role as ``kernellab doctor`` shows it; ``reason`` says why it is not ready, with the remedy."""

    role: Role
    model: str
    host: str
    ready: bool
    reason: str


def configured(settings: ModelSettings | None = None) -> list[Configured]:
    """Each role that a model can play: its model, address, and readiness. Sends no request; contains no key."""
    try:
        settings = settings or ModelSettings.load()
    except ModelError as error:
        return [Configured(role, "", "", False, str(error)) for role in MODEL_ROLES]
    rows = []
    for role in MODEL_ROLES:
        role_settings = settings.roles.get(role, RoleSettings())
        model, address = role_settings.model or settings.model or "", role_settings.base_url or settings.base_url
        reason = ""
        try:
            settings.endpoint(role)
        except ModelError as error:
            reason = str(error)
        rows.append(Configured(role, model, _host(address) if address else "", not reason, reason))
    return rows


def _host(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _from_environment() -> dict[str, Any]:
    names = {"KERNELLAB_MODEL": "model", "KERNELLAB_MODEL_URL": "base_url"}
    values: dict[str, Any] = {}
    for role in (None, *MODEL_ROLES):
        suffix = f"_{role.value.upper()}" if role else ""
        settings = {field: os.environ[name + suffix] for name, field in names.items() if os.environ.get(name + suffix)}
        key = f"KERNELLAB_MODEL_KEY{suffix}"
        if os.environ.get(key):
            settings["key_env"] = key
        if role is None:
            values |= settings
        elif settings:
            values.setdefault("roles", {})[role.value] = settings
    return values


def _from_file(workspace: Path | None) -> dict[str, Any]:
    start = (workspace or Path.cwd()).resolve()
    folders = (start, *start.parents) if workspace is None else (start,)
    path = next((folder / FILE for folder in folders if (folder / FILE).is_file()), None)
    if path is None:
        return {}
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        models = tomllib.loads(path.read_text(encoding="utf-8")).get("models", {})
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise ModelError(ModelFault.CONFIG, f"{path} cannot be read: {error}.", "Fix the file.") from None
    if not isinstance(models, dict):
        raise ModelError(ModelFault.CONFIG, f"[models] in {path} should be a table.", "Write it as [models].")
    return models


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``above`` over ``below``, tables entry by entry. A key setting replaces the other's variable and file."""
    merged = dict(below)
    if above.get("key_env") or above.get("key_file"):
        merged.pop("key_env", None)
        merged.pop("key_file", None)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _with_openai(settings: dict[str, Any]) -> dict[str, Any]:
    """Use OPENAI_* if no address is set, and its key only for its own address."""
    openai_url = os.environ.get("OPENAI_BASE_URL") or _OPENAI
    has_key = bool(os.environ.get("OPENAI_API_KEY"))
    if "base_url" not in settings and (has_key or os.environ.get("OPENAI_BASE_URL")):
        settings = {**settings, "base_url": openai_url}
    no_key = not (settings.get("key_env") or settings.get("key_file"))
    if has_key and no_key and str(settings.get("base_url", "")).rstrip("/") in (openai_url.rstrip("/"), _OPENAI):
        settings = {**settings, "key_env": "OPENAI_API_KEY"}
    return settings
