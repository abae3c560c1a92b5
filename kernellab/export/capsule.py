"""A capsule: everything behind a verdict in one JSON file, which another machine can verify again.

Its hashes detect a damaged or carelessly edited file. They are not a signature: anyone can write a capsule with valid
hashes, so :func:`again` does not trust its figures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernellab.conditions import joined
from kernellab.content import written
from kernellab.dsls.machine import detect_target
from kernellab.errors import MOST_BYTES, KernellabError, refused
from kernellab.export.exportable import VerifiedKernel
from kernellab.records import Author, Record, Source, StageResult, Verdict
from kernellab.task import load_task
from kernellab.task.audit import admit, weaknesses
from kernellab.verifier import Verifier, VerifyOptions

SUFFIX = ".capsule.json"
_FORMAT = 2


class Capsule(Record):
    """``verdict`` has the original environment and timings; ``hashes`` are those of the parts."""

    format: int = _FORMAT
    made_by: str
    name: str
    task: str
    source: Source
    sketch: str | None
    verdict: Verdict
    target: str
    hashes: dict[str, str]

    def parts(self) -> dict[str, str]:
        """Return the SHA-256 of each part."""
        return {
            "task": _hash(self.task),
            "source": _hash(self.source.model_dump_json()),
            "sketch": _hash(self.sketch or ""),
            "verdict": _hash(self.verdict.model_dump_json()),
        }


@dataclass(frozen=True)
class Again:
    """A capsule's verdict and that of this machine."""

    capsule: Capsule
    verdict: Verdict

    @property
    def passed(self) -> bool:
        return self.verdict.passed and self.capsule.verdict.passed

    @property
    def differences(self) -> list[str]:
        """Return the differences from the capsule, one on each line; times on different chips are reported but not
        compared."""
        then, now = self.capsule.verdict, self.verdict
        lines = []
        if then.passed != now.passed:
            lines.append(f"it {then.outcome} there and {now.outcome} here: {now.reason}")
        if then.labels != now.labels:
            lines.append(f"labels: {then.label or 'none'} there, {now.label or 'none'} here")
        for name in ("chip", "backend", "threads"):
            one, two = getattr(then.environment, name), getattr(now.environment, name)
            if one != two:
                lines.append(f"{name}: {one} there, {two} here")
        versions = then.environment.versions
        for name in sorted(versions.keys() & now.environment.versions.keys()):
            if versions[name] != now.environment.versions[name]:
                lines.append(f"{name}: {versions[name]} there, {now.environment.versions[name]} here")
        for before in then.comparisons:
            after = now.against(before.baseline)
            if after is not None and (after.high < before.low or before.high < after.low):
                lines.append(f"speedup: {before.text} there, {after.text} here")
        return lines


def capsule_of(kernel: VerifiedKernel) -> Capsule:
    """Return the capsule of a verified kernel."""
    capsule = Capsule(
        made_by=f"kernellab {version('kernellab')}", name=kernel.name, task=kernel.task.text, source=kernel.source,
        sketch=kernel.sketch, verdict=kernel.verdict, target=kernel.target, hashes={},
    )  # fmt: skip
    return capsule.model_copy(update={"hashes": capsule.parts()})


def is_capsule(path: Path) -> bool:
    """Is the file a capsule, of any name? A damaged one counts too, so that :func:`read_capsule` reports the damage."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return False
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return path.name.endswith((SUFFIX, ".capsule"))
    return isinstance(value, dict) and {"task", "source", "verdict", "hashes"} <= value.keys()


def read_capsule(path: Path) -> Capsule:
    """Return the capsule in a file.

    Raises:
        KernellabError: it cannot be read, is not a capsule, or the hash of a part is wrong.
    """
    remedy = "Write one with `kernellab export SESSION --capsule FILE`."
    try:
        if path.stat().st_size > MOST_BYTES:
            raise KernellabError(f"{path} is too large for a capsule.", remedy)
        capsule = Capsule.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise KernellabError(f"The capsule {path} cannot be read: {reason}.", "Give a capsule's path.") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise KernellabError(
            f"{path} is not a capsule: {refused(first, '.'.join(map(str, first['loc'])) or 'it')}.", remedy
        ) from None
    if capsule.format != _FORMAT:
        raise KernellabError(f"{path} has the format {capsule.format}; this kernellab reads {_FORMAT}.", remedy)
    wrong = [name for name, digest in capsule.parts().items() if capsule.hashes.get(name) != digest]
    if wrong:
        raise KernellabError(
            f"The {wrong[0]} in {path} does not have the hash that the capsule says: it was changed.",
            "Copy the capsule again from where it was made.",
        )
    return capsule


def write_capsule(kernel: VerifiedKernel, path: Path) -> Path:
    """Write the capsule of ``kernel`` and return its path. Raises KernellabError: ``path`` cannot be written."""
    text = json.dumps(json.loads(capsule_of(kernel).model_dump_json()), indent=1) + "\n"
    return written(path, text)


def again(
    capsule: Capsule, options: VerifyOptions, progress: Callable[[StageResult], None] = lambda part: None, *,
    trusted: bool = False,
) -> Again:  # fmt: skip
    """Verify the capsule's kernel here, from its task and its source alone. ``trusted``: the caller knows that the task
    runs with their rights.

    Raises:
        KernellabError: ``trusted`` is not set.
        TaskError, TargetError, VerifierError: it cannot be judged on this machine.
    """
    if not trusted:
        raise KernellabError(
            f"The task in the capsule of {capsule.name} is Python, {len(capsule.task.splitlines())} lines, that would "
            "run with your own rights, here and in the judge: only the kernel runs in the sandbox.",
            "Read the capsule's field `task`; if you trust it, allow it: kernellab verify CAPSULE --trust-task, or "
            "again(..., trusted=True).",
        )
    # the origin in a file is not trusted: its code counts as a model's and never runs outside the sandbox
    source = capsule.source.model_copy(update={"origin": Author.MODEL})
    task = load_task(capsule.task, capsule.name)
    weak = admit(task)
    with Verifier() as verifier:
        verdict = verifier.verify(task, source, detect_target(source.dsl), options=options, progress=progress)
    return Again(capsule, verdict.model_copy(update={"conditions": joined(verdict.conditions, weaknesses(weak))}))


def facts(repeated: Again) -> dict[str, Any]:
    """Return data for one JSON object: the capsule's figures, and the differences."""
    then = repeated.capsule.verdict
    return {
        "name": repeated.capsule.name,
        "made_by": repeated.capsule.made_by,
        "target": repeated.capsule.target,
        "hashes": repeated.capsule.hashes,
        "passed": then.passed,
        "time_ms": then.time.median_ms if then.time else None,
        "speedups": {c.baseline: [c.speedup, c.low, c.high] for c in then.comparisons},
        "label": then.label,
        "labels": then.labels,
        "differences": repeated.differences,
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
