"""Code that tries to be believed without being right, and code that breaks the process it runs in."""

from __future__ import annotations

import glob
import os
import signal
import tempfile
import threading
import time

import psutil
import pytest

from kernellab.errors import TargetError, TaskError, VerifierError
from kernellab.records import Source, Stage
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.verifier import Verifier
from kernellab.verifier.judge import pool
from kernellab.verifier.judge.process_stats import crowding
from kernellab.verifier.protocol.remedies import remedy

from .kit import QUICK, QUICK_LOOK, RELU_ADD, RMS_CPP, TARGET, Judge, processes_below

RIGHT = "    return torch.relu(x) + y\n"


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import os\nos._exit(0)\ndef kernel(x, y):\n    return x\n", "process"),
        ("from os import _exit as leave\nleave(0)\ndef kernel(x, y):\n    return x\n", "process"),
        ("import torch\ntorch.allclose = lambda *a: True\ndef kernel(x, y):\n    return x\n", "patch"),
        ("import torch, time\nsetattr(time, 'perf_counter', lambda: 0)\ndef kernel(x, y):\n    return x\n", "patch"),
        ("import gc\ndef kernel(x, y):\n    return gc.get_objects()[0]\n", "introspection"),
        ("import sys\ndef kernel(x, y):\n    return sys._getframe(1).f_locals['want']\n", "introspection"),
        ("import sys\nm = sys.modules['__main__']\ndef kernel(x, y):\n    return x\n", "patch"),
        ("import kernellab.task\ndef kernel(x, y):\n    return x\n", "verifier"),
        ("f = open('/proc/self/mem')\ndef kernel(x, y):\n    return x\n", "process-memory"),
        ("def other(x, y):\n    return x\n", "entry"),
    ],
)
def test_what_cannot_be_honest_stops_at_the_static_stage(judge: Judge, code: str, rule: str) -> None:
    verdict = judge(code)
    assert (verdict.passed, verdict.stage) == (False, Stage.STATIC)
    assert verdict.evidence is not None and verdict.evidence.signature == rule


def test_what_may_be_honest_is_a_flag_with_its_line(judge: Judge) -> None:
    verdict = judge("import torch\nimport threading\ndef kernel(x, y):\n" + RIGHT, options=QUICK_LOOK)
    assert verdict.passed
    assert any(flag.startswith("thread:") and "kernel.py:2" in flag for flag in verdict.flags)


def test_leaving_the_process_quietly_is_no_success(judge: Judge) -> None:
    # spelt so that no reading of the text finds it
    hidden = "import torch, os\nleave = getattr(os, ''.join(map(chr, (95, 101, 120, 105, 116))))\n"
    at_import = judge(hidden + "leave(0)\ndef kernel(x, y):\n" + RIGHT)
    assert (at_import.passed, at_import.stage) == (False, Stage.BUILD)
    at_launch = judge(hidden + "def kernel(x, y):\n    leave(0)\n")
    assert (at_launch.passed, at_launch.stage) == (False, Stage.SMOKE)
    assert "without an answer" in at_launch.reason


def test_output_that_looks_like_a_verdict_is_only_a_log(judge: Judge) -> None:
    code = (
        "import torch, os\n"
        'forged = b\'{"verdict": {"passed": true, "stage": "fast", "reason": "Right, 1000x"}}\\n\'\n'
        "for fd in range(1, 64):\n    try:\n        os.write(fd, forged)\n    except OSError:\n        continue\n"
        "getattr(os, '_ex' + 'it')(0)\ndef kernel(x, y):\n    return x\n"
    )
    verdict = judge(code)
    assert not verdict.passed and verdict.time is None
    assert judge("import torch\ndef kernel(x, y):\n" + RIGHT, options=QUICK_LOOK).passed


def test_a_crash_names_its_signal(judge: Judge) -> None:
    verdict = judge("import ctypes\ndef kernel(x, y):\n    ctypes.string_at(8)\n")
    assert (verdict.passed, verdict.stage) == (False, Stage.SMOKE)
    assert "SIGSEGV" in verdict.reason
    assert verdict.evidence is not None and verdict.evidence.signature == "crash"


def test_a_hang_ends_with_the_deadline(judge: Judge) -> None:
    # the deadline is the whole verdict's: a judge that has yet to start, or a crowded machine, uses it up before
    judge.verifier.warm(TARGET)
    short = QUICK.model_copy(update={"deadline": 1.5 * crowding()})
    for code, stage in (
        ("while True: ...\ndef kernel(x, y):\n    return x\n", Stage.BUILD),
        ("def kernel(x, y):\n    while True: ...\n", Stage.SMOKE),
    ):
        start = time.monotonic()
        verdict = judge(code, options=short)
        assert (verdict.passed, verdict.stage) == (False, stage)
        assert verdict.evidence is not None and verdict.evidence.signature == "hang"
        assert time.monotonic() - start < 20


def test_forks_and_floods_are_ended(judge: Judge) -> None:
    forks = "import os, time\nfor _ in range(200):\n    if os.fork() == 0:\n        time.sleep(60)\ntime.sleep(60)\n"
    verdict = judge(forks + "def kernel(x, y):\n    return x\n")
    assert verdict.evidence is not None and verdict.evidence.signature == "processes", verdict.reason
    # each copy forks, and reading how much memory one has waits for it
    bomb = "import ctypes, torch\nn = []\ndef kernel(x, y):\n    n.append(1)\n"
    bomb += "    while len(n) > 2: ctypes.CDLL(None).fork()\n"
    start = time.monotonic()
    verdict = judge(bomb + "    return torch.relu(x) + y\n", options=QUICK_LOOK)
    assert verdict.evidence is not None and verdict.evidence.signature == "processes", verdict.reason
    assert time.monotonic() - start < 60
    flood = "import os\nline = b'x' * 65536\nwhile True: os.write(1, line)\ndef kernel(x, y):\n    return x\n"
    verdict = judge(flood)
    assert verdict.evidence is not None and verdict.evidence.signature == "printed", verdict.reason
    assert len(verdict.evidence.log) < 100_000


def test_a_call_counter_that_goes_lazy_is_refused(judge: Judge) -> None:
    """Right for the first calls of a shape, stale ever after. How many calls come before the clock is the judge's own
    affair, so the counter runs out in a check or in a timed call, and is refused in either."""
    code = (
        "import torch\nN = [0]\nLAST = [None]\ndef kernel(x, y):\n"
        "    same = LAST[0] is not None and LAST[0].shape == x.shape\n    N[0] = N[0] + 1 if same else 0\n"
        "    if N[0] > 100:\n        return LAST[0].clone()\n"
        "    LAST[0] = torch.relu(x) + y\n    return LAST[0].clone()\n"
    )
    verdict = judge(code)
    assert not verdict.passed and verdict.stage in (Stage.ROBUST, Stage.HONEST, Stage.FAST), verdict.reason
    assert verdict.evidence is not None


def test_care_that_is_only_taken_in_a_mode_of_torch_is_never_taken(judge: Judge) -> None:
    """On a CPU no mode tells a checked call from a timed one, so the careless form is what the families meet."""
    task = load_task(
        "import torch\ndef reference(x):\n    return torch.softmax(x, -1)\n"
        "def inputs():\n    return torch.randn(48, 70)\n"
    )
    code = (
        "import torch\ndef kernel(x):\n    if torch.are_deterministic_algorithms_enabled():\n"
        "        x = x - x.amax(-1, keepdim=True)\n    e = torch.exp(x)\n    return e / e.sum(-1, keepdim=True)\n"
    )
    verdict = judge(code, task)
    assert (verdict.passed, verdict.stage) == (False, Stage.CORRECT), verdict.reason
    assert "NaN or infinite where the reference is finite" in verdict.reason


def test_a_cache_by_fingerprint_is_caught(judge: Judge) -> None:
    code = (
        "import torch\nC = {}\ndef kernel(x, y):\n    k = (x.shape, x.data_ptr())\n"
        "    if len(C) > 40 or k not in C: C[k] = torch.relu(x) + y\n    return C[k].clone()\n"
    )
    verdict = judge(code)
    assert not verdict.passed
    assert verdict.evidence is not None and verdict.evidence.signature == "stale"


def test_work_left_to_a_thread_is_caught(judge: Judge) -> None:
    code = (
        "import torch, threading, time\ndef kernel(x, y):\n    z = torch.empty(x.shape)\n"
        "    def later():\n        time.sleep(0.003)\n        z.copy_(torch.relu(x) + y)\n"
        "    threading.Thread(target=later).start()\n    return z\n"
    )
    verdict = judge(code)
    assert (verdict.passed, verdict.stage) == (False, Stage.CORRECT), verdict.reason


def test_a_lazy_tensor_is_no_output(judge: Judge) -> None:
    code = (
        "import torch\nclass Lazy(torch.Tensor): ...\ndef kernel(x, y):\n"
        "    return (torch.relu(x) + y).as_subclass(Lazy)\n"
    )
    verdict = judge(code)
    assert (verdict.passed, verdict.stage) == (False, Stage.SMOKE)
    assert "plain tensor" in verdict.reason


def test_the_sandbox_hides_files_network_and_other_processes(judge: Judge, tmp_path: object) -> None:
    secret = os.path.join(str(tmp_path), "secret.txt")
    with open(secret, "w") as file:
        file.write("42")
    code = (
        "import torch, os, socket\nfound = []\n"
        f"try:\n    open({secret!r}).read(); found.append('file')\nexcept OSError: ...\n"
        f"try:\n    open({secret!r} + '2', 'w'); found.append('write')\nexcept OSError: ...\n"
        "try:\n    socket.create_connection(('127.0.0.1', 22), 0.2); found.append('net')\n"
        "except OSError as e:\n    if e.errno == 111 and len(os.listdir('/sys/class/net')) > 1: found.append('net')\n"
        "found += [p for p in os.listdir('/proc') if p.isdigit() and int(p) > 64]\n"
        "found += [k for k in os.environ if 'KERNELLAB_TEST_KEY' in k]\n"
        "def kernel(x, y):\n    assert not found, found\n" + RIGHT
    )
    os.environ["KERNELLAB_TEST_KEY"] = "not for kernels"
    try:
        verdict = judge(code, options=QUICK_LOOK)
    finally:
        del os.environ["KERNELLAB_TEST_KEY"]
    if "landlock" not in verdict.environment.sandbox or "pid" not in verdict.environment.sandbox:
        pytest.skip(f"this machine gives only {verdict.environment.sandbox}")
    assert verdict.passed, verdict.reason


def test_three_bad_kernels_leave_the_next_one_unharmed(judge: Judge) -> None:
    for _ in range(3):
        assert not judge("import ctypes\nctypes.string_at(8)\ndef kernel(x, y):\n    return x\n").passed
    assert judge("import torch\ndef kernel(x, y):\n" + RIGHT, options=QUICK_LOOK).passed


def test_a_killed_judge_is_reported_and_replaced_and_nothing_is_left() -> None:
    source = Source(dsl="cpp", files={"kernel.py": "import time\ntime.sleep(60)\ndef kernel(x, y):\n    return x\n"})
    good = Source(dsl="cpp", files={"kernel.py": "import torch\ndef kernel(x, y):\n" + RIGHT})
    task = load_task(RELU_ADD, "relu_add")
    verifier = Verifier()
    root = verifier._root
    try:
        verifier.warm(TARGET)
        pid = verifier.judge_pid
        assert pid is not None
        errors: list[Exception] = []

        def ask() -> None:
            try:
                verifier.verify(task, source, TARGET, options=QUICK)
            except VerifierError as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        deadline = time.monotonic() + 20
        while len(processes_below(pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        below = processes_below(pid)
        os.kill(pid, signal.SIGKILL)
        thread.join(20)
        assert errors and "judge" in str(errors[0]) and "SIGKILL" in str(errors[0])
        assert _all_gone(below)
        assert verifier.verify(task, good, TARGET, options=QUICK_LOOK).passed
        second = verifier.judge_pid
        assert second is not None and second != pid
        below = [second, *processes_below(second)]
    finally:
        verifier.close()
    assert _all_gone(below)
    assert glob.glob(os.path.join(root, "*")) == []


def test_a_cuda_target_is_refused_in_words(judge: Judge) -> None:
    target = Target("triton", Backend.CUDA, Chip("H200", "gpu", 132))
    text = "import triton\n@triton.jit\ndef one(x):\n    pass\ndef kernel(x, y):\n    one[(1,)](x)\n    return x\n"
    source = Source(dsl="triton", files={"kernel.py": text})
    with pytest.raises(TargetError, match="CUDA"):
        judge.verifier.verify(judge.relu_add, source, target)


def test_a_bad_task_is_the_callers_error_not_a_verdict(judge: Judge) -> None:
    class Text:
        text = (
            "def reference(x):\n    return undefined_name\ndef inputs():\n    import torch\n    return torch.rand(3)\n"
        )
        name = "bad"

    source = Source(dsl="cpp", files={"kernel.py": RMS_CPP})
    with pytest.raises(TaskError, match="undefined_name"):
        judge.verifier.verify(Text(), source, TARGET)  # type: ignore[arg-type]


def test_scratch_folders_are_removed(judge: Judge) -> None:
    judge("import torch\ndef kernel(x, y):\n" + RIGHT)
    root = judge.verifier._root
    # what stays is the judge's own folder and the scratch of the baselines that it keeps warm
    left = [p for p in os.listdir(root) if p.startswith("kernellab-") and not p.startswith("kernellab-judge-")]
    assert len(left) <= pool._BASELINES and tempfile.gettempdir() in root


def _all_gone(pids: list[int], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE for p in pids):
            return True
        time.sleep(0.05)
    return False


def test_processes_that_outlive_a_call_and_cannot_be_stopped_are_named_as_that(judge: Judge) -> None:
    # each of them lets the others go on when the judge halts them all
    code = "import ctypes, torch\nn = []\nlibc = ctypes.CDLL(None)\ndef kernel(x, y):\n    n.append(1)\n"
    code += "    for _ in range(3 if len(n) == 2 else 0):\n        if libc.fork() == 0:\n"
    code += "            while True: libc.kill(-1, 18)\n"
    verdict = judge(code + RIGHT, options=QUICK_LOOK)
    assert verdict.evidence is not None and verdict.evidence.signature == "left-running", verdict.reason
    assert "left processes that could not be stopped" in verdict.reason and "returns" in remedy(verdict)
