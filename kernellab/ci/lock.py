"""Figures that a team has accepted, by class of machine and kernel: ``kernels.lock``, a file in its repository."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from kernellab.errors import KernellabError
from kernellab.records import Environment, Record
from kernellab.records.standing import Standing

_FORMAT = 1
#: figures of one kernel that are kept, the newest last
_KEPT = 20


class Figure(Record):
    """A kernel's speedup over eager with its 95 % interval, its time in ms, and what was measured when (UTC)."""

    at: str
    speedup: float
    low: float
    high: float
    time_ms: float
    source: str
    kernellab: str

    @property
    def standing(self) -> Standing:
        return Standing.of(self.speedup, self.low, self.high)

    @property
    def text(self) -> str:
        return f"{self.speedup:.2f}x [{self.low:.2f}, {self.high:.2f}]"


class Lock(Record):
    """``machines``: class of machine -> kernel -> its figures, the accepted one last."""

    format: int = _FORMAT
    machines: dict[str, dict[str, tuple[Figure, ...]]] = Field(default_factory=dict)

    def history(self, machine: str, name: str) -> tuple[Figure, ...]:
        return self.machines.get(machine, {}).get(name, ())

    def with_figure(self, machine: str, name: str, figure: Figure) -> Lock:
        history = (*self.history(machine, name), figure)[-_KEPT:]
        return self.model_copy(
            update={"machines": {**self.machines, machine: {**self.machines.get(machine, {}), name: history}}}
        )

    @property
    def text(self) -> str:
        ordered = {m: dict(sorted(kernels.items())) for m, kernels in sorted(self.machines.items())}
        return self.model_copy(update={"machines": ordered}).model_dump_json(indent=1) + "\n"


def read_lock(path: Path, missing_is_empty: bool = False) -> Lock:
    """The lock in a file.

    Raises:
        KernellabError: there is none (unless ``missing_is_empty``), or it is no lock of this format.
    """
    if not path.exists():
        if missing_is_empty:
            return Lock()
        raise KernellabError(f"The lock {path} does not exist.", "Record one with --update.")
    try:
        lock = Lock.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise KernellabError(
            f"{path} is not a lock of kernellab ({type(error).__name__}).", "Record it again with --update."
        ) from None
    if lock.format != _FORMAT:
        raise KernellabError(f"{path} has the format {lock.format}; {_FORMAT} is read here.", "Record it again.")
    return lock


def machine_class(environment: Environment) -> str:
    """What figures can be compared across: the chip, the backend and the threads."""
    return f"{environment.chip or 'unknown chip'}, {environment.backend}, {environment.threads} threads"
