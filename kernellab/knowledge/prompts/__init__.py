"""What a model is asked by this room, one file each."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, StrictUndefined

_ENVIRONMENT = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)


def prompt(name: str, **values: str) -> str:
    """The prompt ``name`` with its values filled in."""
    text = files(__name__).joinpath(f"{name}.j2").read_text(encoding="utf-8")
    return _ENVIRONMENT.from_string(text).render(**values)
