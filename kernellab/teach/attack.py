"""The attack lesson's toy judge: which of its holes an attempt gets through, and which a learner's repairs close.

``notebooks/attack/`` holds the judge (``judge.py``), each hole closed (functions of the same names) and the
kernels that the repairs meet; these two answer an exercise each, so they are packed, and an installation has no text of
them to read or to find. An attempt uses a hole when the judge with all other holes closed
accepts it, and the judge with all of them closed does not. All of it runs in a sandbox.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kernellab.content import content, module_command
from kernellab.errors import CourseError
from kernellab.verifier.sandbox import sandbox

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: seconds for all runs of one cell
_DEADLINE = 120.0


class Run(BaseModel):
    """One run of the judge: ``closed`` names the holes that are closed, ``repairs`` is a learner's text over it."""

    model_config = ConfigDict(frozen=True)
    source: str
    closed: tuple[str, ...] = ()
    repairs: str = ""


class Ruling(BaseModel):
    """What the judge said of one run."""

    model_config = ConfigDict(frozen=True)
    accepted: bool
    why: str


class Request(BaseModel):
    """What the sandboxed process is to run."""

    judge: str
    closed: str
    runs: tuple[Run, ...]


class Kernel(BaseModel):
    """A kernel that a repaired judge meets; ``hole`` is "" for an honest one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    hole: str = ""
    source: str


@dataclass(frozen=True)
class Attempt:
    """``holes``: each of them alone lets the attempt through. ``together``: two that do so only as a pair. ``honest``:
    it is accepted with every hole closed."""

    ruling: Ruling
    holes: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    honest: bool = False


@dataclass(frozen=True)
class Repaired:
    """``closed``: holes whose cheats are all refused; ``passed``: cheats by name that are still accepted; ``refused``:
    honest kernels that are not accepted, with the reason. One of these, and nothing counts as closed."""

    closed: tuple[str, ...]
    passed: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


def judge_text() -> str:
    """The toy judge."""
    return (content("notebooks") / "attack" / "judge.py").read_text(encoding="utf-8")


def holes() -> tuple[str, ...]:
    """The names of the holes, which are functions of the judge, in its order."""
    closed = {s.name for s in ast.parse(_packed("closed")).body if isinstance(s, ast.FunctionDef)}
    return tuple(s.name for s in ast.parse(judge_text()).body if isinstance(s, ast.FunctionDef) and s.name in closed)


def kernels() -> tuple[Kernel, ...]:
    """The honest kernels and the cheats."""
    return tuple(Kernel.model_validate(row) for row in tomllib.loads(_packed("cheats"))["kernel"])


def attempted(source: str) -> Attempt:
    """Which holes ``source`` gets through.

    Raises:
        CourseError: there is no sandbox here, or the judge gave no answer in time.
    """
    names = holes()
    first, safe, *alone = _run(
        [Run(source=source), Run(source=source, closed=names), *(_but(source, names, {name}) for name in names)]
    )
    if not first.accepted or safe.accepted:
        return Attempt(first, honest=safe.accepted)
    through = tuple(name for name, ruling in zip(names, alone, strict=True) if ruling.accepted)
    if through:
        return Attempt(first, through)
    pairs = list(combinations(names, 2))
    both = _run([_but(source, names, set(pair)) for pair in pairs])
    return Attempt(first, together=next((p for p, ruling in zip(pairs, both, strict=True) if ruling.accepted), ()))


def repaired(repairs: str) -> Repaired:
    """What the judge with the learner's ``repairs`` (functions of the judge, rewritten) makes of the kernels.

    Raises:
        CourseError: as :func:`attempted`; the text cannot be read.
    """
    try:
        ast.parse(repairs)
    except SyntaxError as error:
        raise CourseError(f"Line {error.lineno}: {error.msg}.", "Write functions of the judge, rewritten.") from None
    except (MemoryError, RecursionError, UnicodeError):
        raise CourseError("The repairs cannot be read.", "Write functions of the judge, rewritten.") from None
    met = kernels()
    rulings = dict(zip(met, _run([Run(source=_among(k, met), repairs=repairs) for k in met]), strict=True))
    refused = tuple((k.name, r.why) for k, r in rulings.items() if not k.hole and not r.accepted)
    passed = [k for k, r in rulings.items() if k.hole and r.accepted]
    closed = () if refused else tuple(name for name in holes() if name not in {k.hole for k in passed})
    return Repaired(closed, tuple(k.name for k in passed), refused)


def _among(kernel: Kernel, met: Sequence[Kernel]) -> str:
    """The kernel between the texts of those of the other kind: words of a source tell no cheat from an honest one."""
    others = [other.source for other in met if bool(other.hole) != bool(kernel.hole)]
    return f"{others[::2]!r}\n{kernel.source}\n{others[1::2]!r}\n"


def _but(source: str, names: Sequence[str], left: set[str]) -> Run:
    return Run(source=source, closed=tuple(name for name in names if name not in left))


def _run(runs: Sequence[Run]) -> list[Ruling]:
    request = Request(judge=judge_text(), closed=_packed("closed"), runs=tuple(runs))
    folder = tempfile.mkdtemp(prefix="kernellab-attack-")
    try:
        place = Path(folder)
        place.chmod(0o711)  # another user works in it
        (place / "work").mkdir()
        (place / "request.json").write_text(request.model_dump_json(), encoding="utf-8")
        command = module_command("kernellab.teach.attack_run", folder)
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE, check=False)
        rulings = [Ruling.model_validate(ruling) for ruling in json.loads(done.stdout or "[]")]
        if done.returncode or len(rulings) != len(runs):
            said = done.stderr.strip().splitlines()[-1:] or ["the attempt ended it"]
            raise CourseError(
                f"The judge could not be run: {said[0]}.", "`kernellab doctor` says what is missing here."
            )
        return rulings
    except subprocess.TimeoutExpired:
        raise CourseError("The judge gave no answer in time.", "Does a loop of yours not end?") from None
    except (OSError, ValueError) as error:
        raise CourseError(f"The judge gave no ruling: {error}.", "Run it again.") from None
    finally:
        sandbox.remove(folder)  # an attempt may leave depths and modes that a plain removal cannot take away


def _packed(name: str) -> str:
    return zlib.decompress((content("notebooks") / "attack" / f"{name}.zlib").read_bytes()).decode()
