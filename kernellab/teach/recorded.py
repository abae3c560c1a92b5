"""Measurements of a lesson that were taken on a chip which the learner may not have, kept next to the notebooks.

``notebooks/replays/measured.json`` holds a row for each cell ``%%kernel_measure NAME --on CHIP``, with the hash of the
cell's text: a changed sketch has no recording. ``tests/gpu/teach_gpu.py`` writes the rows on such a chip.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from kernellab.content import content
from kernellab.errors import CourseError
from kernellab.records import Record
from kernellab.target import Target
from kernellab.teach.progress import text_hash

FILE = Path("replays") / "measured.json"


class Recording(Record):
    """One measurement. ``text`` is the cell's hash, ``against`` the comparison with eager in words, ``date`` ISO."""

    name: str
    task: str
    text: str
    chip: str
    dsl: str
    ms: float
    speedup: float | None = None
    against: str = ""
    date: str
    versions: str

    @property
    def sentence(self) -> str:
        baseline = f", {self.against}" if self.against else ""
        return f"{self.name}: {self.ms:.3g} ms{baseline}"

    @property
    def mark(self) -> str:
        """What is said of every figure that this machine did not measure."""
        return f"Recorded on one {self.chip} on {self.date} ({self.versions}); this machine did not measure it."


_ROWS = TypeAdapter(list[Recording])


def recordings(file: Path | None = None) -> list[Recording]:
    """All rows; none where the file is missing.

    Raises:
        CourseError: the file cannot be read.
    """
    place = file or content("notebooks") / FILE
    if not place.exists():
        return []
    try:
        return _ROWS.validate_json(place.read_bytes())
    except ValidationError as error:
        raise CourseError(f"{place} cannot be read: {error.errors()[0]['msg']}.", "Copy the file again.") from None


def write(rows: list[Recording], file: Path) -> None:
    """Keep the rows, one a line, so that a change shows as lines."""
    ordered = sorted(rows, key=lambda row: (row.chip, row.task, row.name))
    lines = ",\n".join(row.model_dump_json() for row in ordered)
    file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def recording(name: str, text: str, chip: str) -> Recording | None:
    """The row of that measurement; None where it was not made yet.

    Raises:
        CourseError: the recording is of another text.
    """
    named = [row for row in recordings() if row.name == name and row.chip == chip]
    found = next((row for row in named if row.text == text_hash(text)), None)
    if found is not None:
        return found
    if named:
        raise CourseError(
            f"{name} was recorded on an {chip} with another text than this cell's.",
            "Put the cell's text back, or leave out --on to measure it here.",
        )
    return None


def mark_of(name: str, chip: str) -> str:
    """What is said of figures that come from that measurement; "" where it was not made."""
    wanted = chip_name(chip)
    return next((row.mark for row in recordings() if row.name == name and row.chip == wanted), "")


def here(chip: str) -> Target | None:
    """The Target of that chip, where this machine has it; None elsewhere. Raises TargetError: no such chip is known."""
    from kernellab.dsls.machine import detect_target, gpu_chip, named_chip
    from kernellab.target.chips import find_chip

    wanted, found = named_chip(chip), gpu_chip()
    # the driver's name has more words than the description's ("NVIDIA H100 80GB HBM3")
    known = find_chip(found.name) if found is not None else None
    return detect_target("triton") if known is not None and known.name == wanted.name else None


def chip_name(chip: str) -> str:
    """The chip's full name. Raises TargetError: no such chip is known."""
    from kernellab.dsls.machine import named_chip

    return named_chip(chip).name
