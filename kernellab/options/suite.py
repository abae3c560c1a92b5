"""The options of a suite's run: ``kernellab bench`` is derived from them, and :func:`kernellab.bench.run.run_suite`
takes them."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Union

from pydantic import BaseModel, Field, field_validator

from kernellab.errors import KernellabError, TaskError
from kernellab.options.design import AllowLibrary, Tune
from kernellab.options.entry import REQUEST, Option, Surface
from kernellab.options.fidelity import FIDELITIES, PRECISION, STRICT

#: seconds for one problem, a session with all its verifications
DEADLINE = 900.0
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_COMMAND = Option(on=Surface.COMMAND)


def parse_bytes(text: str) -> int:
    """``"64M"`` -> 67108864; units K, M, G (powers of 1024), with or without B.

    Raises:
        TaskError: it is not such a number.
    """
    word = text.strip().lower().removesuffix("b").removesuffix("i")
    factor = _UNITS.get(word[-1:], 1)
    try:
        value = int(float(word.rstrip("kmg")) * factor)
    except ValueError:
        value = 0
    if value <= 0:
        raise TaskError(f"{text!r} is not a number of bytes.", "Write for example 64M or 1G.")
    return value


class SuiteTasks(BaseModel):
    """Which tasks of a suite are run."""

    model_config = REQUEST
    OPTION: ClassVar[Option] = _COMMAND

    level: tuple[Annotated[int, Field(ge=1, le=3)], ...] = Field(default=(), description="KernelBench's level, 1 to 3")
    limit: Union[int, None] = Field(default=None, ge=1, description="only the first N tasks")
    only: str = Field(
        default="",
        description="only tasks whose category/name matches this regular expression, or numbers: 3,67,77-100",
    )


class SuiteRequest(BaseModel):
    """How a suite is run; ``dsl``, ``roles``, ``max_turns``, ``tune`` and ``allow_library`` are the arguments of
    :func:`kernellab.session.design` of that name.

    Tasks of fixed shapes whose tensors take more than ``max_bytes`` are cut along their batch dimensions. Not given,
    that is 64 MiB on a CPU for a KernelBench problem and no limit on a GPU; under Triton's interpreter it is never
    more than 1 MiB. ``workers`` processes (default: by the cores) each take one problem at a time, ``deadline``
    seconds at most. With ``quick_first`` the problems that cost least are begun first; after ``minutes`` none is begun
    any more.
    """

    model_config = REQUEST
    OPTION: ClassVar[Option] = _COMMAND

    dsl: Annotated[Union[str, None], Option(on=Surface.COMMAND, default="triton with a GPU, else cpp")] = Field(
        default=None, description="the DSL of the kernels: triton, cpp or cuda_c"
    )
    roles: Annotated[Union[str, None], Option(on=Surface.COMMAND, default="rules")] = Field(
        default=None, description='who does what: "rules", or "designer=rules,coder=rules"'
    )
    max_turns: int = Field(default=20, ge=1, description="stop a session after this many turns")
    workers: Annotated[Union[int, None], Option(on=Surface.COMMAND, default="by the cores")] = Field(
        default=None, ge=1, description="problems designed at once; one is timed at a time"
    )
    deadline: float = Field(default=DEADLINE, ge=1.0, description="seconds for one problem")
    allow_library: AllowLibrary = False
    #: strict: right to 1e-4 compared with float32 eager, as KernelBench checks
    precision: Annotated[str, Option(on=Surface.COMMAND, choices=FIDELITIES)] = Field(
        default=STRICT, description=f"how near float32 results must come; {PRECISION}"
    )
    tune: Tune = ""
    memory: str = Field(
        default="",
        description="a memory's place, or on for this workspace's; a task's own computation is held out",
    )
    quick_first: bool = Field(default=False, description="start with the cheapest problems, by their shapes")
    dry: bool = Field(default=False, description="read, audit, design and gate each task; build and time nothing")
    minutes: Union[float, None] = Field(
        default=None, ge=0.0, description="start no problem after this many minutes; the report says what was not run"
    )
    max_bytes: Annotated[
        Union[str, None], Option(on=Surface.COMMAND, default="64M for KernelBench on a CPU, else no limit")
    ] = Field(default=None, description="cut static tasks along their batch to this many bytes")
    resume: bool = Field(
        default=False,
        description="keep the folder's rows that passed at this precision and run the others; without it all rows move "
        "to rows.before.jsonl",
    )

    @field_validator("max_bytes")
    @classmethod
    def _is_bytes(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                parse_bytes(value)
        except KernellabError as error:
            raise ValueError(f"{error.message} {error.remedy}") from None
        return value

    @property
    def limit_bytes(self) -> int:
        """``max_bytes`` as a number; 0 for none."""
        return parse_bytes(self.max_bytes) if self.max_bytes else 0

    @property
    def seconds(self) -> float:
        """The time after which no problem is begun, in seconds."""
        return math.inf if self.minutes is None else 60 * self.minutes
