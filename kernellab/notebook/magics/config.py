"""``%config KernelLab.*``: what a notebook's magics take when the cell does not say it."""

from __future__ import annotations

from typing import Any

from traitlets import Bool, CaselessStrEnum, Enum, Float, Int, Unicode, observe
from traitlets.config import Configurable

APPROVALS = ("none", "routing", "all")


class KernelLab(Configurable):
    """kernellab in this notebook. A value that is empty leaves it to ``kernellab.toml`` and to the defaults."""

    verbose = Int(0, help="1 shows the Python traceback of an error, 0 one sentence and the remedy.").tag(config=True)
    dsl = Unicode("", help="DSL of the kernels; empty: triton with a GPU, else cpp.").tag(config=True)
    approve = CaselessStrEnum(
        ("", *APPROVALS), "", help="Where a session stops and asks: none, routing (each proposal), all (each turn)."
    ).tag(config=True)
    roles = Unicode(
        "", help="Who does what: rules, model, or designer=human,coder=model:NAME,conductor=replay:FILE."
    ).tag(config=True)
    budget = Unicode("", help="What a session may spend: tokens=200000,usd=1,minutes=10.").tag(config=True)
    max_turns = Int(0, min=0, help="Turns without a person after which a session stops; 0: the default.").tag(
        config=True
    )
    teaching = Bool(
        False, help="Ask for a prediction before each measurement, and show how predictions and measurements compare."
    ).tag(config=True)
    model = Unicode("", help="The model that a role `model` asks, by the endpoint's name for it.").tag(config=True)
    base_url = Unicode("", help="Address of an OpenAI-compatible endpoint: http://localhost:8000/v1.").tag(config=True)
    key_env = Unicode("", help="The environment variable that holds the endpoint's key; never the key.").tag(
        config=True
    )
    temperature = Float(None, allow_none=True, help="Sampling temperature; empty: the model's own.").tag(config=True)
    theme = Enum(("auto", "light", "dark"), "auto", help="The theme of figures; auto: transparent, for both.").tag(
        config=True
    )

    @observe("model", "base_url", "key_env", "temperature")
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
        return {
            "model": self.model or None,
            "base_url": self.base_url or None,
            "key_env": self.key_env or None,
            "temperature": self.temperature,
        }

    def options(self) -> list[tuple[str, Any, str]]:
        """Name, value and help of each, in order of name."""
        return [(name, getattr(self, name), _help(trait)) for name, trait in sorted(self.traits(config=True).items())]

    @classmethod
    def class_get_trait_help(cls, trait: Any, inst: Any = None, helptext: str | None = None) -> str:
        """What ``%config KernelLab`` shows of one option."""
        told: str = super().class_get_trait_help(trait, inst, helptext or _help(trait))
        return told


def _help(trait: Any) -> str:
    """An option's help. The DSLs are looked up when they are asked for: a workspace may add some."""
    if trait.name != "dsl":
        return str(trait.help)
    from kernellab.dsls import ADAPTERS

    return f"{trait.help} Here: {', '.join(ADAPTERS)}."
