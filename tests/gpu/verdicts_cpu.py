"""Verdicts on the CPU of a machine with many cores, which it has for itself.

    python tests/gpu/verdicts_cpu.py cost [--seconds 140] [--tasks rms_norm,softmax,matmul]
    python tests/gpu/verdicts_cpu.py zoo [--part 1/2] [--jobs 15] [--seconds 220] [--kinds cheats,...] [--only RE]
    python tests/gpu/verdicts_cpu.py aa [--runs 12]

``cost``: seconds of a T2 of what the rules write in C++, whole, without coverage of the kernel's code, without
combinations, and without either: warm judges of each in turn on two cores, one pair of cores for each task. ``zoo``:
every exhibit that a CPU can show, changed references and rankings, in parts; after ``--seconds`` no further one is
begun. ``aa``: the same code on both sides (tests/verifier/aa.py). Results go to ``$OUT`` as they come, a summary is
printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = Path(os.environ.get("OUT", "."))
#: what is taken out of a copy of the package, by the name of the variant: file, text, replacement
COVERAGE = ("stages/correct.py", "stages.covered = coverage.begin(stages)", "stages.covered = None")
COMBINED = ("stages/robust.py", "followed.append(combined(", "followed.append((lambda *_: '')(")
VARIANTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "whole": (), "no coverage": (COVERAGE,), "no combinations": (COMBINED,), "neither": (COVERAGE, COMBINED),
}  # fmt: skip
KINDS = ("cheats", "errors", "plain", "honest", "mutants", "rank")
#: mutants of a verification that are shown
MUTANTS = 90


class Judge:
    """A process with a Verifier: it is sent lines of JSON, and answers each with one. ``package``: folder of another
    copy of kernellab; ``cores``: the only ones that it may use."""

    def __init__(self, package: Path | None = None, cores: Sequence[int] = ()) -> None:
        paths = [str(package)] if package else []
        paths += [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        # without a network, judges of other processes do not wait for this one's clock
        alone = ["unshare", "-n"] if _can_unshare() else []
        bound = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        self.process = subprocess.Popen(
            [*alone, *bound, sys.executable, str(Path(__file__).resolve()), "judge"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
        )  # fmt: skip

    def ask(self, kind: str, name: str) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps([kind, name]) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            return {"kind": kind, "name": name, "outcome": "BROKEN", "ok": False, "reason": "the judge's process ended"}
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def _can_unshare() -> bool:
    return shutil.which("unshare") is not None and subprocess.run(["unshare", "-n", "true"]).returncode == 0


def judge() -> int:
    """The process of a :class:`Judge`."""
    from kernellab.verifier import RankOptions, Verifier
    from tests.verifier import mutated_references
    from tests.zoo import redteam
    from tests.zoo.exhibit import exhibits
    from tests.zoo.show import Keeper

    answers, sys.stdout = sys.stdout, sys.stderr
    named = {e.name: e for e in exhibits()}
    changed = {}
    with Keeper(1) as keeper, Verifier() as verifier:
        for line in sys.stdin:
            kind, name = json.loads(line)
            began = time.monotonic()
            if kind == "mutants":
                if not changed:
                    changed = dict(enumerate(mutated_references.chosen(60, 5, each=-(-MUTANTS // 60))))
                one = mutated_references.judged(verifier, *changed[int(name)], False) if int(name) in changed else None
                found = {"name": f"{one.task}: {one.change}", "outcome": one.fate, "reason": one.words} if one else {}
                found["ok"] = one is not None and one.fate != "failed"
            elif kind == "rank":
                exhibit = named[name]
                options = RankOptions(allow_library=exhibit.card.allow_library, budget=0.05, threads=1)
                ranking = verifier.rank(exhibit.task, exhibit.source("cpu"), exhibit.target("cpu"), options=options)
                found = {"name": name, "outcome": redteam.fate(ranking), "reason": ranking.reason, "ok": True}
            else:
                found = keeper.submit(named[name]).result().as_json()
            print(json.dumps(found | {"kind": kind, "wall": time.monotonic() - began}), file=answers, flush=True)
    return 0


def cost(tasks: Sequence[str], seconds: float) -> int:
    """Warm T2 of each variant in turn, after one of each at once that is not counted."""
    place = ROOT / "out"  # a worker may read the package there
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="variants-", dir=place) as folder:
        packages = {
            name: _variant(Path(folder) / str(n), changes) for n, (name, changes) in enumerate(VARIANTS.items())
        }
        end = time.monotonic() + seconds
        lanes = [
            threading.Thread(target=_lane, args=(task, packages, (2 * n, 2 * n + 1), end))
            for n, task in enumerate(tasks)
        ]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
    return 0


def _variant(place: Path, changes: Sequence[tuple[str, str, str]]) -> Path | None:
    if not changes:
        return None
    shutil.copytree(ROOT / "kernellab", place / "kernellab", ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in changes:
        path = place / "kernellab" / "verifier" / file
        text = path.read_text()
        if text.count(old) != 1:
            raise ValueError(f"{file} does not hold {old!r} once")
        path.write_text(text.replace(old, new))
    return place


def _lane(task: str, packages: dict[str, Path | None], cores: tuple[int, int], end: float) -> None:
    judges = {name: Judge(package, cores) for name, package in packages.items()}
    asked = f"rules_cpp_{task}"
    warming = [threading.Thread(target=each.ask, args=("honest", asked)) for each in judges.values()]
    for thread in warming:
        thread.start()
    for thread in warming:
        thread.join()
    took: dict[str, list[float]] = defaultdict(list)
    number = 0
    while time.monotonic() < end:
        for name in [*judges][number % len(judges) :] + [*judges][: number % len(judges)]:
            found = judges[name].ask("honest", asked)
            _keep("cost", found | {"variant": name, "task": task, "round": number})
            if found.get("ok"):
                took[name].append(found["wall"])
        number += 1
    for judge_process in judges.values():
        judge_process.close()
    for name, each in took.items():
        words = ", ".join(f"{t:.2f}" for t in each)
        print(f"{task:10} {name:16} median {statistics.median(each):.2f} s of {len(each)} ({words})", flush=True)


def zoo(part: tuple[int, int], jobs: int, seconds: float, kinds: Sequence[str], only: str) -> int:
    number, parts = part
    left = [one for one in _in_turn(kinds) if re.search(only, one[1])][number - 1 :: parts]
    end = time.monotonic() + seconds
    count, lock, findings = len(left), threading.Lock(), list[dict[str, Any]]()

    def work() -> None:
        one = Judge()
        while time.monotonic() < end:
            with lock:
                if not left:
                    break
                kind, name = left.pop(0)
            found = one.ask(kind, name)
            _keep("zoo", found)
            with lock:
                findings.append(found)
        one.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{len(findings)} of {count} shown")
    for kind in kinds:
        of = Counter(f.get("outcome", "none") for f in findings if f["kind"] == kind)
        print(f"  {kind:8} {sum(of.values()):4}  {', '.join(f'{name} {n}' for name, n in of.most_common())}")
    wrong = [f for f in findings if not f.get("ok")]
    for found in wrong:
        words = f"{found.get('reason', '')[:200]} [{found.get('label', '')}]"
        print(f"  {found['kind']} {found.get('name')}: {found.get('outcome')}: {words}")
    return int(bool(wrong))


def _in_turn(kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Kind and name of all that is shown, so mixed that a run which is cut short has seen some of each kind."""
    from tests.zoo.exhibit import exhibits
    from tests.zoo.redteam import BRED

    groups: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for exhibit in exhibits():
        if "cpu" in exhibit.card.where:
            groups["plain" if exhibit.short is not None and not exhibit.honest else exhibit.kind].append(exhibit.name)
    groups["mutants"] = [str(n) for n in range(MUTANTS)]
    groups["rank"] = list(BRED)
    placed = [
        (n / len(names), kind, name) for kind, names in groups.items() if kind in kinds for n, name in enumerate(names)
    ]
    return [(kind, name) for _, kind, name in sorted(placed)]


_writing = threading.Lock()


def _keep(name: str, found: dict[str, Any]) -> None:
    with _writing, (OUT / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(found) + "\n")


def _part(text: str) -> tuple[int, int]:
    number, parts = text.split("/")
    return int(number), int(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cost", "zoo", "aa", "judge"))
    parser.add_argument("--seconds", type=float, default=140.0)
    parser.add_argument("--tasks", default="rms_norm,softmax,matmul")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N")
    parser.add_argument("--jobs", type=int, default=15)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--only", default="")
    parser.add_argument("--runs", type=int, default=12)
    given = parser.parse_args()
    if given.what == "judge":
        return judge()
    print(f"load {os.getloadavg()[0]:.1f}, {len(os.sched_getaffinity(0))} cores", flush=True)
    if given.what == "cost":
        return cost(given.tasks.split(","), given.seconds)
    if given.what == "aa":
        with (OUT / "aa.txt").open("w") as file:
            command = [sys.executable, str(ROOT / "tests" / "verifier" / "aa.py"), str(given.runs)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    print(line, end="", flush=True)
                    file.write(line)
        return 0
    return zoo(given.part, given.jobs, given.seconds, given.kinds.split(","), given.only)


if __name__ == "__main__":
    sys.exit(main())
