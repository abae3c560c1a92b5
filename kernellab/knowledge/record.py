"""Which code blocks of the documents passed, and on which versions: ``executed.json`` next to the documents."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernellab.dsls.spec import SPEC, read_spec
from kernellab.knowledge.execute import Outcome, State
from kernellab.knowledge.jobs import Job, jobs

#: ``kernellab docs run --record`` writes it
RECORD = "executed.json"
#: what every block runs on, whatever its DSL
_ALWAYS = ("kernellab", "torch")


def record(root: Path, executed: Sequence[Job], outcomes: Iterable[Outcome]) -> None:
    """Puts the blocks that passed into the record of ``root``, each with the versions of its DSL.

    What was recorded of blocks that were not run this time stays; blocks that no document has any more go.
    """
    groups = {job.hash: job.group for job in executed}
    current = {job.hash for job in jobs(root)}
    kept = {digest: on for digest, on in read_record(root).items() if digest in current}
    on = {group: versions([group], root) for group in set(groups.values())}
    passed = {o.hash: on[groups[o.hash]] for o in outcomes if o.state is State.PASSED}
    write_record(root, kept | passed)


def versions(dsls: Iterable[str], root: Path) -> dict[str, str]:
    """What blocks of these DSLs run on: Python, kernellab, PyTorch, the C++ compiler, and what each DSL's spec lists.

    An empty name stands for the sketch language, which has no spec; what is not installed is left out.
    """
    names = [*_ALWAYS]
    for dsl in dsls:
        spec = root / "dsl" / dsl / SPEC
        if dsl and spec.is_file():
            names += read_spec(spec).documents.versions
    numbers = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in dict.fromkeys(names):
        try:
            numbers[name] = version(name)
        except PackageNotFoundError:
            continue
    compiler = _compiler()
    return numbers | ({"c++": compiler} if compiler else {})


@lru_cache(maxsize=1)
def _compiler() -> str:
    """The version of c++, empty where there is none."""
    path = shutil.which("c++")
    if path is None:
        return ""
    asked = subprocess.run([path, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def read_record(root: Path) -> dict[str, dict[str, str]]:
    """Block hash -> the versions that it passed on."""
    try:
        stored = json.loads((root / RECORD).read_text(encoding="utf-8"))
        versions: list[dict[str, str]] = stored["versions"]
        return {digest: versions[at] for digest, at in stored["passed"].items()}
    except (OSError, ValueError, KeyError, IndexError, AttributeError):
        return {}


def write_record(root: Path, passed: dict[str, dict[str, str]]) -> None:
    """Keeps which blocks passed on which versions; those that are no longer in a document are dropped."""
    versions: list[dict[str, str]] = []
    rows = {}
    for digest, on in sorted(passed.items()):
        if on not in versions:
            versions.append(on)
        rows[digest] = versions.index(on)
    text = json.dumps({"versions": versions, "passed": rows}, indent=1, sort_keys=True)
    (root / RECORD).write_text(text + "\n", encoding="utf-8")


__all__ = ["RECORD", "read_record", "record", "versions", "write_record"]
