"""Call each kernel in an ordinary process too: with a user's environment and allocator, without shared memory, after
many earlier calls, at small, declared and other sizes. A source that reads something which identifies a judge is
started by a shell and built again there.

The process runs in the sandbox like a worker, during the stages correct and robust.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kernellab.conditions import Mark, StaticFinding, of
from kernellab.errors import TaskError
from kernellab.records import Evidence
from kernellab.target import Backend
from kernellab.task import ArgKind, Task
from kernellab.task.dtypes import channels_last
from kernellab.task.sample.sizes import runs_at
from kernellab.verifier.cases.selection import drawn_base
from kernellab.verifier.judge.pool import memory_limit
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import CORRECT, DEADLINES, DRAWN
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.context import has_model
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.static.surroundings import writes_files
from kernellab.verifier.timing.contents import distinct_dims, independent, loose_arguments
from kernellab.verifier.worker import ordinary as program
from kernellab.verifier.worker.build import write_files

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.judge.worker_client import Worker
    from kernellab.verifier.stages.candidate import Stages


#: Answers of first calls that are compared with the right one: roundings may differ in a right kernel.
_FIRST_ANSWERS = 4
#: The file that says that a process of two first calls ended without an answer.
_CRASHED = "first-crashed"
#: Limits for reusing a build, in bytes and files.
_BUILT_BYTES, _BUILT_FILES = 64 << 20, 2000
#: Timestamp of a reused source's files: older than anything built.
_OLD = 1e9
#: Rebuild a source there in one of this many cases, even if nothing requires it.
_AGAIN = 8


@dataclass(frozen=True)
class Ordinary:
    """The process, the cases that it was given, and the files that it writes its answers to."""

    worker: Worker
    cases: tuple[Case, ...]

    @property
    def work(self) -> Path:
        """The folder of the job and its answers."""
        return self.worker.scratch / "work"

    def answers(self, number: int) -> list[Path]:
        """Return the files with the outputs of the case ``number``."""
        return self._files(str(number), self.cases[number])

    def first_answers(self) -> list[list[Path]]:
        """Return the files for answers of first calls that differ from a later one, each with a case's outputs."""
        return [self._files(f"first{n}", self.cases[0]) for n in range(_FIRST_ANSWERS)] if self.cases else []

    def _files(self, name: str, case: Case) -> list[Path]:
        return [self.work / f"{name}-{i}" for i in range(len(case.native))]


def begin(stages: Stages) -> Ordinary | None:
    """Start the process with a few calls: one of a small size after thousands of others, one at the size of the
    families, one at the declared sizes, and sizes from the whole Dim ranges. None where only a slow build would do.

    A source that was flagged for what it reads is run by a shell. Any other runs in a process of the fork server, with
    the build of the judge's worker if the source writes no files, so that a slow build is not repeated.
    """
    context, source = stages.context, stages.source
    on_gpu = context.request.backend is Backend.CUDA
    flagged = any(finding.rule == "surroundings" for finding in of(context.findings.conditions, StaticFinding))
    # A program started by another in the sandbox cannot open the device either.
    by_shell = flagged and not has_model(source) and not context.interpreted and not on_gpu
    writes = flagged or any(writes_files(text) for text in source.files.values())
    folders = ["cache"] if on_gpu else [f"home/{name}" for name in context.adapter.built_in]
    builds_quickly = not on_gpu or context.adapter.compiles_in_calls
    builds_again = writes or (builds_quickly and secrets.randbelow(_AGAIN) == 0)
    built = None if builds_again else _built(stages.worker, folders)
    if built is None and not (writes or builds_quickly):
        return None  # a CUDA compiler takes a minute
    seen_at = str(stages.worker.scratch) if built else ""
    worker = context.pool.worker(source.dsl, context.request.backend, "ordinary", stages.threads, seen_at=seen_at)
    try:
        return _begun(stages, worker, built or [], by_shell)
    except BaseException:
        worker.close()
        raise


def _begun(stages: Stages, worker: Worker, built: list[Path], by_shell: bool) -> Ordinary:
    worker.memory_limit = memory_limit(stages.task, stages.context.request.backend)
    process = Ordinary(worker, _cases(stages))
    _write_source(stages, worker, built)
    job = _job(stages, process)
    (process.work / "job.json").write_text(json.dumps(job), encoding="utf-8")
    if by_shell:
        shutil.copy(program.__file__, process.work / "run.py")
    # The process may run as another user, who builds there.
    owner = worker.scratch.stat()
    for path in chain.from_iterable((worker.scratch / name).rglob("*") for name in ("home", "cache")):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    worker.post({"op": "run", "shell": by_shell})
    return process


def _write_source(stages: Stages, worker: Worker, built: Sequence[Path]) -> None:
    """Write the source into the process's folder, with the files of the candidate's worker that are ``built``."""
    folder = worker.scratch / "src"
    write_files(folder, stages.source.files)
    for path in folder.rglob("*") if built else ():
        os.utime(path, (_OLD, _OLD))
    for path in built:
        target = worker.scratch / path.relative_to(stages.worker.scratch)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _job(stages: Stages, process: Ordinary) -> dict[str, Any]:
    """Return what the process has to do, as :mod:`kernellab.verifier.worker.ordinary` reads it; the cases' arguments
    are written to files."""
    source, cases = stages.source, process.cases
    # On a device a new shape may be compiled for seconds.
    on_host = stages.context.request.backend is Backend.CPU and not stages.context.interpreted
    shapes = other_shapes(stages.task) if on_host else []
    calls = [_call(stages, process, number, shapes) for number in range(len(cases))]
    build = stages.build_message(source)
    build.pop("seal", None)
    first_calls = None
    if on_host and cases and not (stages.task.module().mutates or stages.task.module().numpy):
        names = [[path.name for path in files] for files in process.first_answers()]
        first_calls = {"args": _specs(stages, cases[0], process.work), "answers": names, "crashed": _CRASHED}
    return {
        "folder": "../src", "entry_file": source.entry_file, "entry": source.entry, "threads": stages.threads,
        "device": process.worker.device, "calls": calls, "written": list(stages.written), "build": build,
        "renewed": _renewed(stages, cases[0].args) if cases else [], "first": first_calls,
    }  # fmt: skip


def _call(
    stages: Stages, process: Ordinary, number: int, shapes: Sequence[Sequence[Sequence[int] | None]]
) -> dict[str, Any]:
    """Return the call of the case ``number``: thousands of ``earlier`` ones come before the first case, and ones at
    other ``shapes`` before the last: what a kernel keeps is full after these, and would not be stale for the cases
    before."""
    is_first = number == 0 and not stages.context.interpreted
    is_last = number == len(process.cases) - 1
    earlier = range(CORRECT.earlier_calls // 2, CORRECT.earlier_calls)
    return {
        "args": _specs(stages, process.cases[number], process.work),
        "answers": [path.name for path in process.answers(number)],
        "earlier": secrets.choice(earlier) if is_first else 0,
        "shapes": [row[: stages.worker.accepted] for row in shapes] if is_last else [],
        "seconds": CORRECT.earlier_seconds,
    }


def _specs(stages: Stages, case: Case, work: Path) -> list[dict[str, Any]]:
    """Write a case's tensors to files in ``work``, and return what the process needs to make its arguments of them."""
    specs: list[dict[str, Any]] = []
    for arg in case.args[: stages.worker.accepted]:
        if not isinstance(arg, torch.Tensor):
            specs.append({"value": arg})
            continue
        file = work / secrets.token_hex(8)
        whole = arg.contiguous().cpu()
        file.write_bytes(whole.reshape(-1).view(torch.uint8).numpy().tobytes() if arg.numel() else b"")
        strides = arg.stride() if channels_last(arg) else whole.stride()
        dtype = str(arg.dtype).removeprefix("torch.")
        storage = secrets.choice(program.HELD)
        specs.append({"file": file.name, "shape": arg.shape, "strides": strides, "dtype": dtype, "held": storage})
    return specs


def _renewed(stages: Stages, args: Sequence[Any]) -> list[int]:
    """Return the positions of the arguments of which a program may halve the numbers between two calls: no weights,
    none that the kernel writes into, and none whose numbers belong together or lie in a range (shares of one)."""
    loose = loose_arguments(stages.task, args)
    return [
        i for i, (spec, value) in enumerate(zip(stages.task.args, args, strict=False))
        if spec.kind is ArgKind.TENSOR and not spec.static and i not in stages.written
        and isinstance(value, torch.Tensor)
        and (loose[i] or (value.is_complex() and spec.name not in stages.task.domain))
    ]  # fmt: skip


#: Number of small sizes of each Dim, and of the only one.
_SMALL_SIZES, _SMALL_SIZES_OF_ONE = 40, 1000
#: How many of the drawn sizes the reference must accept.
_ACCEPTED = 16


def other_shapes(task: Task) -> list[list[Sequence[int] | None]]:
    """Return shapes of all arguments (None: not a tensor) at many small sizes, in a secret order. Empty if there are
    none, if some sizes within the Dims' ranges are refused, or if weights change with the sizes."""
    if not task.dims or any(arg.static or arg.key for arg in task.args):
        return []
    draw, most = secrets.SystemRandom(), _SMALL_SIZES if len(task.dims) > 1 else _SMALL_SIZES_OF_ONE
    least = [max(dim.min, 1) for dim in task.dims]
    ends = [min(dim.max, low + most) for dim, low in zip(task.dims, least, strict=True)]
    drawn = {
        tuple(draw.randint(low, high) for low, high in zip(least, ends, strict=True))
        for _ in range(2 * CORRECT.earlier_shapes)
    }
    sizes = [tuple(zip((dim.name for dim in task.dims), numbers, strict=True)) for numbers in drawn]
    draw.shuffle(sizes)
    if not all(runs_at(task, one) for one in sizes[:_ACCEPTED]):
        return []
    return [
        [arg.extents(dict(one)) if arg.kind is ArgKind.TENSOR else None for arg in task.args]
        for one in sizes[: CORRECT.earlier_shapes]
    ]


def _cases(stages: Stages) -> tuple[Case, ...]:
    task, interpreted = stages.task, stages.context.interpreted
    base, small = drawn_base(task, interpreted, DRAWN.content_bytes), stages.ahead.small()
    # Results cached from the first calls, identified by a few elements of each row, are stale for the changed case.
    cases = [base, *([] if interpreted else _with_others(base)), small]
    declared = stages.ahead.declared()
    if task.dims and not interpreted:
        cases += [declared, next(stages.ahead.more())]
    elif not task.dims:
        cases = cases[:-1] if base.sizes == declared.sizes else cases
    # All cases are on disk at the same time.
    sizes = accumulate(lay_out(case.args).size for case in cases)
    return tuple(case for case, size in zip(cases, sizes, strict=True) if size <= CORRECT.ordinary_bytes)


_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def _with_others(base: Case) -> list[Case]:
    """Return the case with one element in each row of its arguments replaced: by another draw, or for integers and
    bools by another element of the row. Empty if no argument may be mixed."""
    redrawn, args = replace(base, seed=secrets.randbits(31)), list(base.args)
    for i, (spec, loose) in enumerate(zip(base.task.args, loose_arguments(base.task, base.args), strict=True)):
        value = args[i]
        if not isinstance(value, torch.Tensor) or not value.numel() or spec.static or spec.kind is not ArgKind.TENSOR:
            continue
        # torch's scatter does not support unsigned integers of 16 bits or more.
        rows = (value.view(signed) if (signed := _SIGNED.get(value.dtype)) else value).reshape(
            -1, value.shape[-1] if value.dim() else 1
        )
        target, source = (torch.randint(rows.shape[1], (rows.shape[0], 1), device=rows.device) for _ in range(2))
        if loose and value.shape == redrawn.args[i].shape:
            mixed = rows.scatter(1, target, redrawn.args[i].reshape(rows.shape).gather(1, target))
        elif independent(base.args, redrawn.args, i):
            mixed = rows.scatter(1, target, rows.gather(1, source))
            # Swap elements that must stay distinct within a row.
            mixed = mixed.scatter(1, source, rows.gather(1, target)) if distinct_dims(value) else mixed
        else:
            continue
        args[i] = torch.empty_like(value).copy_(mixed.reshape(value.shape).view(value.dtype))
    case = base.given(tuple(args))
    try:
        return [case] if any(a is not b for a, b in zip(args, base.args, strict=True)) and case.native else []
    except TaskError:
        return []


def _built(worker: Worker, folders: Sequence[str]) -> list[Path] | None:
    """Return the files in ``folders`` of a worker's scratch folder after its build. None if there are none to reuse,
    too many, or no mount namespace that can show them at their original path. The worker is stopped, so nothing
    changes."""
    level = ", ".join(worker.sandbox)
    if "mnt" not in level or "shared /proc" in level:
        return None
    worker.stop()
    files: list[Path] = []
    size = 0
    for folder, _, names in chain.from_iterable(os.walk(worker.scratch / name) for name in folders):
        for name in names:
            path = Path(folder, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                files.append(path)
                size += status.st_size
        if size > _BUILT_BYTES or len(files) > _BUILT_FILES:
            return None
    return files or None


def check(stages: Stages, process: Ordinary) -> str:
    """Wait for the answers, compare them, and return the stage's note.

    Raises:
        Refused: The kernel fails in the ordinary process, or an answer is wrong.
    """
    try:
        _wait(stages, process.worker)
        for number in range(len(process.cases)):
            _check_answer(stages, process, number)
        if os.path.lexists(process.work / _CRASHED) or _is_first_wrong(stages, process):
            stages.context.findings.add(Mark(kind="one-call-at-a-time"))
        return "right in an ordinary process too"
    finally:
        # This also deletes its files.
        process.worker.close()


def _wait(stages: Stages, worker: Worker) -> None:
    worker.resume()
    end = time.monotonic() + stages.context.left(DEADLINES.build)
    try:
        worker.poll((worker.first_fd,), end)
        worker.drain()
    except WorkerFailure as failure:
        raise Refused(
            f"In an ordinary process the kernel {failure.message}.", Evidence(signature=failure.kind)
        ) from None


def _check_answer(stages: Stages, process: Ordinary, number: int) -> None:
    """Compare the answer to the case ``number``. Raises Refused if there is none, or it is wrong."""
    case = process.cases[number]
    outputs = _outputs(process.answers(number), case)
    if outputs is None:
        lines = reversed(process.worker.log.splitlines())
        last = next((line for line in lines if line.strip()), "there is no answer")
        words = f"The kernel fails in an ordinary process: {last.rstrip('.')}."
        raise Refused(words, Evidence(signature="environment"))
    wrong = stages.comparison.first_wrong(case, outputs)
    if wrong is None:
        return
    reference = case.references[wrong.output]
    report = evidence.of_mismatch(
        stages.source, case, wrong.output, wrong.got, reference, wrong.mismatch, name="environment"
    )
    words = "Right where the judge calls it, but not in an ordinary process"
    if number % 2 == 0 and has_model(stages.source):
        words += ", where another instance of its class was called before"
    if number and _renewed(stages, case.args):
        words += ", where the same tensors had other contents before"
    raise Refused(f"{words}: {wrong.mismatch.message} ({case.words}).", report)


def _is_first_wrong(stages: Stages, process: Ordinary) -> bool:
    """Return whether an answer of two first calls at once is wrong."""
    for files in process.first_answers():
        outputs = _outputs(files, process.cases[0])
        if outputs is not None and stages.comparison.first_wrong(process.cases[0], outputs, counted=False):
            return True
    return False


def _outputs(files: Sequence[Path], case: Case) -> list[torch.Tensor] | None:
    """Return the outputs for a case in ``files``; None if one is missing or of another form."""
    outputs = [_read(path, native) for path, native in zip(files, case.native, strict=True)]
    return None if any(output is None for output in outputs) else [o for o in outputs if o is not None]


def _read(path: Path, native: torch.Tensor) -> torch.Tensor | None:
    """Return an answer in the form of the reference's, or None if the file does not have it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size != native.numel() * native.element_size():
            return None
        data = file.read(status.st_size)
    if len(data) != status.st_size:
        return None
    if not data:
        return native.clone()
    return torch.frombuffer(bytearray(data), dtype=native.dtype).reshape(native.shape).to(native.device)
