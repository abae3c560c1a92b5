"""The values of a sketch are computed by a confined worker alone, and nothing that it does ends who asks.

The strongest operation that a sketch could name is arbitrary code: ``timeit.timeit`` runs its second argument in the
worker, once."""

from __future__ import annotations

import ast
import io
import os
import socket
import threading
import time
import timeit
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernellab.agents.model.expected.element import Call, steps_to, value_at
from kernellab.dsls.machine import detect_target
from kernellab.errors import NotRunnable, SketchError
from kernellab.lowering import lower
from kernellab.records import GateState
from kernellab.sandbox import sandbox_level
from kernellab.sandbox.sandbox import contains
from kernellab.sketch.check import check, load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.gate import gate, outputs
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import client, confined, messages, run
from kernellab.sketch.run.library import called
from kernellab.sketch.run.tracer import trace
from kernellab.task import load_task
from kernellab.teach.wrong import fails, wrong_elements
from tests.waiting import until

ROOT = Path(__file__).parents[2]
TASK = load_task(
    "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 64), Dim('N', 1, 64)\n"
    "def inputs(M=8, N=12):\n    return (torch.randn(M, N),)\ndef reference(x):\n    return torch.cumsum(x, 1)\n"
)
SKETCH = """
sketch summed {{
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    Y = library.aten(X, call="{call}")
}}
"""
CUMSUM = SKETCH.format(call="cumsum.default(x0, 1)")
COPY = """
sketch copied {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    for m in range(M):
        load(X[m, 0:N] -> x)
        store(x -> Y[m, 0:N])
}
"""
#: an operation of torch 2 that crashes for a dimension that is none, and is in no list of names
CRASH = SKETCH.format(call="real.default(_fft_r2c.default(x0, [9223372036854775807], 0, True))")


def run_there(code: str, seconds: float = 0.5) -> None:
    confined.compute(timeit.timeit, "pass", code, seconds=seconds)


def works() -> bool:
    x = torch.randn(3, 5)
    return torch.allclose(run(load_program(CUMSUM), {"X": x})["Y"], x.cumsum(1))


class NoneOf(TorchDispatchMode):
    """Fails where an operation of a sketch runs in this process."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        assert func.overloadpacket.__name__ not in self.names, func
        return func(*args, **(kwargs or {}))


# -- where sketches are computed ---------------------------------------------------------------------------------------

SQUARES = SKETCH.format(call="cosh.default(x0)")
SQUARES_TASK = load_task(TASK.text.replace("torch.cumsum(x, 1)", "(torch.exp(x) + torch.exp(-x)) / 2"))
PROGRAM = load_program(SQUARES)
TWO = load_program("""
sketch both {
    symbols: M, N;
    tensors: X[M, N]: f32; Z[M, N]: f32 temp;
    for m in range(M):
        load(X[m, 0:N] -> x)
        store(x -> Z[m, 0:N])
}
sketch last {
    symbols: M, N;
    tensors: Z[M, N]: f32 temp; Y[M, N]: f32 out;
    Y = library.aten(Z, call="cosh.default(x0)")
}
""")
X = torch.randn(3, 5)
EXECUTIONS = {
    "gate": lambda: gate(SQUARES, SQUARES_TASK),
    "outputs": lambda: outputs(PROGRAM, SQUARES_TASK, {}, {}),
    "run": lambda: run(PROGRAM, {"X": X}),
    "trace": lambda: trace(PROGRAM, {"X": X}),
    "map of wrong elements": lambda: wrong_elements(PROGRAM, SQUARES_TASK, {}),
    "mistakes": lambda: fails(PROGRAM, SQUARES_TASK),
    "value": lambda: value_at(PROGRAM, Call({"X": X}, {}, {}, "Y", 2), 5.0),
    "steps": lambda: steps_to(PROGRAM, Call({"X": X}, {}, {}, "Y", 2), 5.0),
    "check": lambda: check(SQUARES),
    "cost": lambda: cost(PROGRAM, {"M": 4, "N": 4}),
    "lower": lambda: lower(TWO, bind(TWO, SQUARES_TASK), detect_target("cpp", rates=False)),
}


@pytest.mark.parametrize("place", EXECUTIONS)
def test_no_operation_of_a_sketch_runs_in_this_process(place: str) -> None:
    """Not on values, and on no meta tensor either: a shape is declared, and compared with the worker's result."""
    with NoneOf("cosh"):
        EXECUTIONS[place]()


def test_the_watch_sees_an_operation_that_runs_here() -> None:
    with NoneOf("cosh"), pytest.raises(AssertionError, match="cosh"):
        torch.cosh(X)


def test_a_call_of_the_library_refuses_to_be_computed_here() -> None:
    call = PROGRAM.kernels[0].body[0]
    with pytest.raises(AssertionError, match="no worker"):
        called(call, [X], (3, 5), {}, False)  # type: ignore[arg-type]


def test_only_a_confined_process_computes_sketches_itself() -> None:
    """Who says that it is a worker is the worker, and the runner of documents in its sandbox."""
    callers = {
        path.relative_to(ROOT / "kernellab").as_posix()
        for path in (ROOT / "kernellab").rglob("*.py")
        if "compute_here" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("compute_here")
    }
    assert callers == {"sketch/run/server.py", "knowledge/runner.py"}


# -- what ends a worker ------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds instead of many until a worker that spins or sleeps is ended."""
    monkeypatch.setattr(confined, "_OVERTIME_SECONDS", 0.5)
    monkeypatch.setattr(confined, "_IDLE_SECONDS", 2.0)


def test_an_operation_that_crashes_is_a_sentence_about_its_sketch() -> None:
    for _ in range(2):
        result = gate(CRASH, TASK)
        assert result.state is GateState.WRONG
        assert result.reason.startswith("Computing the sketch ended its process with SIG"), result.reason
    assert gate(CUMSUM, TASK).state is GateState.RIGHT


ENDS = {
    "invalid address": ("import ctypes; ctypes.string_at(8)", "with SIGSEGV"),
    "abort": ("import os; os.abort()", "with SIGABRT"),
    "exit": ("import os; os._exit(0)", "ended its process"),
    "sys.exit": ("import sys; sys.exit(1)", "ended its process"),
    "kill": ("import os; os.kill(os.getpid(), 9)", "too little memory"),
    "group": ("import os; os.killpg(0, 9)", "too little memory"),
    "memory": ("import torch; torch.ones(1 << 40)", "needs more than 4 GiB"),
    "spin": (
        "import signal\nfor n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n  except Exception: pass\n"
        "while True: pass",
        "took more than 0.5 s",
    ),
    "handler of faults": (
        "import signal, ctypes; signal.signal(signal.SIGSEGV, lambda *a: None); ctypes.string_at(8)", "took more than",
    ),
    "sleep": ("import time\nwhile True: time.sleep(100)", "took more than 0.5 s"),
    "garbage": (
        "import os\nfor fd in range(3, 9):\n  try: os.write(fd, b'A' * 10000)\n  except OSError: pass",
        "spoiled",
    ),
    "bytes of objects": (
        "import os, struct, pickle\nb = pickle.dumps(print)\nfor fd in range(3, 9):\n"
        "  try: os.write(fd, struct.pack('>QQ', len(b), len(b)) + b + b)\n  except OSError: pass",
        "spoiled",
    ),
    "long answer": (
        "import os, struct\nfor fd in range(3, 9):\n  try: os.write(fd, struct.pack('>QQ', 1 << 60, 1))\n"
        "  except OSError: pass",
        "spoiled",
    ),
    "large answer": (
        "import os, struct, json\nh = json.dumps([['float32', [1 << 40]]]).encode()\nfor fd in range(3, 9):\n"
        "  try: os.write(fd, struct.pack('>QQ', len(h), 2) + h + b'{}')\n  except OSError: pass",
        "spoiled",
    ),
    "deep answer": (
        "import os, struct\nh = b'[' * 100000\nfor fd in range(3, 9):\n"
        "  try: os.write(fd, struct.pack('>QQ', 2, len(h)) + b'[]' + h)\n  except OSError: pass",
        "spoiled",
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", ENDS)
def test_what_ends_a_worker_is_one_sentence(attack: str, impatient: None) -> None:
    code, said = ENDS[attack]
    with pytest.raises(SketchError, match=said) as caught:
        run_there(code)
    assert len(caught.value.message.splitlines()) == 1 and caught.value.remedy
    assert works()


def test_a_worker_that_was_ended_is_asked_no_more_for_its_sketch(impatient: None) -> None:
    with confined.one_worker():
        with pytest.raises(NotRunnable, match="took more than"):
            run_there("while True: pass")
        began = time.monotonic()
        with pytest.raises(NotRunnable, match="took more than"):
            run_there("pass")
        assert time.monotonic() - began < 1
    assert works()


def test_workers_count_to_the_time_that_is_given(impatient: None) -> None:
    """A grader gives one time for all that an answer makes it compute."""
    began = confined.used()
    with confined.within(1.0):
        run_there("import time\nend = time.thread_time() + 0.6\nwhile time.thread_time() < end: pass", seconds=30.0)
        assert confined.used() - began > 0.6
        with pytest.raises(NotRunnable, match="took more than"):
            run_there("while True: pass", seconds=30.0)
        with pytest.raises(NotRunnable, match="is over"):
            run_there("pass")
    assert works()


def test_another_sketch_has_another_worker() -> None:
    """What a sketch changes in its worker, torch's own functions, meets no other sketch."""
    run_there("import torch; torch.cumsum = None; torch.Tensor.reshape = None; torch.set_default_dtype(torch.float64)")
    assert works()


def test_workers_of_two_threads_are_apart(impatient: None) -> None:
    """The one is at work while the other's is ended."""
    said: list[object] = []

    def spin() -> None:
        try:
            run_there("while True: pass", seconds=1.0)
        except SketchError as error:
            said.append(error)

    thread = threading.Thread(target=spin)
    thread.start()
    assert works() and works()
    with pytest.raises(SketchError, match="SIGSEGV"):
        run_there("import ctypes; ctypes.string_at(8)")
    thread.join()
    assert len(said) == 1 and isinstance(said[0], NotRunnable)


def test_a_server_that_is_gone_is_started_again() -> None:
    assert works()
    server = client.running()
    server.process.kill()
    server.process.wait()
    assert works()
    confined.shut()
    assert server.process.poll() is not None and works()


def test_a_lost_server_ends_with_its_worker() -> None:
    """The worker is ended while it computes: its sketch is said not to have been run, and the next one is."""
    assert works()
    threading.Timer(0.5, client.running().process.kill).start()
    with pytest.raises(NotRunnable):
        run_there("while True: pass", seconds=30.0)
    assert works()


# -- what a worker holds and may do ------------------------------------------------------------------------------------


@pytest.fixture
def contained() -> Iterator[None]:
    if not contains(sandbox_level()):
        pytest.skip("this machine has no sandbox")
    yield


REFUSED = {
    "read home": f"open({str(ROOT / 'pyproject.toml')!r}).read()",
    "list home": f"import os; os.listdir({str(ROOT / 'tests')!r})",
    "write": "open('/tmp/kernellab-attack', 'w').write('x')",
    "write to shared memory": "open('/dev/shm/kernellab-attack', 'w').write('x')",
    "write to its folder": "open('kernellab-attack', 'w').write('x')",
    "network": "import socket; socket.create_connection(('127.0.0.1', 22), 1)",
    "local socket": "import socket; socket.socket(socket.AF_UNIX)",
    "process": "import os; os.fork()",
    "program": "import os; os.execv('/bin/true', ['true'])",
    "shell": "import subprocess; subprocess.run(['true'], check=True)",
    "signal to the server": "import os; os.kill(os.getppid(), 9)",
    "memory of the server": "import os; open(f'/proc/{os.getppid()}/mem', 'r+b')",
    "environment of the server": "import os; open(f'/proc/{os.getppid()}/environ', 'rb').read()",
    "file of torch": "import torch; torch.from_file('/etc/shadow', size=10, dtype=torch.uint8)",
    "saved by torch": "import torch; torch.save(torch.ones(1), '/tmp/kernellab-attack')",
}


@pytest.mark.parametrize("attempt", REFUSED)
def test_a_worker_may_not(attempt: str, contained: None) -> None:
    with pytest.raises(SketchError, match=r"cannot be computed: (Permission|ProcessLookup|Runtime)Error"):
        run_there(REFUSED[attempt])
    assert not Path("/tmp/kernellab-attack").exists() and works()


def test_a_worker_holds_no_key_and_nothing_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-session")
    confined.shut()
    with pytest.raises(SketchError) as caught:
        run_there("import os; raise ValueError(sorted(os.environ))")
    assert "PATH" in caught.value.message and "KEY" not in caught.value.message
    with pytest.raises(SketchError) as caught:
        run_there(
            "import os; raise ValueError([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')"
            " if os.path.exists(f'/proc/self/fd/{n}')])"
        )
    opened = ast.literal_eval(caught.value.message.partition("ValueError: ")[2])
    assert sum("socket" in one for one in opened) == 1 and {one for one in opened if "socket" not in one} == {
        "/dev/null"
    }


def test_what_a_sketch_names_is_computed_in_a_sandbox_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert works()
    monkeypatch.setattr(client.Server, "is_contained", False)
    result = gate(CUMSUM, TASK)
    assert result.state is GateState.NOT_RUNNABLE and "no sandbox" in result.reason
    assert torch.equal(run(load_program(COPY), {"X": X})["Y"], X)


# -- answers -----------------------------------------------------------------------------------------------------------

LIES = {
    "shape": "{'outputs': [torch.ones(7)], 'written': [torch.ones(7, dtype=torch.bool)]}",
    "dtype": "{'outputs': [torch.ones(3, 5).double()], 'written': [torch.ones(3, 5, dtype=torch.bool)]}",
    "mask": "{'outputs': [torch.ones(3, 5)], 'written': [torch.ones(3, 5)]}",
    "none": "{'outputs': [], 'written': []}",
    "number": "3",
    "text": "{'outputs': ['x'], 'written': ['y']}",
}


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_no_sketch_gives_is_refused(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that wrote over its worker's code decides what the worker answers."""
    answer = eval(LIES[lie])
    monkeypatch.setattr("kernellab.sketch.run.interpreter.compute", lambda *args, **kwargs: answer)
    with pytest.raises(SketchError, match="answers what no sketch computes"):
        run(PROGRAM, {"X": X})


def test_events_outside_a_tensor_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {
        "outputs": [torch.ones(3, 5)], "written": [torch.ones(3, 5, dtype=torch.bool)],
        "events": [[3, "X", False, {}, [15], 0]], "bytes": dict.fromkeys(("fastest", "fast", "medium", "slow"), 0),
    }  # fmt: skip
    monkeypatch.setattr("kernellab.sketch.run.tracer.compute", lambda *args, **kwargs: answer)
    with pytest.raises(SketchError, match="answers what no sketch computes"):
        trace(PROGRAM, {"X": X})


@pytest.mark.parametrize(
    "head", ('[["nothing", [1]]]', '[["float32"]]', "{}", '[["float32", [-1]]]', "nonsense", '[["add", [1]]]')
)
def test_an_answer_whose_tensors_are_none_is_refused(head: str) -> None:
    stream = io.BytesIO(messages._LENGTHS.pack(len(head), 2) + head.encode() + b"[]")
    with pytest.raises(messages.Malformed):
        messages.take_answer(lambda part: stream.readinto(part) or None, 64)


def test_programs_and_tensors_arrive_as_they_were() -> None:
    """In a stream: the second time a program is named by its number."""
    from kernellab.sketch.run import messages
    from kernellab.sketch.run.interpreter import prepared

    ours, theirs = socket.socketpair()
    sent, received = messages.SentPrograms(), messages.SentPrograms()
    given = prepared(PROGRAM, {"X": X.to(torch.bfloat16)}, f64=True)
    for _ in range(2):
        arguments = (given, {"a": [1, (2.5, None)], "b": frozenset({3})}, torch.zeros(0, 3), torch.tensor(True))
        messages.send_call(ours.sendall, sent, timeit.timeit, arguments)
        function, got = messages.take_call(lambda part: _filled(theirs, part), received)
        assert function is timeit.timeit and got[1] == arguments[1]
        assert got[0].program == PROGRAM and (got[0].symbols, got[0].f64) == (given.symbols, True)
        assert got[0].arrays["X"].dtype == torch.bfloat16 and torch.equal(got[0].arrays["X"], X.to(torch.bfloat16))
        assert got[2].shape == (0, 3) and got[3].item() is True
    assert len(received.programs) == 1 and got[0].program is received.programs[0]


def _filled(channel: socket.socket, part: memoryview) -> None:
    while len(part):
        part = part[channel.recv_into(part) :]


def test_nothing_is_left_behind() -> None:
    """Neither a folder nor a process, once the server is ended."""
    assert works()
    server = client.running()
    # those of servers that other tests start are there for seconds
    until(lambda: not [name for name in os.listdir("/tmp") if name.startswith("kernellab-sketch-")])
    below = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    confined.shut()
    assert below and not any(Path(f"/proc/{pid}").exists() for pid in below)


def test_a_server_that_no_one_asks_ends_and_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds 150 MB. A worker that is at work keeps it."""
    confined.shut()
    monkeypatch.setattr(client, "IDLE_SECONDS", 0.3)
    assert works()
    server = client.running()
    with confined.one_worker():
        run_there("import time; time.sleep(2)", seconds=5.0)
        run_there("pass")
    server.process.wait(20)
    assert works() and client.running() is not server
    confined.shut()


def test_a_server_rests_where_no_sketch_is_computed() -> None:
    assert works()
    server = client.running()
    with confined.one_worker():
        run_there("pass")
        confined.rest()
        assert server.is_usable()
        run_there("pass")
    confined.rest()
    assert not server.is_usable()
    assert works()
    confined.shut()
