"""How often does a Conductor send a planted fault to its owner?

    python -m tests.agents.routing_accuracy [--set first|second|third] [--conductor rules|model[:NAME]|replay:FILE]
                                            [--record FILE] [--keep] [NAME ...]

By the evidence that was recorded (planted/evidence.json, second.json, third.json), so that models can be compared and
replayed. A model is asked only where the evidence leaves a choice: how often that was stands beside the share, which is
the rules' where it was not asked. ``--keep`` records the evidence anew: every fault through the real sketch gate and,
where that lets it through, the real Verifier, some seconds each. ``--record`` keeps a model's exchanges as a replay
file. Exit 1 below ``--aim`` (0.95).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def conductor(spec: str, exchanges: list[Any]) -> Any:
    from kernellab.agents.model import ModelConductor
    from kernellab.agents.rules.conductor import RulesConductor
    from kernellab.models import Talk, open_model
    from kernellab.records import Role

    if spec == "rules":
        return RulesConductor()
    return ModelConductor(Talk(open_model(spec, Role.CONDUCTOR), Role.CONDUCTOR, exchanges.append))


def main() -> int:
    from kernellab.models import write_replay
    from kernellab.verifier import Verifier
    from tests.agents.planted.cases import SETS, brief_of, chosen, described, look, read_evidence, write_evidence

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", help="only faults whose names hold one of these words")
    options.add_argument("--set", default="first", choices=("first", "second", "third"), dest="of")
    options.add_argument("--conductor", default="rules")
    options.add_argument("--keep", action="store_true", help="look at every fault anew and keep what was seen")
    options.add_argument("--record", type=Path, help="keep a model's exchanges here")
    options.add_argument("--out", type=Path, help="the rows as JSON")
    options.add_argument("--aim", type=float, default=0.95)
    given = options.parse_args()
    exchanges: list[Any] = []
    rows: list[dict[str, Any]] = []
    role, faults = conductor(given.conductor, exchanges), chosen(given.names, given.of)
    kept = SETS[given.of][1]
    evidence = read_evidence(kept) if kept.exists() and (given.names or not given.keep) else {}
    if given.keep:
        with Verifier() as verifier:
            for fault in faults:
                looked = look(fault, verifier)
                assert looked is not None
                evidence[fault.name] = looked
                print(f"looked at {fault.name}: {described(looked)[:100]}", flush=True)
        write_evidence(evidence, kept)
    for fault in faults:
        seen, said = evidence[fault.name], len(exchanges)
        route = role.route(brief_of(fault, seen))
        right, asked = route.to is fault.owner, len(exchanges) > said
        rows.append({"name": fault.name, "fault": fault.fault, "owner": fault.owner.value, "to": route.to.value,
                     "right": right, "asked": asked, "seen": described(seen), "reason": route.reason})  # fmt: skip
        mark = ("ok   " if right else "WRONG") + (" asked" if asked else "      ")
        print(f"{mark} {fault.name:34} {fault.owner.value:8} -> {route.to.value:8} {described(seen)[:100]}", flush=True)
    good, answered = sum(row["right"] for row in rows), [row for row in rows if row["asked"]]
    print(f"{given.conductor}: {good} of {len(rows)} to their owner ({100 * good / max(len(rows), 1):.1f} %)")
    if given.conductor != "rules":
        owned = sum(row["right"] for row in answered)
        print(
            f"asked {len(answered)} of {len(rows)}, {owned} of these to their owner; the others by the evidence alone"
        )
    if given.out:
        given.out.write_text(json.dumps(rows, indent=1))
    if given.record and exchanges:
        write_replay(given.record, exchanges, "the Conductor on planted faults")
    return 0 if good >= given.aim * len(rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
