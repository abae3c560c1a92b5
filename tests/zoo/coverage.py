"""Which exploit of the catalogue is shown by which exhibit, and why the rest is not."""

from __future__ import annotations

from .exhibit import catalogue, exhibits


def coverage() -> str:
    """A table: number, exploit, exhibits with where they can run, or the reason that there is none."""
    shown: dict[int, list[str]] = {}
    for exhibit in exhibits():
        for number in exhibit.card.catalogue:
            shown.setdefault(number, []).append(f"{exhibit.name} ({'+'.join(exhibit.card.where)})")
    lines, reached = [], 0
    for entry in catalogue():
        names = shown.get(entry.number, [])
        reached += bool(names)
        lines.append(f"{entry.number:3}  {entry.name:52.52}  {', '.join(names) or 'NOT SHOWN: ' + entry.out_of_reach}")
    lines.append(f"\n{reached} of {len(catalogue())} are shown; {len(catalogue()) - reached} are out of reach")
    return "\n".join(lines)
