"""``%config KernelLab.*``: what a notebook's magics take when the cell does not say it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from traitlets import Bool, CaselessStrEnum, Enum, Float, Int, TraitError, TraitType, Unicode, observe
from traitlets.config import Configurable

from kernellab.errors import KernellabError
from kernellab.options import Entry, Surface, entries
from kernellab.options.design import DesignCall
from kernellab.options.models import ModelOptions

#: the requests whose options for ``%config`` are traits, by who takes them
_REQUESTS = (DesignCall, ModelOptions)


def _trait(entry: Entry) -> TraitType[Any, Any]:
    """An option as a trait; an empty value, of an integer 0, leaves it to ``kernellab.toml`` and to the defaults."""
    sentence = f"{entry.sentence}{f' Default: {entry.default_text}.' if entry.default_text else ''}"
    if entry.choices:
        return CaselessStrEnum(("", *entry.choices), "", help=sentence)
    if entry.kind is int:
        return Int(0, min=0, help=f"{sentence} 0: the default.")
    if entry.kind is float:
        return Float(None, allow_none=True, help=sentence)
    return (
        _Text("", help=sentence) if entry.option.reads is None else _Text("", help=sentence, reads=entry.option.reads)
    )


class _Text(Unicode[str, Any]):
    """A text, and where ``reads`` is given one that it understands."""

    def __init__(self, *args: Any, reads: Callable[[str], object] | None = None, **named: Any) -> None:
        super().__init__(*args, **named)
        self._reads = reads

    def validate(self, obj: Any, value: Any) -> Any:
        text = super().validate(obj, value)
        if text and self._reads is not None:
            try:
                self._reads(text)
            except KernellabError as error:
                raise TraitError(f"{error.message} {error.remedy}") from None
        return text


def _traits() -> dict[str, TraitType[Any, Any]]:
    """A trait for each option of the requests, by name."""
    listed = [entry for model in _REQUESTS for entry in entries(model, Surface.CONFIG)]
    return {entry.name: _trait(entry).tag(config=True) for entry in listed}


if TYPE_CHECKING:
    _Options = Configurable
else:
    _Options = type(Configurable)("Options", (Configurable,), _traits())


class KernelLab(_Options):
    """kernellab in this notebook. A value that is empty leaves it to ``kernellab.toml`` and to the defaults."""

    verbose = Int(0, help="1 shows the Python traceback of an error, 0 one sentence and the remedy.").tag(config=True)
    teaching = Bool(
        False, help="Ask for a prediction before each measurement, and show how predictions and measurements compare."
    ).tag(config=True)
    theme = Enum(("auto", "light", "dark"), "auto", help="The theme of figures; auto: transparent, for both.").tag(
        config=True
    )
    warm = Bool(
        "JUPYTERHUB_USER" not in os.environ,
        help="Start the judge while the first cell is typed (300 MB); off on a JupyterHub, where many share a machine. "
        "Where it is off, a judge that no one asks for two minutes is ended too, elsewhere after ten. "
        "It is read at %load_ext: set it as c.KernelLab.warm in ipython_config.py.",
    ).tag(config=True)
    if TYPE_CHECKING:  # some of the derived ones
        dsl: str
        roles: str
        budget: str

    def given(self, model: type[BaseModel]) -> dict[str, Any]:
        """The options of a request that are set here."""
        set_here = {entry.name: getattr(self, entry.name) for entry in entries(model, Surface.CONFIG)}
        return {
            name: value for name, value in set_here.items() if value is not None and value != self.trait_defaults(name)
        }

    @observe(*(entry.name for entry in entries(ModelOptions, Surface.CONFIG)))
    def _use_models(self, change: Any) -> None:
        """Models of sessions that are running are asked with the new settings from their next turn on."""
        from kernellab.session.config import use_models

        use_models(**self.model_settings())

    @observe("teaching")
    def _teach(self, change: Any) -> None:
        from kernellab.notebook.board.registry import teach_all

        teach_all(bool(change["new"]))

    def model_settings(self) -> dict[str, Any]:
        """Those of :class:`kernellab.models.ModelSettings` that are set here; None takes one back."""
        set_here = self.given(ModelOptions)
        return {entry.name: set_here.get(entry.name) for entry in entries(ModelOptions, Surface.CONFIG)}

    def options(self) -> list[tuple[str, Any, str]]:
        """Name, value and help of each, in order of name."""
        return [(name, getattr(self, name), _help(trait)) for name, trait in sorted(self.traits(config=True).items())]

    @classmethod
    def class_get_trait_help(cls, trait: Any, inst: Any = None, helptext: str | None = None) -> str:
        """What ``%config KernelLab`` shows of one option."""
        help_text: str = super().class_get_trait_help(trait, inst, helptext or _help(trait))
        return help_text


def _help(trait: Any) -> str:
    """An option's help. The DSLs are looked up when they are asked for: a workspace may add some."""
    if trait.name != "dsl":
        return str(trait.help)
    from kernellab.dsls import ADAPTERS

    return f"{trait.help} Here: {', '.join(ADAPTERS)}."
