"""The go and the answer: what proves an answer, what is withheld before the go, how all of a worker is halted."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernellab.sandbox import sandbox, sandbox_level
from kernellab.sandbox.caps import CAPS
from kernellab.target import Backend
from kernellab.verifier.judge import process, process_stats
from kernellab.verifier.judge.pool import Pool
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.worker_client import Worker
from kernellab.verifier.protocol.control import Control
from kernellab.verifier.protocol.memory import Arena, Layout, lay_out
from kernellab.verifier.protocol.process_memory import Probe
from kernellab.verifier.protocol.rules import Deadlines
from kernellab.verifier.protocol.sanitize import shown, shown_all
from kernellab.verifier.protocol.seals import sealed_memory


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.close()


@pytest.fixture
def worker(pool: Pool) -> Iterator[Worker]:
    with pool.worker("cpp", Backend.CPU, "candidate", 1) as worker:
        yield worker


def built(worker: Worker, code: str, *args: object) -> Layout:
    (worker.scratch / "src" / "kernel.py").write_text(code)
    worker.build({"entry_file": "kernel.py", "entry": "kernel"}, 60)
    layout = lay_out(args)
    for slot in (0, 1):
        worker.write(slot, layout, args)
    return layout


def test_contents_are_whole_only_when_the_go_is_given() -> None:
    args = torch.randn(64, 70), torch.arange(5), 3.0, torch.empty(0, 4)
    arena = Arena(lay_out(args).size)
    arena.write(lay_out(args), args)
    draw = random.Random(1)
    seen = []
    for _ in range(20):
        arena.withhold(draw)
        assert arena.changed(args) == 0 and not torch.equal(arena.views()[1], args[1])  # type: ignore[arg-type]
        seen.append((arena.views()[0] != args[0]).nonzero().tolist())
        arena.complete()
        assert arena.changed(args) is None and arena.trespassed() is None
    assert len({str(places) for places in seen}) == 20, "the places are drawn anew each time"
    arena.close()


def test_an_answer_must_repeat_a_go_that_nobody_can_guess() -> None:
    control = Control(Control.create())
    goes = {Control.nonce() for _ in range(100)}
    assert len(goes) == 100 and 0 not in goes
    go = goes.pop()
    control.go(go)
    assert not control.proves(go)
    control.answered(go)
    assert control.proves(go) and not control.proves(goes.pop())


STILL_WRITING = """
import threading, time, torch
out = torch.zeros(4096)
def write():
    while True:
        out.add_(1)
threading.Thread(target=write, daemon=True).start()
def kernel(x):
    return out
"""


@pytest.mark.parametrize("awake", (False, True))
def test_an_output_that_changes_after_the_answer_is_refused(worker: Worker, awake: bool) -> None:
    x = torch.randn(4096)
    layout = built(worker, STILL_WRITING, x)
    with pytest.raises(WorkerFailure, match="writes its output after it has answered") as failed:
        for _ in range(20):
            worker.call(layout, (0,), 20.0, late=(x,), awake=awake)
    assert failed.value.kind == "late-write"


def test_a_call_that_takes_longer_than_the_judge_stays_awake_is_no_late_one(worker: Worker) -> None:
    x = torch.ones(4096)
    code = "import time, torch\ndef kernel(x):\n    y = torch.zeros(4096)\n    time.sleep(0.1)\n    return y.add_(x)\n"
    layout = built(worker, code, x)
    call = worker.call(layout, (0,), 20.0, late=(x,), awake=True)
    assert torch.equal(worker.read(call.outputs[0]), x)


def test_an_output_that_is_done_is_not(worker: Worker) -> None:
    x = torch.randn(64, 70)
    layout = built(worker, "def kernel(x):\n    return x.t() * 2, x[:, :5] + 1\n", x)
    for awake in (False, True):
        call = worker.call(layout, (0,), 20.0, late=(x,), awake=awake)
        assert torch.equal(worker.read(call.outputs[0]), x.t() * 2) and torch.equal(
            worker.read(call.outputs[1]), x[:, :5] + 1
        )


@pytest.mark.parametrize(
    "event",
    ["(1 << 32) + 1", "1 << 32", "2 << 32"],
)
def test_an_answer_before_the_go_is_refused(worker: Worker, event: str) -> None:
    code = (
        "import os, sys\n"
        "main = sys.modules['kernellab.verifier.worker.calls']\n"
        "def timed(self, args):\n"
        "    self.control.write_done(0, 1e-6)\n"
        f"    os.eventfd_write(self.done, {event})\n"
        "main.Worker._timed = timed\n"
        "def kernel(x):\n    return x\n"
    )
    layout = built(worker, code, torch.ones(4))
    with pytest.raises(WorkerFailure, match="before it was made") as failed:
        worker.call(layout, (0, 1), 10, late=(torch.ones(4),))
    assert failed.value.kind == "protocol"


def test_an_answer_with_another_go_is_refused(worker: Worker) -> None:
    code = (
        "import sys\n"
        "main = sys.modules['kernellab.verifier.worker.calls']\n"
        "def kernel(x):\n"
        "    main.Control.answered = lambda self, go: self.words.__setitem__(1, go ^ 1)\n"
        "    return x + 1\n"
    )
    layout = built(worker, code, torch.ones(4))
    with pytest.raises(WorkerFailure, match="that was not made"):
        worker.call(layout, (0,), 10)


@pytest.mark.parametrize(
    "replaced",
    [
        "main.place = lambda t, f=main.place: f(t)", "main.Worker._timed = lambda s, a, f=main.Worker._timed: f(s, a)",
        "main.flatten.__code__ = (lambda result, strict: [result]).__code__", "main._shift.__defaults__ = (1,)",
        "main.os.eventfd_write = lambda *a, f=main.os.eventfd_write: f(*a)", "main.enumerate = enumerate",
    ],
)  # fmt: skip
def test_what_calls_a_kernel_and_answers_for_it_is_not_to_be_replaced(worker: Worker, replaced: str) -> None:
    code = (
        f"import sys\nmain = sys.modules['kernellab.verifier.worker.calls']\n{replaced}\ndef kernel(x):\n    return x\n"
    )
    layout = built(worker, code, torch.ones(4))
    with pytest.raises(WorkerFailure, match="replaces the code that calls it"):
        worker.call(layout, (0,), 10)


def test_memory_that_is_made_unreadable_is_not_what_it_was() -> None:
    libc = ctypes.CDLL(None)
    with mmap.mmap(-1, 2 * mmap.PAGESIZE) as held:
        low = ctypes.addressof(ctypes.c_char.from_buffer(held))
        window = Probe.of_words([low + 8, low, low + mmap.PAGESIZE])
        assert window.read(os.getpid()) == bytes(24)
        for first, left in ((low + mmap.PAGESIZE, bytes(16)), (low, b"")):
            assert libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
            assert window.read(os.getpid()) == left
        assert libc.mprotect(ctypes.c_void_p(low), ctypes.c_size_t(2 * mmap.PAGESIZE), 3) == 0
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
        assert window.read(ended.pid) is None


def test_a_private_call_that_fails_leaves_the_next_ones_their_arguments(worker: Worker) -> None:
    code = "def kernel(x):\n    if x[0] > 1:\n        raise ValueError('large')\n    return x + 1\n"
    layout = built(worker, code, torch.ones(4))
    worker.write(0, layout, (torch.full((4,), 2.0),))
    with pytest.raises(WorkerFailure, match="large"):
        worker.call(layout, (0,), 20, private=True)
    worker.write(0, layout, (torch.ones(4),))
    assert torch.equal(worker.read(worker.call(layout, (0,), 20).outputs[0]), torch.full((4,), 2.0))


def test_a_warning_that_a_kernel_gives_its_caller_replaces_nothing(worker: Worker) -> None:
    code = "import warnings\ndef kernel(x):\n    warnings.warn('slow', stacklevel=2)\n    return x + 1\n"
    layout = built(worker, code, torch.ones(4))
    for _ in range(2):
        call = worker.call(layout, (0,), 10)
    assert worker._intact and torch.equal(worker.read(call.outputs[0]), torch.full((4,), 2.0))


def test_all_threads_and_processes_of_a_worker_are_halted_in_one_act(worker: Worker) -> None:
    if "pid" not in sandbox_level():
        pytest.skip("no PID namespace here")
    code = (
        "import os, threading, time, torch\n"
        "for _ in range(30):\n    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "for _ in range(3):\n"
        "    if not os.fork():\n"
        "        while True: pass\n"
        "def kernel(x):\n    return x + 1\n"
    )
    layout = built(worker, code, torch.ones(4))
    call = worker.call(layout, (0,), 20)
    assert call.seconds < 5
    spinning = [p for p in process_stats.descendants(worker.first, CAPS.processes) if p != worker.pid]
    assert len(spinning) == 3
    used = [process_stats.used(p) for p in (worker.pid, *spinning)]
    time.sleep(0.05)
    assert [process_stats.used(p) for p in (worker.pid, *spinning)] == used and all(u > 0 for u in used)
    worker.resume()
    time.sleep(0.2)
    assert sum(process_stats.used(p) for p in spinning) > sum(used[1:])


SPIN = r'''
import ctypes, os, subprocess
CODE = r"""
#include <thread>
extern "C" void spin(int n) {
  while (n--) std::thread([] { for (volatile long i = 0;; i = i + 1) {} }).detach();
}
"""
at = os.environ["TMPDIR"]
with open(at + "/s.cpp", "w") as file:
    file.write(CODE)
subprocess.run(["g++", "-shared", "-fPIC", "-pthread", at + "/s.cpp", "-o", at + "/s.so"], check=True)
ctypes.CDLL(at + "/s.so").spin(12)
def kernel(x):
    return x + 1
'''


def test_threads_that_spin_on_all_cores_have_halted_before_they_are_looked_at(worker: Worker) -> None:
    layout = built(worker, SPIN, torch.ones(4))
    for _ in range(5):
        worker.call(layout, (0, 1), 60, late=(torch.ones(4),))
        assert process_stats.is_halted(worker.pid)
        before = process_stats.used(worker.pid)
        time.sleep(0.02)
        assert process_stats.used(worker.pid) == before


def test_what_ran_while_it_was_halted_is_refused(worker: Worker) -> None:
    layout = built(worker, "def kernel(x):\n    return x + 1\n", torch.ones(4))
    worker.call(layout, (0,), 20)
    worker._used -= 0.01
    with pytest.raises(WorkerFailure, match="while it was halted"):
        worker.resume()


def test_time_until_all_had_halted_is_the_worker_s_where_it_used_it(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = (
        "import time\ndef kernel(x):\n    end = time.perf_counter() + 0.02\n    while time.perf_counter() < end: pass\n"
    )
    layout = built(worker, busy + "    return x + 1\n", torch.ones(4))
    halt = Worker.stop

    def slow(self: Worker) -> float:
        at = halt(self)
        return at if self is not worker else at + 0.01

    monkeypatch.setattr(Worker, "stop", slow)
    assert worker.call(layout, (0,), 20).seconds > 0.0295


def test_sealed_memory_neither_shrinks_nor_grows() -> None:
    fd = sealed_memory("test", 1 << 16)
    memory = mmap.mmap(fd, 1 << 16)
    memory[0] = 7
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(fd, 1033, 0x8)
    assert memory[0] == 7 and os.fstat(fd).st_size == 1 << 16
    for fd in (Control.create(), Arena(1 << 12).fd):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)


def test_what_a_candidate_says_moves_no_cursor_and_hides_nothing() -> None:
    said = "\x1b[2J\x1b]0;t\x07 Right, 99x\r\x9b1m\u202ee\u200b\ud800 \u00e9 \u2192\n\tend"
    assert shown(said) == ("\\x1b[2J\\x1b]0;t\\x07 Right, 99x\\x0d\\x9b1m\\u202ee\\u200b\\ud800 \u00e9 \u2192\n\tend")
    assert shown("a\r\nb") == "a\nb"
    assert shown_all({"a\x00": ["\x1b", {"b": 1}], "n": None}) == {"a\\x00": ["\\x1b", {"b": 1}], "n": None}


def test_a_worker_s_words_reach_the_judge_escaped(worker: Worker) -> None:
    code = "import sys\nsys.stderr.write('\\x1b[31mlog\\n')\nraise ValueError('\\x1b[2J\\x1b[32mRight')\n"
    with pytest.raises(WorkerFailure, match=r"\\x1b\[2J\\x1b\[32mRight") as failed:
        built(worker, code)
    assert "\x1b" not in failed.value.log + str(failed.value.detail) and "\\x1b[31mlog" in failed.value.log


def test_the_system_itself_bounds_threads_and_processes(worker: Worker) -> None:
    if sandbox._kernel() < (6, 14) or "mnt" not in sandbox_level():
        pytest.skip("this kernel counts no namespace's processes apart")
    path = Path(f"/proc/{worker.pid}/root/proc/sys/kernel/pid_max")
    outside = int(Path("/proc/sys/kernel/pid_max").read_text())
    if not path.exists():
        pytest.skip("another user's files")
    assert int(path.read_text()) == outside, "that of the reader's own namespace"
    code = (
        "import threading, time\n"
        "count = 0\n"
        "try:\n"
        "    while count < 5000:\n"
        "        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "        count += 1\n"
        "except RuntimeError:\n    pass\n"
        "raise ValueError(f'{count} threads')\n"
    )
    with pytest.raises(WorkerFailure) as failed:
        built(worker, code)
    if failed.value.kind == "exception":
        assert int(failed.value.message.split()[1]) < 300 + sandbox.most_tasks()
    else:
        assert failed.value.kind == "processes" and "threads" in failed.value.message


def test_an_answer_of_any_form_is_a_failure_and_no_fault_of_the_judge(worker: Worker) -> None:
    code = (
        "import json, sys\n"
        "main = sys.modules['kernellab.verifier.worker.calls']\n"
        "main.explain = lambda error, root: TOLD\n"
        "def kernel(x):\n    global TOLD\n    TOLD = eval(x)\n    raise ValueError\n"
    )
    for told in (
        "{'type': 'E', 'message': 5, 'frames': 7, 'inside': [1], 'trace': {}}",
        "{'type': 'E' * 5000, 'frames': [3, {'file': 1, 'line': 'x'}, {'line': -1}]}",
        "{'type': 3}",
        "[1, 2]",
        "__import__('functools').reduce(lambda a, _: [a], range(400), 'deep')",
    ):
        layout = built(worker, code, told) if not worker.arenas else lay_out((told,))
        worker._intact = b""
        with pytest.raises(WorkerFailure) as failed:
            worker.call(layout, (0,), 10)
        assert failed.value.kind in ("exception", "protocol") and len(failed.value.message) < 300
        assert all(isinstance(f["line"], int) for f in failed.value.detail.get("frames", []))


def test_a_worker_that_ends_after_its_answer_is_told_as_one_that_ended(worker: Worker) -> None:
    layout = built(worker, "def kernel(x):\n    return x + 1\n", torch.ones(4))
    call = worker.call(layout, (0,), 20)
    os.kill(worker.pid, 9)
    limit = time.monotonic() + 10
    while not worker.gone():
        assert time.monotonic() < limit
    for look in (lambda: worker.read(call.outputs[0]), lambda: worker.shared(call.outputs)):
        with pytest.raises(WorkerFailure) as failed:
            look()
        assert failed.value.kind in ("crash", "exit", "protocol")


FLOOD = """
import socket, sys
calls = sys.modules['kernellab.verifier.worker.calls']
timed = calls.Worker._timed
def flooding(self, args):
    timed(self, args)
    for _ in range(20):
        try:
            {send}
        except OSError:
            pass
calls.Worker._timed = flooding
def kernel(x):
    return x + 1
"""


@pytest.mark.parametrize(
    "send",
    [
        "self.channel.send(b'[' * 5000 + b']' * 5000)",
        "self.channel.send(b'not json')",
        "socket.send_fds(self.channel, [b'{}'], [1] * 200)",
        "socket.send_fds(self.channel, [b'{\"ok\": true}'], [1] * 3)",
    ],
)
def test_packets_that_nobody_asked_for_are_no_fault_of_the_judge(worker: Worker, send: str) -> None:
    layout = built(worker, FLOOD.replace("{send}", send), torch.ones(4))
    # what it has replaced for that is not looked at here
    worker._intact = b""
    call = worker.call(layout, (0,), 20)
    assert torch.equal(worker.read(call.outputs[0]), torch.full((4,), 2.0))
    held = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with contextlib.suppress(WorkerFailure):
            worker.ghost([], 10)
    assert len(os.listdir("/proc/self/fd")) <= held, "what came with them is not kept"


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("torch.zeros([1] * 64)", "64 dimensions"),
        ("[x] * 5000", "5000 tensors"),
        ("torch.zeros(3, dtype=torch.float8_e5m2fnuz)", "float8_e5m2fnuz"),
        ("type('T' * 900, (), {})()", "not a plain tensor"),
    ],
)
def test_an_output_that_no_answer_can_hold_is_told_in_the_kernel_s_terms(
    worker: Worker, returned: str, said: str
) -> None:
    layout = built(worker, f"import torch\ndef kernel(x):\n    return {returned}\n", torch.ones(4))
    with pytest.raises(WorkerFailure, match=said) as failed:
        worker.call(layout, (0,), 20)
    assert failed.value.kind == "output" and len(failed.value.message) < 200


def test_a_private_call_s_arguments_lie_in_no_memory_of_the_judge_s(worker: Worker) -> None:
    code = (
        "import os, torch\n"
        "def kernel(x, y):\n"
        "    with open(os.sep.join(['', 'proc', 'self', 'maps'])) as file:\n"
        "        shared = [line for line in file if 'memfd:inputs' in line]\n"
        "    return torch.tensor([float(len(shared))])\n"
    )
    args = torch.ones(4), torch.ones(3, 4).t().contiguous().t()[0]
    layout = built(worker, code, *args)
    assert worker.read(worker.call(layout, (0,), 20).outputs[0]).item() == 2
    worker.write(0, layout, args)
    for poison in (False, True):
        assert worker.read(worker.call(layout, (0,), 20, private=True, poison=poison).outputs[0]).item() == 0
        worker.write(0, layout, args)
    # the next call's lie in the judge's again
    assert worker.read(worker.call(layout, (0,), 20).outputs[0]).item() == 1


def test_a_halt_that_comes_late_stops_no_call_that_follows(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stood still: the first process sends its signal when the judge no longer waits for it."""
    code = "import time\ndef kernel(x):\n    time.sleep(0.6)\n    return x + 1\n"
    layout = built(worker, code, torch.zeros(8))
    worker.resume()
    os.kill(worker.first, signal.SIGSTOP)
    monkeypatch.setattr(process, "DEADLINES", Deadlines(stop=0.05))
    worker.stop()
    late = threading.Timer(0.4, os.kill, (worker.first, signal.SIGCONT))
    late.start()
    for _ in range(3):
        worker.call(layout, (0,), 5.0)
    late.join()


def test_a_first_process_that_no_longer_answers_ends_its_worker(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = built(worker, "def kernel(x):\n    return x + 1\n", torch.zeros(8))
    worker.resume()
    os.kill(worker.first, signal.SIGSTOP)
    monkeypatch.setattr(process, "DEADLINES", Deadlines(stop=0.1, halt=0.2))
    worker.stop()
    with pytest.raises(WorkerFailure, match="could not be stopped"):
        worker.call(layout, (0,), 5.0)
