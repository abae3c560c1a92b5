"""The judge's looks at a worker that cost little: words of its memory, guards, mappings of the inputs, its halt."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from kernellab.target import Backend
from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.pool import Pool
from kernellab.verifier.judge.worker_client import Worker
from kernellab.verifier.protocol.memory import is_all, lay_out
from kernellab.verifier.protocol.process_memory import Probe


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    pool = Pool()
    with pool.worker("cpp", Backend.CPU, "candidate", 1) as worker:
        yield worker
    pool.close()


def test_words_that_are_close_are_read_together_and_what_lies_between_does_not_count() -> None:
    memory = (ctypes.c_uint64 * 4096)()
    base = ctypes.addressof(memory)
    numbers = [0, 1, 5, 40, 41, 500, 4000, 4095]
    window = Probe.of_words([base + 8 * n for n in reversed(numbers)])
    assert len(window._places) == 5, "0, 1 and 5; 40 and 41; each of the rest"
    before = window.read(os.getpid())
    assert before is not None and len(before) == 8 * len(numbers)
    for number in (2, 39, 42, 499, 501):
        memory[number] += 1
    assert window.read(os.getpid()) == before
    for place, number in enumerate(numbers):
        memory[number] = number + 7
        now = window.read(os.getpid())
        assert now is not None and now != before
        assert now[8 * place : 8 * place + 8] == (number + 7).to_bytes(8, sys.byteorder)
        before = now


def test_each_byte_that_differs_is_found() -> None:
    for size in (1, 2, 3, 64, 4099):
        whole = torch.full((size,), 0xA5, dtype=torch.uint8)
        assert is_all(whole, 0xA5) and not is_all(whole, 0xFF)
        for place in {0, 1, size // 2, size - 1} & set(range(size)):
            whole[place] ^= 0x10
            assert not is_all(whole, 0xA5), (size, place)
            whole[place] ^= 0x10
        # all alike, and not the byte
        assert not is_all(torch.full((size,), 0xFF, dtype=torch.uint8), 0xA5)


#: returns an argument, a part of one, a mapping of its own of an argument's memory, and new memory
KERNEL = """
import mmap, os, re, torch
HELD = []
def kernel(x):
    at = next(line for line in open('/proc/self/maps') if 'memfd:inputs' in line)
    first, last = (int(n, 16) for n in at.split()[0].split('-'))
    again = mmap.mmap(-1, 4096)
    HELD.append(again)
    new = torch.frombuffer(again, dtype=torch.float32, count=64).view(8, 8)
    new.copy_(x[:8, :8])
    return x, x[3:, 2:], new, x + 1, torch.empty(0, 3)
"""


def test_a_view_of_an_input_is_known_by_the_mapping_at_its_place(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (worker.scratch / "src" / "kernel.py").write_text(KERNEL)
    worker.build({"entry_file": "kernel.py", "entry": "kernel"}, 60)
    x = torch.randn(64, 64)
    worker.write(0, lay_out((x,)), (x,))
    outputs = worker.call(lay_out((x,)), (0,), 20).outputs
    ranges = worker.access.shared(outputs).ranges
    by_map = [output.lies_in(ranges) for output in outputs]
    assert by_map == [True, True, False, False, False]
    assert [worker.views(output) for output in outputs] == by_map
    (low, high), none = ranges[0], b"/no such file"
    answers = [process_stats.is_mapped(worker.pid, *place, b"/memfd:inputs") for place in (
        (low - 4096, low), (low - 4096, low + 1), (high - 1, high + 4096), (high, high + 4096), (1 << 62, 1 << 63),
        (low, low),
    )]  # fmt: skip
    assert answers in ([False, True, True, False, False, False], [None] * 5 + [False])
    assert process_stats.is_mapped(worker.pid, low, high, none) in (False, None)
    # Linux before 6.11
    monkeypatch.setattr(process_stats, "is_mapped", lambda *_: None)
    assert [worker.views(output) for output in outputs] == by_map


#: a worker that takes 50 ms to halt, one that has ended, and one that does not halt
HALTS = """
import os, signal, time
from kernellab.verifier.judge import halting
looks, waitid = [], os.waitid
os.waitid = lambda *args: looks.append(args) or waitid(*args)
def forked(work):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    return pid
def late():
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        time.sleep(0.01)
halting._MOST_SECONDS = 30.0
slow = forked(late)
assert halting._until_halted(slow)
print(len(looks))
for _ in range(3):
    os.kill(slow, signal.SIGCONT)
    waitid(os.P_PID, slow, os.WCONTINUED)
    os.kill(slow, signal.SIGSTOP)
    assert halting._until_halted(slow)
os.kill(slow, signal.SIGKILL)
assert halting._until_halted(forked(lambda: None))
halting._MOST_SECONDS = 0.05
runs = forked(lambda: time.sleep(60))
assert not halting._until_halted(runs)
os.kill(runs, signal.SIGKILL)
"""


def test_a_first_process_waits_for_a_halt_without_work() -> None:
    done = subprocess.run([sys.executable, "-c", HALTS], capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr
    # one before the halt and one after it; the signal of an earlier child may wake it once more
    assert int(done.stdout) <= 3
