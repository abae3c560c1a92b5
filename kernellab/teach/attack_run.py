"""``-m kernellab.teach.attack_run FOLDER``: confines itself, runs the toy judge as FOLDER/request.json asks, each run
in a process that ends with it, and prints the rulings as JSON. What runs here is the learner's: it holds neither this
output nor a file that is read."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import types
from contextlib import suppress
from pathlib import Path

import numpy  # noqa: F401 - the judge's, loaded before files are out of reach

from kernellab.teach.attack import Request, Ruling, Run
from kernellab.verifier.sandbox import sandbox

#: seconds that one run may take, and bytes of its ruling
_SECONDS, _LONGEST = 20, 4096


def main() -> None:
    folder = Path(sys.argv[1])
    scratch = folder / "work"
    request = Request.model_validate_json((folder / "request.json").read_bytes())
    level = sandbox.enter()
    _go_on_in_a_child()
    if level:
        sandbox.own_proc()
    _go_on_in_a_child()
    held = [level, *sandbox.other_user(str(scratch)), *sandbox.confine(str(scratch))]
    if not sandbox.contains(", ".join(held)):
        sys.exit("this machine has no sandbox for what an attempt does")
    os.chdir(scratch)
    sandbox.dumpable(False)  # no run opens this process's output through /proc
    rulings = [ruled(request, run) for run in request.runs]
    print(json.dumps([r.model_dump() for r in rulings]), flush=True)


def _go_on_in_a_child() -> None:
    child = os.fork()
    if child:
        sandbox.dumpable(False)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    sandbox.die_with_parent()


def ruled(request: Request, run: Run) -> Ruling:
    """The judge's ruling, from a process group that is gone afterwards."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        sandbox.dumpable(True)
        signal.alarm(_SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        try:
            accepted, why = _judge(request, run).judge(run.source)
            ruling = Ruling(accepted=accepted is True, why=str(why)[: _LONGEST // 8])
        except BaseException as error:
            ruling = Ruling(accepted=False, why=f"the judge ended with {type(error).__name__}: {error}"[:300])
        with suppress(OSError):
            os.write(writing, ruling.model_dump_json().encode())
        os._exit(0)
    os.close(writing)
    # a grandchild may hold the pipe: the child's end is what is waited for
    os.waitpid(child, 0)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    os.set_blocking(reading, False)
    try:
        return Ruling.model_validate_json(os.read(reading, _LONGEST))
    except (OSError, ValueError):
        return Ruling(accepted=False, why="the judge ended without a ruling")
    finally:
        os.close(reading)


def _judge(request: Request, run: Run) -> types.ModuleType:
    """The judge as a module: those functions of ``closed`` that are asked for in place of its own, then the repairs."""
    module = types.ModuleType("judge")
    sys.modules["judge"] = module
    names = module.__dict__
    exec(compile(request.judge, "judge.py", "exec"), names)
    opened = dict(names)
    exec(compile(request.closed, "closed.py", "exec"), names)
    holes = {name for name, value in names.items() if opened.get(name, value) is not value}
    # functions look their names up in the module: those of the open judge go back, the modules it imports stay
    names.update({name: value for name, value in opened.items() if name not in run.closed})
    rest = {name: value for name, value in opened.items() if name not in holes}
    exec(compile(run.repairs, "repairs.py", "exec"), names)
    names.update(rest)  # a repaired judge still is this judge
    return module


if __name__ == "__main__":
    main()
