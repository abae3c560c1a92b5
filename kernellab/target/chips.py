"""The chips that ``knowledge/hardware/*.md`` describes: front matter to :class:`~kernellab.target.Chip`.

To add a chip, add one Markdown file. Its front matter holds ``key: value`` lines: the fields of Chip, a dotted
``peak_flops.<class>`` for each precision class (dense), ``sparse_flops.<class>`` where the chip skips structured zeros,
``match``, the words of the driver's product name, and ``source.<key>``, the origin of each figure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from kernellab.content import content
from kernellab.errors import KernellabError
from kernellab.target.target import Chip

_INTEGERS = frozenset(
    ["cores", "simd_bits", "l1_bytes", "l2_bytes", "l3_bytes", "shared_bytes", "registers_per_core", "memory_bytes"]
)


def _words(value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


#: field of a chip -> the function that reads its value
_READERS: Mapping[str, Callable[[str], object]] = {
    "name": str,
    "kind": str,
    "source": str,
    "bandwidth": float,
    "isa": _words,
    # 1e9 is written for a large number
    **dict.fromkeys(_INTEGERS, lambda value: int(float(value))),
}


@dataclass(frozen=True)
class ChipFile:
    """One file: the chip, and the lower-case words that a product name must all contain."""

    chip: Chip
    match: tuple[str, ...]
    path: Path
    #: FLOP/s with two of four values zero; not used for a bound
    sparse_flops: Mapping[str, float] = field(default_factory=dict)
    #: fact -> URL or words; ``peak_flops`` stands for all its classes
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def unsourced(self) -> tuple[str, ...]:
        """Return the figures of the file without a source."""
        facts = [name for name in (*sorted(_INTEGERS), "bandwidth") if getattr(self.chip, name)]
        facts += ["peak_flops"] if self.chip.peak_flops else []
        facts += ["sparse_flops"] if self.sparse_flops else []
        return tuple(name for name in facts if name not in self.sources)


def read_chip(path: Path) -> ChipFile:
    """Return the chip that a file describes.

    Raises:
        KernellabError: no front matter, an unknown key, or a value that is not a number.
    """
    text = path.read_text(encoding="utf-8")
    head = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    if head is None:
        raise KernellabError(f"{path} has no front matter.", "Begin it with '---', key: value lines, '---'.")
    facts = _Facts()
    for number, line in enumerate(head.group(1).splitlines(), start=2):
        key, _, value = (part.strip() for part in line.partition(":"))
        if not key or key.startswith("#"):
            continue
        try:
            is_fact = facts.add(key, value)
        except ValueError:
            raise KernellabError(f"{path}:{number}: {value!r} is not a number.", f"Fix the value of {key}.") from None
        if not is_fact:
            raise KernellabError(f"{path}:{number}: {key!r} is not a fact of a chip.", "See kernellab.target.Chip.")
    chip = Chip(**facts.fields, peak_flops=facts.peak_flops)  # type: ignore[arg-type]
    return ChipFile(chip, facts.match, path, facts.sparse_flops, facts.sources)


@dataclass
class _Facts:
    """The facts of the lines read so far, by kind of key."""

    fields: dict[str, object] = field(default_factory=dict)
    peak_flops: dict[str, float] = field(default_factory=dict)
    sparse_flops: dict[str, float] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    match: tuple[str, ...] = ()

    def add(self, key: str, value: str) -> bool:
        """Add one line; False for an unknown key. Raises ValueError: the value is not a number."""
        if key in _READERS:
            self.fields[key] = _READERS[key](value)
        elif key == "match":
            self.match = tuple(word.lower() for word in _words(value))
        elif key.startswith("peak_flops."):
            self.peak_flops[key.removeprefix("peak_flops.")] = float(value)
        elif key.startswith("sparse_flops."):
            self.sparse_flops[key.removeprefix("sparse_flops.")] = float(value)
        elif key.startswith("source."):
            facts = key.removeprefix("source.").split("+")
            self.sources |= dict.fromkeys((fact.strip() for fact in facts), value)
        else:
            return False
        return True


@lru_cache(maxsize=1)
def known_chips() -> tuple[ChipFile, ...]:
    """Return every chip file, by name."""
    return tuple(read_chip(path) for path in sorted(content("knowledge").joinpath("hardware").glob("*.md")))


def find_chip(product: str) -> Chip | None:
    """Return the chip whose ``match`` words are all in a product name, the one with the most words; None without a
    match."""
    name = product.lower()
    fitting = [entry for entry in known_chips() if entry.match and all(word in name for word in entry.match)]
    return max(fitting, key=lambda entry: len(entry.match)).chip if fitting else None
