"""``-m kernellab.teach.attack_run FOLDER``: rules on each run that comes in at its standard input, by a line of JSON.
Each has a sandbox that ends with it: a process that reads the run there and knows of no other. What runs in it is the
learner's: it holds neither this output nor a file that is read."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import types
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from typing import NoReturn

import numpy  # noqa: F401 - the judge's, loaded before files are out of reach

from kernellab.sandbox import sandbox
from kernellab.teach.attack import Ruling, Run

#: seconds of the processor's time, and of the clock, that one run may take; bytes of its ruling
_PROCESSOR, _SECONDS, _LONGEST = 5, 30, 4096
#: seconds of the clock after which it is killed: an attempt may set its alarm off
_KILLED = _SECONDS + 2
#: how the process of a run ends where none came in, and where there is no sandbox
_NONE, _BARE = 200, 201
#: what is said of one that a limit ended, by its exit status
_ENDED = {
    -signal.SIGXCPU & 0xFF: f"it used more than {_PROCESSOR} s of the processor's time",
    -signal.SIGALRM & 0xFF: f"it took longer than {_SECONDS} s",
}


def main() -> None:
    sandbox.dumpable(False)  # no run opens this process's output through /proc
    while answer := ruled(sys.argv[1]):
        print(answer, flush=True)
        del answer  # the next run is forked from here


def ruled(folder: str) -> str:
    """The judge's ruling on the next run, as JSON; "" where there is none. What the run started is gone with it."""
    wait([sys.stdin.fileno()])  # the clock begins when a run is there
    scratch = tempfile.mkdtemp(prefix="work-", dir=folder)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        sandbox.die_with_parent()
        os.close(reading)
        _confined(scratch)
        _rule(writing)
    os.close(writing)
    code = _ended(child)
    os.set_blocking(reading, False)
    said = b""
    with suppress(OSError):
        said = os.read(reading, _LONGEST)
    os.close(reading)
    if code == _NONE and not said:
        return ""
    if code == _BARE:
        sys.exit("this machine has no sandbox for what an attempt does")
    try:
        ruling = Ruling.model_validate_json(said)
    except ValueError:
        why = _ENDED.get(code, "the judge ended without a ruling")
        ruling = Ruling(accepted=False, why=why, late=code in _ENDED)
    return ruling.model_dump_json()


def _ended(child: int) -> int:
    """The exit status of ``child``, and of one that is killed for its time that of its alarm."""
    process = os.pidfd_open(child)
    try:
        if not wait([process], _KILLED):
            signal.pidfd_send_signal(process, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGALRM & 0xFF
    finally:
        os.close(process)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _confined(scratch: str) -> None:
    """Puts this process into a sandbox that can write in ``scratch`` alone."""
    level = sandbox.enter()
    _go_on_in_a_child()
    if level:
        sandbox.own_proc()
    _go_on_in_a_child()
    held = [level, *sandbox.other_user(scratch), *sandbox.confine(scratch)]
    if not sandbox.contains(", ".join(held)):
        os._exit(_BARE)
    os.chdir(scratch)


def _go_on_in_a_child() -> None:
    child = os.fork()
    if child:
        sandbox.dumpable(False)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    sandbox.die_with_parent()


def _rule(writing: int) -> NoReturn:
    os.setsid()
    line = sys.stdin.buffer.readline()
    if not line:
        os._exit(_NONE)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    sandbox.dumpable(True)
    signal.alarm(_SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR, _PROCESSOR + 1))
    texts = [line]
    del line
    try:
        judge, source = _prepared(texts.pop())
        accepted, why = judge(source)
        ruling = Ruling(accepted=accepted is True, why=str(why)[: _LONGEST // 8])
    except BaseException as error:
        ruling = Ruling(accepted=False, why=f"the judge ended with {type(error).__name__}: {error}"[:300])
    with suppress(OSError):
        os.write(writing, ruling.model_dump_json().encode())
    os._exit(0)


def _prepared(line: bytes) -> tuple[Callable[[str], tuple[bool, str]], str]:
    """The judge with the run's functions in place of the judge's, and the source. No frame and no name keeps their
    texts, and a process that the judge starts for the source sees the judge as it is before: what is closed shows by
    what it does."""
    run = Run.model_validate_json(line)
    module = types.ModuleType("judge")
    sys.modules["judge"] = module
    names = module.__dict__
    exec(compile(run.judge, "judge.py", "exec"), names)
    opened = dict(names)
    if run.closed:
        exec(compile(run.closed, "judge.py", "exec"), names)
        os.register_at_fork(after_in_child=lambda: names.update(opened))
    exec(compile(run.repairs, "repairs.py", "exec"), names)
    # a repaired judge still is this judge
    names.update({name: value for name, value in opened.items() if name not in run.holes})
    return names["judge"], run.source


if __name__ == "__main__":
    main()
