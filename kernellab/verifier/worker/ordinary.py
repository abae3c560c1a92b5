"""Calls a kernel as a user's program does. ``job.json`` (a :class:`Job`) describes the calls; the answers go to files.

Runs in a process of the judge's that has removed its traces; or, if a source requires it, this file is copied next to
the source and run by a shell, so it imports torch alone. Another process, forked before the first has a kernel, makes
first calls from two threads at once (:class:`_TwoThreads`) after the first has made its calls.
"""

import contextlib
import ctypes
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypedDict

import torch

#: number of files that a program holds open before it has a kernel
_OPEN = 64
#: memory of a caller's tensor: as torch allocates it, in the storage of a larger one, written to several times before,
#: or shared between processes
HELD = ("alone", "view", "written", "shared")
#: size factor of that storage, largest argument (bytes) that is held in this way, and number of writes to one
_LARGER, _SMALL, _WRITTEN = 96, 1 << 20, 8
#: upper bound of the wall-clock time of earlier calls, as a multiple of their seconds
_MOST_WALL = 4


class Argument(TypedDict, total=False):
    """One argument: its ``value``; or a tensor, whose contents are in ``file``, in memory of the way ``held``."""

    value: Any
    file: str
    shape: list[int]
    strides: list[int]
    dtype: str
    held: str


class Call(TypedDict):
    """One call, after others that take up to ``seconds``; its outputs go to the files ``answers``."""

    args: list[Argument]
    answers: list[str]
    seconds: float
    #: number of earlier calls on the same values
    earlier: int
    #: for each call at other shapes, the shape of each argument (None: as it is)
    shapes: list[list[list[int] | None]]


class FirstCalls(TypedDict):
    """First calls from two threads: files for the outputs of answers that differ, and one that says that a call
    crashed."""

    args: list[Argument]
    answers: list[list[str]]
    crashed: str


class Job(TypedDict):
    """What the judge asks for."""

    folder: str
    entry_file: str
    entry: str
    #: the worker's message for a build
    build: dict[str, Any]
    device: str
    threads: int
    #: positions of the arguments that the reference writes into, and of those that a program may update in place
    written: list[int]
    renewed: list[int]
    calls: list[Call]
    first: FirstCalls | None


Kernel = Callable[..., Any]


def _argument(spec: Argument, folder: str, device: str) -> Any:
    if "value" in spec:
        return spec["value"]
    if 0 in spec["shape"]:
        return torch.empty(spec["shape"], dtype=getattr(torch, spec["dtype"]), device=device)
    path = os.path.join(folder, spec["file"])
    with open(path, "rb") as file:
        read = torch.frombuffer(bytearray(file.read()), dtype=getattr(torch, spec["dtype"]))
    os.unlink(path)
    return _held(spec["held"], spec["shape"], spec["strides"], read.dtype, device).copy_(read.reshape(spec["shape"]))


def _held(way: str, shape: list[int], strides: list[int], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Memory of a caller's tensor in one of the ways :data:`HELD`, at an address chosen by torch."""
    place = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    count = place.untyped_storage().nbytes() // dtype.itemsize
    if way == "view" and place.nbytes <= _SMALL:
        at = -(-count // 64) * 64
        return torch.empty(_LARGER * at, dtype=dtype, device=device).as_strided(shape, strides, at)
    if way == "written":
        for _ in range(_WRITTEN):
            # writes no element, but counts as a write
            place.as_strided((0,), (1,)).zero_()
    if way == "shared" and device == "cpu":
        with contextlib.suppress(OSError, RuntimeError):  # a sandbox may have no shared memory
            place.share_memory_()  # type: ignore[no-untyped-call]
    return place


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        return [tensor for part in result if part is not None for tensor in _tensors(part)]
    return [torch.as_tensor(result).resolve_conj().resolve_neg()]


def _at_shapes(kernel: Kernel, args: list[Any], shapes: list[list[list[int] | None]], end: float) -> None:
    """Call a kernel at other shapes of its arguments (None: as they are) until ``end``, a wall-clock time: what it
    keeps for each shape may run out of room. Floats repeat the values of the arguments; integers are 0, which are
    indices at every size."""
    changed = [a for a, shape in zip(args, shapes[0] if shapes else (), strict=False) if shape is not None]
    if any(not a.numel() or not (a.is_floating_point() or bool((a == 0).any())) for a in changed):
        return  # integers that are never 0 may be divisors
    for shape_of in shapes:
        others = [arg if shape is None else _resized(arg, shape) for arg, shape in zip(args, shape_of, strict=True)]
        with contextlib.suppress(Exception):  # only the answers after these calls are compared
            kernel(*others)
        if time.monotonic() > end:
            break


def _resized(value: torch.Tensor, shape: list[int]) -> torch.Tensor:
    if not value.is_floating_point():
        return value.new_zeros(shape)
    count = value.new_zeros(shape).numel()
    return value.reshape(-1)[torch.arange(count, device=value.device) % value.numel()].reshape(shape)


def _other_contents(kernel: Kernel, args: list[Any], renewed: list[int], written: list[int]) -> None:
    """Call a kernel while the same tensors hold other numbers, as a program that updates them in place does: what it
    keeps for a tensor is stale in the next call. It writes into copies."""
    if not renewed:
        return
    held = {i: args[i].clone() for i in renewed if i < len(args) and args[i].numel()}
    with contextlib.suppress(Exception):  # the reference may not accept these numbers
        for i in held:
            args[i].mul_(0.5)
        kernel(*(a.clone() if i in written else a for i, a in enumerate(args)))
    for i, values in held.items():
        args[i].copy_(values)


def _call(kernel: Kernel, job: Job, folder: str) -> None:
    """Make each of the calls, after many others on the same values; arguments that are written into are outputs too."""
    for number, call in enumerate(job["calls"]):
        # in every other case a Model is the only instance of its class
        called = getattr(kernel, "alone", kernel) if number % 2 else kernel
        args = [_argument(spec, folder, job["device"]) for spec in call["args"]]
        earlier_args, last_args = (_copies(args, job["written"]) for _ in range(2))
        _at_shapes(called, earlier_args, call["shapes"], time.monotonic() + _MOST_WALL * call["seconds"])
        if call["earlier"]:
            _call_often(called, earlier_args, args, call, job)
        else:
            _other_contents(called, last_args, job["renewed"], job["written"])
        _write(_outputs(called, last_args, job["written"]), call["answers"], folder)


def _copies(args: list[Any], written: list[int]) -> list[Any]:
    """The arguments, with copies of those that are written into."""
    return [a.clone() if i in written else a for i, a in enumerate(args)]


def _outputs(kernel: Kernel, args: list[Any], written: list[int]) -> list[torch.Tensor]:
    """The tensors that a call returns, and those that it writes into."""
    result = kernel(*args)
    return [*(_tensors(result) if result is not None else ()), *(args[i] for i in written)]


def _call_often(kernel: Kernel, own_args: list[Any], args: list[Any], call: Call, job: Job) -> None:
    """Make the earlier calls on ``own_args``, whose contents are those of ``args`` each time."""
    # on one thread: if others keep the cores busy, a team waits for a core in each call
    torch.set_num_threads(1)
    spent, end = time.thread_time() + call["seconds"], time.monotonic() + _MOST_WALL * call["seconds"]
    for _ in range(call["earlier"]):
        for i in job["written"]:
            # a kernel that adds to an argument would reach values that no caller has
            own_args[i].copy_(args[i])
        kernel(*own_args)
        if time.thread_time() > spent or time.monotonic() > end:
            break
    torch.set_num_threads(job["threads"])


#: processes whose first calls come from two threads at once, and seconds for all of them and for one
_FORKS, _FORKS_SECONDS, _FORK_SECONDS = 32, 0.4, 2.0
#: the files that begin and end them, seconds between two looks, and seconds that the other process waits for their end
_OVER, _ENDED, _LOOK, _ASIDE_SECONDS = "over", "ended", 0.02, 20.0
#: a signal that programs ignore; it delays a thread by as many microseconds as its number, this often
_DELAY, _DELAYS = signal.SIGWINCH, 40
#: largest pause (s) between two signals, and prctl's option by which a pause is as short as that
_BETWEEN, _TIMER_SLACK = 1e-4, 29


def _first_calls(kernel: Kernel, job: Job, first: FirstCalls, folder: str) -> None:
    """Processes forked from this one, which has called nothing yet, make first calls from two threads at once; answers
    that differ from a later call's are written."""
    torch.set_num_threads(1)  # a team does not survive a fork
    args = [_argument(spec, folder, job["device"]) for spec in first["args"]]
    names, end = list(first["answers"]), time.monotonic() + _MOST_WALL * _FORKS_SECONDS
    before = _of_children()
    for _ in range(_FORKS):
        code = _in_fork(lambda: _TwoThreads(kernel, args, job).answers(), names[0], folder)
        if code == _DIFFERENT:
            names.pop(0)
        elif code:
            # a kernel may not live in a fork at all, and one that did not end may only be slow
            if code != _UNENDED and _lives_in_forks(kernel, args, job, folder):
                _touch(folder, first["crashed"])
            break
        # the processor's time, so that a busy machine makes as many
        is_over = _of_children() - before > _FORKS_SECONDS or time.monotonic() > end
        if not names or is_over:
            break


def _lives_in_forks(kernel: Kernel, args: list[Any], job: Job, folder: str) -> bool:
    """Do calls in turn always succeed in a fork?"""
    return not any(_in_fork(lambda: _in_turn(kernel, args, job), [], folder) for _ in range(_CONTROLS))


def _of_children() -> float:
    """Processor seconds of the ended children."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _fork_first_calls(job: Job, first: FirstCalls, make_kernel: Callable[[], Kernel], folder: str) -> int:
    """Start a process that makes first calls once this one has made its own, and return its number.

    It is not a child of this one, which is alone as a user's process is: it has no child, a shell is its parent, and
    it was not forked after it had a kernel. First calls come last, since a process that is ended in a call may leave
    files locked.
    """
    here = os.getpid()
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            number = os.fork()
            if number:
                os.write(writing, str(number).encode())
            else:
                os.close(reading)
                os.close(writing)
                _wait_until_over(here, folder)
                _make_first_calls(job, first, make_kernel, folder)
        finally:
            os._exit(0)
    os.close(writing)
    number = int(os.read(reading, 32))
    os.close(reading)
    os.waitpid(between, 0)
    return number


def _wait_until_over(process: int, folder: str) -> None:
    """Wait until ``process`` has made its own calls. Raises OSError if it has ended before."""
    while not os.path.exists(os.path.join(folder, _OVER)):
        os.kill(process, 0)
        time.sleep(_LOOK)


def _make_first_calls(job: Job, first: FirstCalls, make_kernel: Callable[[], Kernel], folder: str) -> None:
    try:
        kernel = make_kernel()
        _first_calls(getattr(kernel, "alone", kernel), job, first, folder)
    finally:
        _touch(folder, _ENDED)


def _touch(folder: str, name: str) -> None:
    with open(os.path.join(folder, name), "wb"):
        pass


def _wait_for(number: int, folder: str) -> None:
    """Let the process ``number`` make its first calls, and wait until it has ended. It says so by a file: its number
    stays in use until the first process of the namespace looks for it."""
    _touch(folder, _OVER)
    ended, end = os.path.join(folder, _ENDED), time.monotonic() + _ASIDE_SECONDS
    with contextlib.suppress(OSError):
        while not os.path.exists(ended) and time.monotonic() < end:
            os.kill(number, 0)
            time.sleep(_LOOK)


#: what a fork's exit code says: answers differ, it failed, it did not end; calls in turn that must succeed before a
#: failure counts
_DIFFERENT, _CRASHED, _UNENDED = 1, 2, 3
_CONTROLS = 3


def _in_fork(calls: Callable[[], list[list[torch.Tensor]]], names: list[str], folder: str) -> int:
    """Make ``calls`` in a fork of this process. Returns 0 if all answers are alike, or a code of the above; of answers
    that differ one is written as ``names``."""
    child = os.fork()
    if child == 0:
        code = _CRASHED
        try:
            different = calls()[:-1]
            if different:
                _write(different[0], names, folder)
            code = _DIFFERENT if different else 0
        finally:
            os._exit(code)
    end = time.monotonic() + _FORK_SECONDS
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else _CRASHED
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return _UNENDED
        time.sleep(5e-4)


def _in_turn(kernel: Kernel, args: list[Any], job: Job) -> list[list[torch.Tensor]]:
    """The answer of two threads that call one after the other."""
    torch.set_num_threads(job["threads"])
    answers: list[list[torch.Tensor]] = []

    def call() -> None:
        result = kernel(*_copies(args, job["written"]))
        answers.append(_tensors(result) if result is not None else [])

    for _ in range(2):
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join()
    if len(answers) < 2:
        raise RuntimeError("a call has no answer")
    return answers[-1:]


class _TwoThreads:
    """First calls of a kernel from two threads at once: one makes a single call, the other calls until the first has
    answered. Signals delay the first thread at random places, so that a short window between two of its steps becomes
    long."""

    def __init__(self, kernel: Kernel, args: list[Any], job: Job) -> None:
        self._kernel, self._args, self._job = kernel, args, job
        #: different answers by their bytes
        self._found: dict[tuple[bytes, ...], list[torch.Tensor]] = {}
        self._begin = threading.Barrier(3)
        self._is_over = threading.Event()
        #: have the threads answered? None while they call
        self._first_answered: bool | None = None
        self._second_answered: bool | None = None

    def answers(self) -> list[list[torch.Tensor]]:
        """The answers of both threads and of a later call; alike ones once, the later call's last."""
        torch.set_num_threads(self._job["threads"])
        sys.setswitchinterval(1e-6)
        first = threading.Thread(target=self._first, daemon=True)
        second = threading.Thread(target=self._second, daemon=True)
        _sleep_at_signals()
        first.start()
        second.start()
        self._begin.wait()
        self._delay(first)
        while self._first_answered is None or self._second_answered is None:
            time.sleep(1e-4)
        self._is_over.set()
        first.join()
        second.join()
        if not (self._first_answered and self._second_answered):
            raise RuntimeError("a call has no answer")
        last = self._call()
        return [*(outputs for key, outputs in self._found.items() if key != last), self._found[last]]

    def _call(self) -> tuple[bytes, ...]:
        """Make one call. Returns the key of its answer."""
        outputs = _outputs(self._kernel, _copies(self._args, self._job["written"]), self._job["written"])
        key = tuple(map(_raw, outputs))
        self._found.setdefault(key, outputs)
        return key

    def _first(self) -> None:
        self._begin.wait()
        try:
            self._call()
            self._first_answered = True
        finally:
            self._first_answered = bool(self._first_answered)
            self._is_over.wait()  # a signal to a thread that has ended would end the process

    def _second(self) -> None:
        self._begin.wait()
        try:
            for _ in range(_DELAYS):
                self._call()
                if self._first_answered is not None:
                    break
            self._second_answered = True
        finally:
            self._second_answered = bool(self._second_answered)

    def _delay(self, thread: threading.Thread) -> None:
        """Delay a thread at random instants until it has answered."""
        # drawn by the system: all forks have one state of random numbers
        draw = random.SystemRandom()
        for _ in range(_DELAYS):
            if self._first_answered is None:
                signal.pthread_kill(thread.ident or 0, _DELAY)
            time.sleep(draw.random() * _BETWEEN)


def _sleep_at_signals() -> None:
    """Make a thread that gets the signal ``_DELAY`` sleep for as many microseconds as its number, in C."""
    library = ctypes.CDLL(None)
    library.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    library.prctl(_TIMER_SLACK, 1)
    library.signal(_DELAY, ctypes.cast(library.usleep, ctypes.c_void_p))


def _raw(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1).cpu()
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _write(outputs: list[torch.Tensor], names: list[str], folder: str) -> None:
    for name, tensor in zip(names, outputs, strict=True):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(_raw(tensor))


def _module(job: Job) -> Any:
    folder = os.path.abspath(job["folder"])
    sys.path.insert(0, folder)
    path = os.path.join(folder, job["entry_file"])
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(job: Job, make_kernel: Callable[[], Kernel]) -> None:
    """Make all calls of ``job``; ``make_kernel`` imports the source."""
    torch.set_num_threads(job["threads"])
    # the kernel may change the working folder
    folder = os.getcwd()
    first = job["first"]
    first_caller = _fork_first_calls(job, first, make_kernel, folder) if first is not None else 0
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(_OPEN)]
    _call(make_kernel(), job, folder)
    if first_caller:
        _wait_for(first_caller, folder)
    for fd in descriptors:
        os.close(fd)


def main() -> None:
    with open("job.json", encoding="utf-8") as file:
        job = json.load(file)
    run(job, lambda: getattr(_module(job), job["entry"]))


if __name__ == "__main__":
    main()
