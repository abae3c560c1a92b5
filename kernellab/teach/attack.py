"""The attack lesson's toy judge: which of its holes an attempt gets through, and which a learner's repairs close.

``notebooks/attack/`` holds the judge (``judge.py``), each hole closed (functions of the same names) and the
kernels that the repairs meet; these two answer an exercise each, so they are packed, and an installation has no text of
them to read or to find. An attempt uses a hole when the judge with all other holes closed
accepts it, and the judge with all of them closed does not. All of it runs in a sandbox.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from multiprocessing.connection import wait
from pathlib import Path
from random import sample
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from kernellab import python_tree
from kernellab.content import content, module_command
from kernellab.errors import CourseError, JudgeBusy
from kernellab.sandbox import sandbox
from kernellab.teach.read.limits import too_long

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: seconds of the clock for all runs of one cell
_DEADLINE = 180.0
#: an attempt goes through a hole each time, so many times more, and never where all are closed: chance is no attack
_AGAIN = 6
#: the honest kernel of which a refusal's reason is said: a judge could tell the texts of the others in it
_SHOWN = "plain"


class Run(BaseModel):
    """One run of the judge: its text, that of its functions which are closed, a learner's ``repairs`` over both, and
    ``holes``, the functions that these may replace."""

    model_config = ConfigDict(frozen=True)
    source: str
    judge: str
    closed: str = ""
    repairs: str = ""
    holes: tuple[str, ...] = ()


class Ruling(BaseModel):
    """What the judge said of one run."""

    model_config = ConfigDict(frozen=True)
    accepted: bool
    why: str
    #: it was ended for the time it took
    late: bool = False


class Kernel(BaseModel):
    """A kernel that a repaired judge meets; ``hole`` is "" for an honest one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    hole: str = ""
    source: str


@dataclass(frozen=True)
class Attempt:
    """What the judge says of an attempt, and the holes that it used."""

    ruling: Ruling
    #: each of them alone lets the attempt through
    holes: tuple[str, ...] = ()
    #: two that do so only as a pair
    together: tuple[str, ...] = ()
    #: it is accepted with every hole closed
    honest: bool = False
    #: what is said of it differs between equal runs
    unsteady: bool = False


class HonestRefused(NamedTuple):
    """An honest kernel that a repaired judge does not accept; ``why`` is "" where it is not shown."""

    name: str
    why: str


@dataclass(frozen=True)
class Repaired:
    """What a learner's repairs do to the judge."""

    #: holes whose cheats are all refused
    closed: tuple[str, ...]
    #: cheats by name that are still accepted
    passed: tuple[str, ...] = ()
    #: honest kernels that are not accepted: with one of these, nothing counts as closed
    refused: tuple[HonestRefused, ...] = ()
    #: what is said of a run that was ended for the time it took
    late: str = ""


def judge_text() -> str:
    """The toy judge."""
    return (content("notebooks") / "attack" / "judge.py").read_text(encoding="utf-8")


def holes() -> tuple[str, ...]:
    """The names of the holes, which are functions of the judge, in its order."""
    closed = {s.name for s in python_tree.parse(_packed("closed")).body if isinstance(s, ast.FunctionDef)}
    return tuple(
        s.name for s in python_tree.parse(judge_text()).body if isinstance(s, ast.FunctionDef) and s.name in closed
    )


def kernels() -> tuple[Kernel, ...]:
    """The honest kernels and the cheats."""
    return tuple(Kernel.model_validate(row) for row in tomllib.loads(_packed("cheats"))["kernel"])


def attempted(source: str) -> Attempt:
    """Which holes ``source`` gets through.

    Raises:
        CourseError: there is no sandbox here; the text is too long.
        JudgeBusy: the judge gave no answer in time.
    """
    _short(source)
    names = holes()
    with _Judge() as judge:
        late: list[Ruling] = []

        def accepts(*opened: str) -> bool:
            if not late:  # one run that does not end is enough
                ruling = judge.ruling(source, [name for name in names if name not in opened])
                late.extend([ruling] if ruling.late else [])
            return not late and ruling.accepted

        first = judge.ruling(source)
        if not first.accepted:
            return Attempt(first)
        if accepts():
            return Attempt(first, honest=True)
        through = [name for name in sample(names, len(names)) if accepts(name)]
        if not through:
            pairs = combinations(names, 2)
            found = next((pair for pair in pairs if accepts(*pair)), ())
            return Attempt(late[0]) if late else Attempt(first, together=found)
        for _ in range(_AGAIN):
            for name in sample(["", *through], 1 + len(through)):
                if accepts(name) is not bool(name):
                    through = [other for other in through if name and other != name]
        if late:
            return Attempt(late[0])
        return Attempt(first, tuple(name for name in names if name in through), unsteady=not through)


def repaired(repairs: str) -> Repaired:
    """What the judge with the learner's ``repairs`` (functions of the judge, rewritten) makes of the kernels.

    Raises:
        CourseError, JudgeBusy: as :func:`attempted`; the text cannot be read.
    """
    _short(repairs)
    try:
        python_tree.parse(repairs)
    except SyntaxError as error:
        raise CourseError(f"Line {error.lineno}: {error.msg}.", "Write functions of the judge, rewritten.") from None
    except (MemoryError, RecursionError, UnicodeError):
        raise CourseError("The repairs cannot be read.", "Write functions of the judge, rewritten.") from None
    every = kernels()
    with _Judge() as judge:
        rulings: dict[str, Ruling] = {}
        for kernel in sample(every, len(every)):
            ruling = rulings[kernel.name] = judge.ruling(_among(kernel, every), repairs=repairs)
            if ruling.late and not kernel.hole:  # an honest kernel takes milliseconds: nothing counts
                return Repaired((), refused=(HonestRefused(kernel.name, ruling.why),), late=ruling.why)
    honest_names = [k.name for k in every if not k.hole and not rulings[k.name].accepted]
    refused = tuple(HonestRefused(name, rulings[name].why if name == _SHOWN else "") for name in honest_names)
    passed = [k for k in every if k.hole and rulings[k.name].accepted]
    closed = () if refused else tuple(name for name in holes() if name not in {k.hole for k in passed})
    late = next((ruling.why for ruling in rulings.values() if ruling.late), "")
    return Repaired(closed, tuple(k.name for k in passed), refused, late)


def _short(text: str) -> None:
    if said := too_long(text):
        raise CourseError(said, "The lesson's own kernels have some hundred.")


def _among(kernel: Kernel, every: Sequence[Kernel]) -> str:
    """The kernel between the texts of those of the other kind: words of a source tell no cheat from an honest one."""
    others = [other.source for other in every if bool(other.hole) != bool(kernel.hole)]
    return f"{others[::2]!r}\n{kernel.source}\n{others[1::2]!r}\n"


class _Judge:
    """The judge of a cell, in a separate process: a context manager, whose end removes what the runs left."""

    def __enter__(self) -> _Judge:
        self.until = time.monotonic() + _DEADLINE
        self.folder = tempfile.mkdtemp(prefix="kernellab-attack-")
        Path(self.folder).chmod(0o711)  # another user works in it
        self.process = subprocess.Popen(
            module_command("kernellab.teach.attack_run", self.folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        with self.process:  # closes its pipes
            sandbox.remove(self.folder)  # an attempt may leave depths and modes that a plain removal cannot take away

    def ruling(self, source: str, closed: Sequence[str] = (), repairs: str = "") -> Ruling:
        run = Run(source=source, judge=judge_text(), closed=_closed(closed), repairs=repairs, holes=holes())
        asking, answering = self.process.stdin, self.process.stdout
        assert asking is not None and answering is not None
        try:
            line = memoryview(run.model_dump_json().encode("utf-8") + b"\n")
            while line:
                line = line[asking.write(line) :]
            if not wait([answering.fileno()], max(0.0, self.until - time.monotonic())):
                raise JudgeBusy("The judge gave no answer in time.", "Does your text wait for something? Run it again.")
            return Ruling.model_validate_json(answering.readline())
        except (OSError, ValueError):
            self.process.kill()
            said = (self.process.communicate()[1] or b"").decode(errors="replace").strip().splitlines()[-1:]
            why = said[0] if said else "the attempt ended it"
            raise CourseError(
                f"The judge could not be run: {why}.", "`kernellab doctor` says what is missing."
            ) from None


def _closed(names: Sequence[str]) -> str:
    """The text of the functions ``names``, closed, and what they use."""
    tree = python_tree.parse(_packed("closed"))
    kept = [s for s in tree.body if not isinstance(s, ast.FunctionDef) or s.name in names]
    used = {
        node.id for s in kept if isinstance(s, ast.FunctionDef) for node in ast.walk(s) if isinstance(node, ast.Name)
    }

    def needed(statement: ast.stmt) -> bool:
        set_here = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return not isinstance(statement, ast.Assign) or bool(set_here & used)

    return "\n".join(ast.unparse(s) for s in kept if needed(s)) if names else ""


def _packed(name: str) -> str:
    return zlib.decompress((content("notebooks") / "attack" / f"{name}.zlib").read_bytes()).decode()
