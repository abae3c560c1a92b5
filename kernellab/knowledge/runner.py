"""The process in which code blocks run: warm, with a child for each job. Started by :mod:`kernellab.knowledge.execute`.

A child has its own folder, no access to anything else that it could write, a deadline, and an end that only the
kernel decides: what a block leaves behind (patched modules, threads, files) does not reach the next.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import runpy
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import TypedDict

_WARM = """sketch warm {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    @llm_hint("parallel")
    for n in range(N):
        load(X[n] -> x)
        store(x + 1 -> Y[n])
}
"""
#: Characters of a failure's words that come back.
_MOST_CHARACTERS = 4000


class Payload(TypedDict, total=False):
    """A job as it is sent. All have ``id``, ``kind`` (a key of ``_KINDS``) and ``text``; the others by kind."""

    id: str
    kind: str
    text: str
    #: sketch: the words of its fence.
    options: dict[str, str]
    #: python: files by name.
    files: dict[str, str]
    #: command: the name of the text's file, and what is run with it.
    file: str
    commands: list[list[str]]
    #: task: its name.
    name: str
    #: sketch, example: the text and the name of the task to compare with.
    task: str
    task_name: str
    #: example: the sizes of each case.
    sizes: list[dict[str, int]]


class Request(TypedDict):
    """What the process reads from its standard input; ``deadline`` is in seconds for a job."""

    preload: list[str]
    scratch: str
    deadline: float
    jobs: list[Payload]


class Answer(TypedDict):
    """A line of its standard output; ``failure`` is "" for a job that passed."""

    id: str
    failure: str
    seconds: float


def main() -> None:
    request: Request = json.loads(sys.stdin.read())
    # what a module prints, when it is imported or later, is no answer
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for name in request["preload"]:
        with suppress(ImportError):  # the block that needs it says so
            importlib.import_module(name)
    if any(job["kind"] == "sketch" for job in request["jobs"]):
        from kernellab.sketch.check import check

        check(_WARM)  # the grammar's tables, once for all children
    for job in request["jobs"]:
        start = time.perf_counter()
        failure = run_job(job, Path(request["scratch"]), request["deadline"])
        answer = Answer(id=job["id"], failure=failure, seconds=time.perf_counter() - start)
        print(json.dumps(answer), file=answers, flush=True)


def run_job(job: Payload, scratch: Path, deadline: float) -> str:
    """Empty when the job passed, else why it did not."""
    folder = scratch / "".join(c if c.isalnum() else "_" for c in job["id"])
    folder.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(job, folder, scratch, writing)
    os.close(writing)
    words, end = b"", time.monotonic() + deadline
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            ready = wait([pipe.fileno()], max(0.0, end - time.monotonic()))
            if not ready:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return f"It took longer than {deadline:g} s."
            part = pipe.read(65536)
            if not part:
                break
            words += part
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = words.decode(errors="replace")[-_MOST_CHARACTERS:].strip()
    if code == 0:
        return ""
    return text or (f"It was ended by signal {-code}." if code < 0 else f"It ended with code {code}.")


def _child(job: Payload, folder: Path, scratch: Path, writing: int) -> None:
    code = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(folder)
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None  # what was imported before has asked for it already
        for name, text in job.get("files", {}).items():
            (folder / name).write_text(text, encoding="utf-8")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if sys.platform == "linux":
            from kernellab.sandbox import confine
            from kernellab.sketch.run.confined import compute_here

            confine(str(scratch))
            compute_here()
        if os.environ.get("TRITON_INTERPRET") == "1" and "triton" in sys.modules:
            from kernellab.dsls.interpreter import correct_interpreter

            correct_interpreter()
        _KINDS[job["kind"]](job, folder)
        code = 0
    except Wrong as wrong:
        os.write(writing, str(wrong).encode()[-_MOST_CHARACTERS:])
    except BaseException as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(folder))]
        at = f"line {frames[-1].lineno} of the block: " if frames else ""
        os.write(writing, f"{at}{type(error).__name__}: {error}".encode()[-_MOST_CHARACTERS:])
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


class Wrong(Exception):
    """A block that ran and is not right."""


def _python(job: Payload, folder: Path) -> None:
    path = folder / "block.py"
    path.write_text(job["text"], encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as left:
        if left.code:
            raise Wrong(f"It left with {left.code!r}.") from None


def _command(job: Payload, folder: Path) -> None:
    """Compiles ``text`` and, where the job says so, runs what came out."""
    import subprocess

    (folder / job["file"]).write_text(job["text"], encoding="utf-8")
    for command in job["commands"]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Wrong(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout)[-1500:]}")


def _task(job: Payload, _: Path) -> None:
    from kernellab.task import load_task

    load_task(job["text"], job["name"])


def _sketch(job: Payload, _: Path) -> None:
    """Checked; expected to fail with a rule where it says so; run against a task's reference where it names one."""
    from kernellab.sketch.check import check

    checked = check(job["text"])
    errors = "; ".join(f"line {d.line}: {d.rule}: {d.message}" for d in checked.diagnostics)
    expected = job["options"].get("fails")
    if expected is not None:
        if expected not in {d.rule for d in checked.diagnostics}:
            raise Wrong(f"The checker does not say {expected!r} of it, but: {errors or 'nothing'}.")
        return
    if errors:
        raise Wrong(f"The checker says: {errors}")
    if job.get("task"):
        from kernellab.records import GateState
        from kernellab.sketch.gate import gate
        from kernellab.task import load_task

        verdict = gate(job["text"], load_task(job["task"], job["task_name"]), seconds=0.5)
        if verdict.state is not GateState.RIGHT:
            raise Wrong(f"The sketch gate says {verdict.state.value}: {verdict.reason}")


def _example(job: Payload, folder: Path) -> None:
    """A source's ``kernel`` against its task's reference at each of its sizes."""
    import torch

    from kernellab.task import load_task

    path = folder / "kernel.py"
    path.write_text(job["text"], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("kernel_example", path)
    assert spec is not None and spec.loader is not None
    source = importlib.util.module_from_spec(spec)
    sys.modules["kernel_example"] = source
    spec.loader.exec_module(source)
    task = load_task(job["task"], job["task_name"])
    module = task.module()
    for sizes in job["sizes"]:
        args = module.sample({**module.default_sizes(), **sizes})
        before = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        want = module.reference(args)
        got = source.kernel(*args)
        got = got if isinstance(got, (tuple, list)) else (got,)
        if len(got) != len(want):
            raise Wrong(f"It returns {len(got)} results, the reference {len(want)} ({sizes}).")
        for result, expected in zip(got, want, strict=True):
            tolerance = 2e-2 if expected.dtype in (torch.float16, torch.bfloat16) else 1e-4
            try:
                torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
            except AssertionError as error:
                raise Wrong(f"At {sizes or 'its own size'}: {error}") from None
        if not all(torch.equal(a, b) for a, b in zip(args, before, strict=True) if isinstance(a, torch.Tensor)):
            raise Wrong(f"It changes its inputs ({sizes}).")


_KINDS = {"python": _python, "command": _command, "task": _task, "sketch": _sketch, "example": _example}

if __name__ == "__main__":
    main()
