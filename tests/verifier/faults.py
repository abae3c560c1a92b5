"""Faults that a verifier must survive, each made for real; what happened, and how soon a good kernel passes again.

``python tests/verifier/fault_table.py`` prints them all; ``test_faults.py`` runs them as tests.
"""

# ruff: noqa: E501

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from kernellab.errors import VerifierError
from kernellab.records import Author, Source, Trust, Verdict
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions

TARGET = Target("cpp", Backend.CPU, Chip("test", "cpu", 2))
TASK = load_task(
    "import torch\ndef reference(x, y):\n    return torch.relu(x) + y\n"
    "def inputs():\n    return torch.randn(48, 70), torch.randn(48, 70)\n",
    "relu_add",
)
#: a quick look runs the same processes and is over sooner
LOOK = VerifyOptions(level=Trust.T1, threads=1, allow_library=True)
SHORT = LOOK.model_copy(update={"deadline": 3.0})
GOOD = "import torch\ndef kernel(x, y):\n    return torch.relu(x) + y\n"
BODY = "def kernel(x, y):\n    return x\n"


@dataclass(frozen=True)
class Fault:
    """``code`` is a kernel whose verification must fail with one of the signatures ``found``."""

    name: str
    code: str
    found: tuple[str, ...]
    options: VerifyOptions = LOOK


KERNELS = (
    Fault("hang at import", "while True: ...\n" + BODY, ("hang",), SHORT),
    Fault("hang in build, in a compiler it started",
          "import subprocess\nsubprocess.run(['sleep', '600'])\n" + BODY, ("hang",), SHORT),
    Fault("hang in launch", "def kernel(x, y):\n    while True: ...\n", ("hang",), SHORT),
    Fault("hang in launch, deaf to signals",
          "import signal\nfor n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n"
          "    except (OSError, ValueError):\n        pass\ndef kernel(x, y):\n    while True: ...\n", ("hang",), SHORT),
    Fault("crash at import", "import ctypes\nctypes.string_at(8)\n" + BODY, ("crash",)),
    Fault("crash in launch", "import ctypes\ndef kernel(x, y):\n    ctypes.string_at(8)\n", ("crash",)),
    Fault("leaves quietly", "import ctypes\nlibc = ctypes.CDLL(None)\ndef kernel(x, y):\n    libc['_ex' + 'it'](0)\n", ("exit",)),
    Fault("200 children", "import os, time\nfor _ in range(200):\n    if os.fork() == 0:\n        time.sleep(600)\n"
          "time.sleep(600)\n" + BODY, ("processes",)),
    Fault("children that leave their session",
          "import ctypes, os, time\nleave = ctypes.CDLL(None)['_ex' + 'it']\nfor _ in range(200):\n    if os.fork() == 0:\n"
          "        os.setsid()\n        if os.fork(): leave(0)\n        time.sleep(600)\ntime.sleep(600)\n" + BODY, ("processes",)),
    Fault("memory eaten", "held = []\nwhile True: held.append(bytearray(64 << 20))\n" + BODY, ("memory", "exception")),
    Fault("gigabytes printed", "import os\nline = b'x' * 65536\nwhile True: os.write(1, line)\n" + BODY, ("printed",)),
    Fault("disk filled", "import os, time\nfor i in range(9):\n"
          "    os.posix_fallocate(os.open(f'fill{i}', os.O_CREAT | os.O_RDWR), 0, 1 << 30)\ntime.sleep(600)\n" + BODY,
          ("disk", "build")),
    Fault("disk filled by files without a name", "import os, time\nfor i in range(9):\n"
          "    fd = os.open('fill', os.O_CREAT | os.O_RDWR)\n    os.unlink('fill')\n"
          "    os.posix_fallocate(fd, 0, 1 << 30)\ntime.sleep(600)\n" + BODY, ("disk", "build")),
    Fault("a hundred thousand files", "import time\nfor i in range(100000): open(f'f{i}', 'w').close()\n"
          "time.sleep(600)\n" + BODY, ("disk",)),
    Fault("folders too deep to list",
          "import os\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')\nimport time\ntime.sleep(600)\n" + BODY,
          ("disk",)),
    Fault("stdout that looks like a verdict",
          "import ctypes, os\nforged = b'{\"verdict\": {\"passed\": true, \"stage\": \"fast\", \"reason\": \"Right, 1000x\"}}\\n'\n"
          "for fd in range(1, 64):\n    try: os.write(fd, forged)\n    except OSError: continue\n"
          "ctypes.CDLL(None)['_ex' + 'it'](0)\n" + BODY, ("protocol", "exit")),
)  # fmt: skip


@dataclass(frozen=True)
class Happened:
    """What was seen, and seconds from the fault's end until a good kernel had passed."""

    name: str
    what: str
    recovery: float


class Ground:
    """A verifier in a temporary folder of its own, so that whatever is left shows."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.verifier = Verifier()
        self.verifier.warm(TARGET)

    def look(self, code: str, options: VerifyOptions = LOOK) -> Verdict:
        source = Source(dsl="cpp", files={"kernel.py": code}, origin=Author.HUMAN)
        return self.verifier.verify(TASK, source, TARGET, options=options)

    def recovered(self) -> float:
        start = time.monotonic()
        verdict = self.look(GOOD)
        assert verdict.passed, verdict.reason
        return time.monotonic() - start

    def below(self) -> list[psutil.Process]:
        pid = self.verifier.judge_pid
        return psutil.Process(pid).children(recursive=True) if pid else []

    def clean(self) -> None:
        """Nothing of a candidate is left: no process but the judge's own, no scratch folder, no open descriptor."""
        pid = self.verifier.judge_pid
        assert pid is not None
        end = time.monotonic() + 10
        while True:
            extra = [p for p in self.below() if p.is_running() and "forkserver" not in " ".join(_words(p))]
            forked = [p for p in self.below() if p.pid not in {q.pid for q in extra}]
            left = glob.glob(f"{self.folder}/*/kernellab-*")
            scratch = [p for p in left if "kernellab-judge-" not in p]
            if not extra and len(forked) <= 1 and not scratch:
                return
            assert time.monotonic() < end, (extra, forked, scratch)
            time.sleep(0.05)

    def descriptors(self) -> int:
        pid = self.verifier.judge_pid
        return len(os.listdir(f"/proc/{pid}/fd"))


def _words(process: psutil.Process) -> list[str]:
    try:
        # children of the fork server look like it: those that are first in a PID namespace are workers
        words = process.cmdline()
        names = Path(f"/proc/{process.pid}/status").read_text()
        inner = next(line for line in names.splitlines() if line.startswith("NSpid")).split()[1:]
        return ["worker"] if len(inner) > 1 else words
    except (psutil.Error, OSError, StopIteration):
        return ["forkserver"]


@contextmanager
def ground() -> Iterator[Ground]:
    before, tempfile.tempdir = tempfile.tempdir, None
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        tempfile.tempdir = folder
        try:
            made = Ground(folder)
            try:
                yield made
            finally:
                made.verifier.__exit__(None, None, None)
            assert os.listdir(folder) == [], os.listdir(folder)
        finally:
            tempfile.tempdir = before


def by_kernel(on: Ground, fault: Fault) -> Happened:
    """A kernel that breaks its worker: a verdict with the reason, and the next kernel is judged as ever."""
    start = time.monotonic()
    verdict = on.look(fault.code, fault.options)
    took = time.monotonic() - start
    assert not verdict.passed and verdict.evidence is not None
    assert verdict.evidence.signature in fault.found, (verdict.evidence.signature, verdict.reason)
    recovery = on.recovered()
    on.clean()
    return Happened(fault.name, f"{verdict.stage.value}: {verdict.reason[:70]} ({took:.1f} s)", recovery)


def worker_killed(on: Ground) -> Happened:
    """Someone else kills the worker with SIGKILL."""

    def kill() -> None:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            workers = [p for p in on.below() if _words(p) == ["worker"]]
            for process in workers[-1:]:
                time.sleep(0.3)
                process.kill()
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    verdict = on.look("import time\ntime.sleep(30)\n" + BODY)
    thread.join()
    assert not verdict.passed and verdict.evidence is not None
    assert verdict.evidence.signature in ("crash", "exit"), verdict.reason
    recovery = on.recovered()
    on.clean()
    return Happened("worker killed from outside", verdict.reason[:70], recovery)


def three_bad(on: Ground) -> Happened:
    """Three in a row, each in another way; the judge has no more descriptors open than before."""
    on.recovered()
    before, judge = on.descriptors(), on.verifier.judge_pid
    for code in ("import ctypes\nctypes.string_at(8)\n", "raise SystemExit(3)\n", "import os\nos.abort()\n"):
        assert not on.look(code + BODY).passed
    recovery = on.recovered()
    on.clean()
    assert on.verifier.judge_pid == judge and on.descriptors() <= before, (before, on.descriptors())
    return Happened(
        "three bad kernels in a row", "same judge, as many descriptors as before, no scratch left", recovery
    )


def _in_the_middle(on: Ground, act: Callable[[int], None]) -> tuple[str, list[psutil.Process]]:
    """The error that the client gets when ``act`` does something to the judge in the middle of a verification."""
    told: list[str] = []

    def ask() -> None:
        try:
            on.look("import time\ntime.sleep(60)\n" + BODY, SHORT.model_copy(update={"deadline": 20.0}))
        except VerifierError as error:
            told.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    end = time.monotonic() + 20
    while len(on.below()) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    below = on.below()
    assert on.verifier.judge_pid is not None
    act(on.verifier.judge_pid)
    thread.join(60)
    assert told, "the client was told nothing"
    return told[0], below


def judge_killed(on: Ground) -> Happened:
    told, below = _in_the_middle(on, lambda pid: os.kill(pid, signal.SIGKILL))
    assert "SIGKILL" in told, told
    _gone(below)
    assert glob.glob(f"{on.folder}/*/*") == []
    recovery = on.recovered()
    return Happened("judge killed in the middle", told.splitlines()[0][:70], recovery)


def judge_halted(on: Ground) -> Happened:
    """A judge that hangs (here: halted) is ended when it has been silent for longer than the verification may take."""
    on.verifier.patience = -17.0
    try:
        told, below = _in_the_middle(on, lambda pid: os.kill(pid, signal.SIGSTOP))
    finally:
        on.verifier.patience = 60.0
    assert "said nothing" in told, told
    _gone(below)
    recovery = on.recovered()
    return Happened("judge hangs", told.splitlines()[0][:70], recovery)


_CLIENT = """
import sys
sys.path.insert(0, sys.argv[1])
from faults import LOOK, TARGET, TASK, BODY
from kernellab.records import Author, Source
from kernellab.verifier import Verifier
verifier = Verifier()
verifier.warm(TARGET)
print(verifier.judge_pid, flush=True)
source = Source(dsl="cpp", files={"kernel.py": "import time\\ntime.sleep(60)\\n" + BODY}, origin=Author.HUMAN)
verifier.verify(TASK, source, TARGET, options=LOOK)
"""


def client_killed(on: Ground) -> Happened:
    """The notebook's kernel dies: judge and workers end by themselves, and their files go."""
    before = set(os.listdir(on.folder))
    child = subprocess.Popen(
        [sys.executable, "-c", _CLIENT, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": on.folder},
    )  # fmt: skip
    assert child.stdout is not None
    with child.stdout:
        judge = psutil.Process(int(child.stdout.readline()))
        end = time.monotonic() + 20
        while len(judge.children(recursive=True)) < 3 and time.monotonic() < end:
            time.sleep(0.02)
        below = [judge, *judge.children(recursive=True)]
        child.kill()
        child.wait()
    start = time.monotonic()
    _gone(below)
    while set(os.listdir(on.folder)) != before:
        assert time.monotonic() < start + 10, os.listdir(on.folder)
        time.sleep(0.02)
    return Happened("client killed", f"{len(below)} processes and their files gone", time.monotonic() - start)


EVENTS: tuple[Callable[[Ground], Happened], ...] = (worker_killed, three_bad, judge_killed, judge_halted, client_killed)


def _gone(processes: list[psutil.Process], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in _there(processes)):
        assert time.monotonic() < end, list(_there(processes))
        time.sleep(0.02)


def _there(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        try:
            process.status()
            found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
