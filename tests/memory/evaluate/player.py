"""What the memory gives a model: requests, turns and tokens of a trial's arms ``full`` (cold) and ``memory`` (warm).

``python -m tests.agents.trial --player DIR --arms full,memory --jobs 16 --out FILE`` plays them, ``python -m
tests.memory.evaluate.player FILE ...`` compares. Only operators that both arms have count; the intervals are of the
paired ratios warm over cold (bootstrap over operators, 95 %).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.memory.evaluate.effect import mean_ratio

COUNTED = ("requests", "turns", "tokens")


def paired(rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The cold and the warm session of each operator that has both, by name."""
    arms = {arm: {row["operator"]: row for row in rows if row["arm"] == arm} for arm in ("full", "memory")}
    return [(arms["full"][name], arms["memory"][name]) for name in sorted(arms["full"].keys() & arms["memory"].keys())]


def report(rows: Sequence[dict[str, Any]]) -> str:
    """One line an operator, then the ratios. A session without a verified kernel counts with what it spent."""
    lines = ["| operator | solved | requests | turns | tokens | speedup |", "|---|---|---|---|---|---|"]
    pairs = paired(rows)
    for cold, warm in pairs:
        counts = " | ".join(f"{cold[name]:,}, {warm[name]:,}" for name in COUNTED)
        solved, speed = (
            ", ".join(form(row) for row in (cold, warm))
            for form in (
                lambda row: "yes" if row["solved"] else "no",
                lambda row: f"{row['speedup']:.2f}x" if row["speedup"] else "none",
            )
        )
        lines.append(f"| {cold['operator']} | {solved} | {counts} | {speed} |")
    for name in COUNTED:
        lines.append(f"{name}, warm over cold: {mean_ratio([warm[name] / cold[name] for cold, warm in pairs])}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="what trials wrote with --out")
    given = parser.parse_args()
    print(report([row for file in given.files for row in json.loads(file.read_text())]))


if __name__ == "__main__":
    main()
