"""NVIDIA's compute-sanitizer on a candidate's device code: accesses outside of allocations, which adjacent memory
hides from every comparison, and races in shared memory, which few runs show.

The tools watch a recorded call, repeated by a process of the verifier: they work from within the process, which no
sandbox allows, so it contains none of the candidate's host code.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.conditions import Mark, NotSealed
from kernellab.content import module_command
from kernellab.errors import counted
from kernellab.records import Evidence, Source, Trust
from kernellab.sandbox.environment import passed
from kernellab.target import Backend
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.cases import cases, selection
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.control import span_elements
from kernellab.verifier.protocol.rules import SEAL
from kernellab.verifier.protocol.sanitize import shown
from kernellab.verifier.seal import Unsealable, again, bundle
from kernellab.verifier.seal.bundle import Bundle
from kernellab.verifier.stages.fast import own_case
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.protocol.options import VerifyOptions
    from kernellab.verifier.stages.candidate import Stages

#: the tools, each with the signature of its findings
_TOOLS = {"memcheck": "out-of-bounds", "racecheck": "race"}
#: the tool whose findings are proofs in code of every compiler
_BY_DEFAULT = ("memcheck",)
#: the last line of a report, with its number of errors
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: .*\((\d+) errors?,")


@cache
def tool() -> str:
    """The path of compute-sanitizer: from PATH, or a CUDA toolkit; otherwise ""."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), *sorted(glob("/usr/local/cuda*"), reverse=True)]
    paths = (os.path.join(home, "bin", "compute-sanitizer") for home in homes if home)
    return shutil.which("compute-sanitizer") or next(filter(os.path.exists, paths), "")


def tools_for(options: VerifyOptions, backend: Backend, is_sealed: bool) -> tuple[str, ...]:
    """The tools that a verification runs: all where ``sanitize`` asks for them; from T3 on memcheck, where it is
    installed and the kernel could be recorded."""
    if options.sanitize:
        return tuple(_TOOLS)
    is_default = options.level.value > Trust.T2.value and backend is Backend.CUDA and is_sealed and tool()
    return _BY_DEFAULT if is_default else ()


def sanitized(stages: Stages, names: tuple[str, ...]) -> str:
    """Run the tools ``names`` on recorded calls, of the declared sizes and of ragged ones. Returns the note. What
    prevents this is a condition where it was asked for, and so is a race reported for code whose compiler placed the
    barriers.

    Raises:
        Refused: memory outside of that passed in or allocated is read or written; threads race.
    """
    findings = stages.context.findings
    try:
        return _sanitized(stages, names)
    except (Unsealable, WorkerFailure, OSError, Refused) as failure:
        evidence = failure.evidence if isinstance(failure, Refused) else None
        if evidence is None or evidence.signature not in _TOOLS.values():
            # a deadline, or a tool that could not run
            condition = NotSealed(sanitized=True, reason=str(failure).strip().splitlines()[0].rstrip("."))
            if stages.context.options.sanitize:
                findings.add(condition)
            return condition.label
        # a refused candidate has no figures
        findings.time, findings.sol_ms, findings.replay, findings.hot = None, None, None, None
        findings.sealed = False
        findings.comparisons.clear()
        raise


def _sanitized(stages: Stages, names: tuple[str, ...]) -> str:
    if stages.context.request.backend is not Backend.CUDA:
        raise Unsealable("compute-sanitizer looks at GPU kernels alone")
    if not tool():
        raise Unsealable("compute-sanitizer is not installed (it comes with the CUDA toolkit)")
    with tempfile.TemporaryDirectory(prefix="kernellab-sanitizer-") as place:
        folders = list(_recorded(stages, Path(place)))
        for name in names:
            stages.context.tell(f"compute-sanitizer, {name}")
            report = _reported(stages, name, Path(place), folders)
            if not report:
                continue
            # racecheck does not know every kind of barrier: those placed by compilers, and asynchronous ones
            if name == "racecheck" and (stages.source.dsl != "cuda_c" or _asynchronous(stages.source)):
                stages.context.findings.add(Mark(kind="hazards-in-shared-memory"))
                continue
            raise Refused(f"compute-sanitizer's {name}: {report}.", Evidence(signature=_TOOLS[name]))
    return f"{' and '.join(names)} of compute-sanitizer looked at {counted(len(folders), 'recorded call')}"


def _asynchronous(source: Source) -> bool:
    """Does a source name barriers that copies arrive at?"""
    words = ("mbarrier", "cp.async", "cuda::barrier", "cuda::pipeline")
    return any(word in text for text in source.files.values() for word in words)


def _recorded(stages: Stages, place: Path) -> Iterator[str]:
    """Folders with a recorded call and its contents: of the timed sizes, and of ragged ones."""
    from kernellab.verifier.seal.stage import recorded, replayer_of, require_right

    ragged = [case for kind, case in selection.aligned_and_ragged(stages.task) if kind == "ragged"]
    selected = [own_case(stages), *ragged[:1]]
    selected = [c for c in selected if input_bytes(stages.task, dict(c.sizes) or None) <= SEAL.sanitizer_bytes]
    if not selected:
        raise Unsealable(f"its inputs have more than {SEAL.sanitizer_bytes >> 20} MiB")
    for number, case in enumerate(selected):
        try:
            content, binaries = recorded(stages, [case, cases.case(stages.task, dict(case.sizes), case.family)])
            # a record of something else, or without its setup, says nothing about the candidate
            with replayer_of(stages, content, binaries) as replayer:
                require_right(stages, replayer, cases.case(stages.task, dict(case.sizes), case.family))
            folder = place / str(number)
            bundle.write(folder, content, binaries)
            _contents(folder, content, case)
        except (Unsealable, WorkerFailure):
            if not number:
                raise
            continue
        yield str(folder)


def _contents(folder: Path, content: Bundle, case: Case) -> None:
    import torch

    for buffer in content.buffers:
        if buffer.input is None or not buffer.bytes:
            continue
        form, value = content.inputs[buffer.input], case.args[buffer.input]
        actual_form = (str(value.dtype).removeprefix("torch."), tuple(value.shape))
        if form is None or (form.dtype, tuple(form.shape)) != actual_form or len(form.strides) != value.dim():
            raise Unsealable("its record has other arguments than the call")
        count = span_elements(form.shape, form.strides)
        if not 0 < count * value.element_size() <= buffer.bytes <= SEAL.sanitizer_bytes:
            raise Unsealable("its record has other arguments than the call")
        memory = torch.zeros(buffer.bytes, dtype=torch.uint8)
        memory.view(getattr(torch, form.dtype)).as_strided(form.shape, form.strides).copy_(value)
        (folder / again.CONTENT.format(buffer.input)).write_bytes(memory.numpy().tobytes())


def _reported(stages: Stages, name: str, place: Path, folders: list[str]) -> str:
    """The first report of a tool in words; "" for none. Raises Unsealable if the tool did not finish."""
    log, finished = place / f"{name}.log", Path(folders[0]) / again.DONE
    finished.unlink(missing_ok=True)
    command = [
        tool(), "--tool", name, "--log-file", str(log), "--report-api-errors", "no", "--print-limit", "8",
        "--target-processes", "all", *module_command("kernellab.verifier.seal.again", *folders),
    ]  # fmt: skip
    # as for a worker: without the path of its packages, the process would end at an import
    environment = {**passed(), "LC_ALL": "C", "TMPDIR": str(place), "HOME": str(place)}
    seconds, errors = stages.context.left(SEAL.sanitizer_seconds), place / f"{name}.errors"
    with (
        errors.open("wb") as file,
        subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True) as process,
    ):
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Unsealable(f"{name} takes longer than {seconds:.3g} s") from None
        finally:
            # including the process that it watches
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    # the tool's own file: it contains nothing that a kernel prints
    output = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    summaries = _SUMMARY.findall(output)
    report = first_report(output)
    counted_any = any(int(number or 0) for end in summaries for number in end)
    if report and counted_any:
        return report
    if report or counted_any or not summaries or not finished.is_file():
        # the process's own error output says more than the tool's report of its end
        error_output = errors.read_text(encoding="utf-8", errors="replace") if not finished.is_file() else ""
        lines = [
            line.removeprefix("=========").strip()
            for line in (output + "\n" + error_output).splitlines()
            if line.strip()
        ]
        last = next((line for line in reversed(lines) if "SUMMARY" not in line), "it said nothing")
        raise Unsealable(f"{name} could not look at it: {shown(last)[:200]}")
    return ""


def first_report(said: str) -> str:
    """The first report of compute-sanitizer in one line: what, where, by which thread; "" if no report concerns a
    kernel (the tool also reports its own errors)."""
    lines = [line.removeprefix("=========").rstrip() for line in said.splitlines() if line.startswith("=========")]
    begins = (
        n for n, line in enumerate(lines) if re.match(r" (Error: |ERROR: )?(Invalid|Race|Barrier|Misaligned)", line)
    )
    at = next(begins, None)
    if at is None:
        return ""
    rest = [line.strip() for line in lines[at + 1 : at + 5] if line.startswith("  ") and "Saved host" not in line]
    return shown(" ".join([lines[at].strip().removeprefix("Error: ").removeprefix("ERROR: "), *rest]))[:400]
