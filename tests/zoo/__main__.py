"""``python -m tests.zoo [--only REGEX] [--jobs N] [--json FILE] [--coverage]``"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from .coverage import coverage
from .exhibit import exhibits
from .show import Keeper, row, table, totals


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description="Show the zoo to the Verifier.")
    parser.add_argument("--only", default="", help="a regular expression that names or kinds must contain")
    parser.add_argument("--jobs", type=int, default=4, help="Verifiers side by side")
    parser.add_argument("--json", type=Path, help="write all findings here")
    parser.add_argument("--reasons", action="store_true", help="print each verdict's reason")
    parser.add_argument("--coverage", action="store_true", help="print which exploit is shown where, and stop")
    parser.add_argument("--gpu", action="store_true", help="on the GPU of this machine")
    options = parser.parse_args(arguments)
    if options.coverage:
        print(coverage())
        return 0
    place = "gpu" if options.gpu else "cpu"
    chosen = [e for e in exhibits() if place in e.card.where and re.search(options.only, f"{e.kind}/{e.name}")]
    findings = []
    with Keeper(options.jobs, place) as keeper:
        for finding in keeper.all(chosen):
            findings.append(finding)
            print(row(finding), flush=True)
            if options.reasons or not finding.ok:
                print(f"    {finding.reason}" + (f" [{finding.label}]" if finding.label else ""), flush=True)
    print()
    print(totals(findings))
    if options.json:
        options.json.write_text(json.dumps({"findings": [f.as_json() for f in findings]}, indent=1))
    return 0 if all(f.ok for f in findings) else 1


__all__ = ["main", "table"]

if __name__ == "__main__":
    sys.exit(main())
