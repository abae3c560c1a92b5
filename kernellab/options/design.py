"""The options of a design and of a verification.

Each is a field here: ``kernellab design`` and ``verify``, the magics, ``%config KernelLab``, ``[session]`` of
``kernellab.toml``, ``--help`` and the reference page are derived from it, and so are the arguments of
:func:`kernellab.session.design` and what a session's journal keeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Union

from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator

from kernellab.errors import KernellabError
from kernellab.options.approval import APPROVALS, Approval
from kernellab.options.entry import CALL, EVERYWHERE, REQUEST, Option, Surface
from kernellab.options.fidelity import FIDELITIES, PRECISION

#: parts of the method that ``without`` leaves out, so that their worth can be measured
ABLATIONS = ("gate", "routing", "sketch", "examples", "intermediates", "profile")
#: the trust levels, and words for them
LEVELS = ("T0", "T1", "T2", "T3", "T4")
LEVEL_WORDS = {"quick": "T1", "normal": "T2", "sealed": "T3", "thorough": "T4"}

#: points that a search bounded by seconds measures at most
_MOST_POINTS = 1000


def tuning_limit(text: str) -> tuple[int, float]:
    """Points and seconds that a search for the fastest schedule may take, of "8" or "20s"; no points of "".

    Raises:
        KernellabError: neither form.
    """
    digits = text.removesuffix("s") or "0"
    if not (digits.isascii() and digits.isdigit()) or text == "s":
        raise KernellabError(f"tune is {text!r}.", "Give a number of points, as 8, or seconds, as 20s.")
    number = int(digits)
    return (_MOST_POINTS if number else 0, float(number)) if text.endswith("s") else (number, math.inf)


def _tuning(value: object) -> object:
    """A number of points as text; "" for none."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return value
    try:
        return text if tuning_limit(text)[0] else ""
    except KernellabError as error:
        raise ValueError(f"{error.message} {error.remedy}") from None


Chip = Annotated[
    Union[str, None],
    Field(description="the chip to design for, by a name of knowledge/hardware"),
    Option(default="this machine's"),
]
TargetAt = Annotated[
    str,
    Field(description="the machine whose judge decides: ssh://HOST[:PORT][/PYTHON] or dask://HOST:PORT"),
    Option(on=EVERYWHERE, metavar="WHERE", default="this one"),
]
AllowLibrary = Annotated[
    bool, Field(description="accept kernels that call the framework's library, and label them so"), Option()
]
Tune = Annotated[
    str,
    Field(
        description="measure points of the rules' schedules first, and take the fastest: so many (8), or for so many "
        "seconds (20s)"
    ),
    BeforeValidator(_tuning),
    Option(metavar="N|Ns", reads=tuning_limit),
]
Precision = Annotated[
    str,
    Field(description=f"how near float32 results must come; {PRECISION}"),
    Option(choices=FIDELITIES, default="framework"),
]


class DesignOptions(BaseModel):
    """What a design is begun with and its journal keeps. A default here stands where a call says nothing."""

    model_config = REQUEST

    dsl: Annotated[Union[str, None], Option(on=EVERYWHERE, default="triton with a GPU, else cpp")] = Field(
        default=None,
        description="the DSL of the kernel: triton, cpp or cuda_c, with a model as Coder any DSL that has documents",
    )
    chip: Chip = None
    target: TargetAt = ""
    max_turns: Annotated[int, Option(on=EVERYWHERE, metavar="N")] = Field(
        default=20, ge=1, description="begin no design or code after this many turns"
    )
    #: constants of every sketch
    constexpr: Annotated[dict[str, Union[int, float]], Option(flag="set", metavar="NAME=VALUE")] = Field(
        default_factory=dict, description="the value of a constexpr of every sketch"
    )
    #: the verifier's options, by name
    options: dict[str, Any] = Field(default_factory=dict)
    lift: Annotated[bool, Option(on=Surface.COMMAND)] = Field(
        default=False, description="have the Designer, a model, lift a sketch from the --from source in any case"
    )
    budget: Annotated[str, Option(on=EVERYWHERE)] = Field(
        default="",
        description="what may be spent: tokens=200000,usd=1,minutes=30,gpu_s=600; "
        "a request that does not fit is not sent",
    )
    improve: Annotated[Union[bool, None], Option(on=CALL | Surface.FILE, default="when a model designs or codes")] = (
        Field(default=None, description="continue after a kernel has passed, while there is headroom")
    )
    ablation: Annotated[tuple[str, ...], Option(flag="without", metavar="PART")] = Field(
        default=(), description=f"leave a part of the method out: {', '.join(ABLATIONS)}"
    )
    tune: Tune = ""
    memory: Annotated[str, Option(default="as kernellab.toml says, else the workspace's where there is one")] = Field(
        default="", description="the memory of verified kernels: on, off, or a store's place"
    )
    tools: Annotated[bool, Option()] = Field(
        default=False, description="a model may call kernellab's tools before it answers; bounds are under [models]"
    )
    counters: Annotated[bool, Option()] = Field(
        default=False,
        description="read a GPU's counters of each kernel that passed, for the prompts: I trust what my "
        "models write, it runs once more under ncu with my own rights, outside the sandbox",
    )
    #: nothing that was remembered of the task's own computation is used: a benchmark's rule
    hold_out: bool = False


class DesignCall(DesignOptions):
    """A design as a person calls it; what a call leaves out is as ``kernellab.toml`` says, else the default."""

    roles: Annotated[Any, Option(on=EVERYWHERE, default="rules")] = Field(
        default=None,
        description='who does what: "rules", "model", "human", "agent:NAME", or "designer=model:NAME,coder=replay:FILE"'
        '; "model:A>rules" falls back',
    )
    approve: Annotated[
        Any,
        Option(
            on=EVERYWHERE & ~Surface.COMMAND, metavar="WHEN", examples=APPROVALS, reads=Approval.parse, default="none"
        ),
    ] = Field(
        default=None,
        description="where a session stops and asks: none, routing (each proposal), all (each turn); or after a role's "
        "turns and before a turn expected to cost more than a limit: coder,tokens=10k,usd=0.1,minutes=1",
    )
    fresh: Annotated[bool, Option(on=Surface.MAGIC)] = Field(
        default=False, description="start a new session; the one that the same call started before is kept"
    )

    @model_validator(mode="before")
    @classmethod
    def _said(cls, values: Any) -> Any:
        """An argument that is None is one that the call leaves out."""
        return {k: v for k, v in values.items() if v is not None} if isinstance(values, Mapping) else values


class VerificationOptions(BaseModel):
    """How a kernel is judged, in a design or by itself."""

    model_config = REQUEST

    baseline: Annotated[tuple[str, ...], Option(metavar="WHAT", default="eager")] = Field(
        default=(), description="time against it too: eager, compile, max-autotune, or the file of a kernel of yours"
    )
    level: Annotated[str, Option(choices=(*LEVELS, *LEVEL_WORDS))] = Field(
        default="T2",
        description="how far the verdict can be trusted: T0 static only, T1 quick, T2 normal (isolated), T3 sealed, "
        "T4 thorough (reproduced by another judge)",
    )
    repeat: Annotated[int, Option(metavar="N")] = Field(
        default=1, ge=1, description="how many times to repeat the timing"
    )
    allow_library: AllowLibrary = False
    precision: Precision = ""
    sanitize: bool = Field(
        default=False,
        description="have compute-sanitizer look for accesses out of bounds and races (GPUs; from T3 on it looks for "
        "accesses by itself, where it is installed)",
    )

    @field_validator("level", mode="before")
    @classmethod
    def _level(cls, level: object) -> object:
        return LEVEL_WORDS.get(level, level) if isinstance(level, str) else level


class DesignVerification(VerificationOptions):
    """How the kernels of a design are judged."""

    baseline: Annotated[
        tuple[str, ...],
        Option(metavar="WHAT", default="eager", magic_default="eager, and torch.compile when the session has ended"),
    ] = Field(default=(), description=VerificationOptions.model_fields["baseline"].description)


class CheckCall(VerificationOptions):
    """A repository's kernels, verified for CI."""

    min_speedup: Annotated[Union[float, None], Option(on=Surface.COMMAND, metavar="X")] = Field(
        default=None, ge=0, description="fail a kernel whose speedup over eager is certainly below X"
    )
    lock: Annotated[Union[Path, None], Option(on=Surface.COMMAND)] = Field(
        default=None, description="accepted figures: fail a kernel that is certainly slower than there"
    )
    update: Annotated[bool, Option(on=Surface.COMMAND)] = Field(
        default=False, description="record the figures of the kernels that pass in the lock"
    )
    junit: Annotated[Union[Path, None], Option(on=Surface.COMMAND)] = Field(
        default=None, description="write JUnit's XML there"
    )
    summary: Annotated[Union[Path, None], Option(on=Surface.COMMAND)] = Field(
        default=None, description="write a summary in Markdown there, with the lock's history"
    )
    unsandboxed: Annotated[bool, Option(on=Surface.COMMAND)] = Field(
        default=False, description="run kernels on a machine without a sandbox: you trust their authors"
    )


class RankCall(BaseModel):
    """A ranking of kernels as a person calls it."""

    model_config = REQUEST
    OPTION: ClassVar[Option] = Option(on=Surface.COMMAND)

    dsl: Annotated[Union[str, None], Option(on=Surface.COMMAND, default="detected")] = Field(
        default=None, description="the DSL of the sources"
    )
    allow_library: AllowLibrary = False
    unsandboxed: bool = Field(
        default=False,
        description="run them without a sandbox, which this machine does not have: you trust their authors",
    )


class VerifyCall(VerificationOptions):
    """A verification as a person calls it."""

    dsl: Annotated[Union[str, None], Option(default="detected", magic_default="detected, else the session's")] = Field(
        default=None, description="the DSL of the source"
    )
    target: Annotated[TargetAt, Option(metavar="WHERE", default="this one", magic_default="the session's")] = ""
    constants: Annotated[dict[str, Union[int, float]], Option(on=Surface.COMMAND, flag="set", metavar="NAME=VALUE")] = (
        Field(default_factory=dict, description="the value of a constant that the source defines")
    )
    unsandboxed: Annotated[bool, Option()] = Field(
        default=False, description="run it without a sandbox, which this machine does not have: you trust its author"
    )
