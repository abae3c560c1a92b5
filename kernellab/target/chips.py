"""The chips that ``knowledge/hardware/*.md`` describes: front matter to :class:`~kernellab.target.Chip`.

To add a chip, add one Markdown file. Its front matter holds ``key: value`` lines: the fields of Chip, a dotted
``peak_flops.<class>`` for each precision class (dense), ``sparse_flops.<class>`` where the chip skips structured zeros,
``match``, the words of the driver's product name, and ``source.<key>``, the origin of each figure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from kernellab.content import content
from kernellab.errors import KernellabError
from kernellab.target.target import Chip

_INTEGERS = frozenset(
    ["cores", "simd_bits", "l1_bytes", "l2_bytes", "l3_bytes", "shared_bytes", "registers_per_core", "memory_bytes"]
)


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
    fields: dict[str, object] = {}
    peaks: dict[str, float] = {}
    sparse: dict[str, float] = {}
    sources: dict[str, str] = {}
    match: tuple[str, ...] = ()
    for number, line in enumerate(head.group(1).splitlines(), start=2):
        key, _, value = (part.strip() for part in line.partition(":"))
        try:
            if not key or key.startswith("#"):
                continue
            if key.startswith("peak_flops."):
                peaks[key.removeprefix("peak_flops.")] = float(value)
            elif key.startswith("sparse_flops."):
                sparse[key.removeprefix("sparse_flops.")] = float(value)
            elif key.startswith("source."):
                sources |= dict.fromkeys((name.strip() for name in key.removeprefix("source.").split("+")), value)
            elif key == "match":
                match = tuple(word.strip().lower() for word in value.split(","))
            elif key == "isa":
                fields[key] = tuple(word.strip() for word in value.split(",") if word.strip())
            elif key in _INTEGERS:
                fields[key] = int(float(value))
            elif key == "bandwidth":
                fields[key] = float(value)
            elif key in ("name", "kind", "source"):
                fields[key] = value
            else:
                raise KernellabError(f"{path}:{number}: {key!r} is not a fact of a chip.", "See kernellab.target.Chip.")
        except ValueError:
            raise KernellabError(f"{path}:{number}: {value!r} is not a number.", f"Fix the value of {key}.") from None
    return ChipFile(Chip(**fields, peak_flops=peaks), match, path, sparse, sources)  # type: ignore[arg-type]


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
