"""A Triton or CUDA C++ source under the lens: a dry call in a separate process, and its texts read."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from kernellab.content import module_command
from kernellab.errors import Killed, Overtime, SessionError
from kernellab.lens.dry.main import ANSWER, CACHE, PROGRAMS
from kernellab.lens.dry.records import Answer, Built, Ran, Request
from kernellab.lens.gpu.facts import facts
from kernellab.lens.gpu.limits import capability_of
from kernellab.lens.read import llvm, mlir, ptx, sass
from kernellab.lens.read.rows import Row, Shown, level
from kernellab.lens.records import Lens
from kernellab.records import Source
from kernellab.sandbox import sandbox
from kernellab.sandbox.environment import clean_environment
from kernellab.target import Chip

_SECONDS = 300
_MOST_BYTES = 64 << 20
_ENDLESS = "Look for a loop that never ends, or that the compiler has to unroll."


class _LevelKind(NamedTuple):
    """How a level's text is read, the language of its syntax colours, and its title."""

    read: Callable[[str], list[Row]]
    language: str
    title: str


_LEVELS = {
    "ttir": _LevelKind(mlir.rows, "mlir", "Triton's own intermediate text (TTIR): the kernel before any layout"),
    "ttgir": _LevelKind(
        mlir.rows, "mlir", "Triton's text for a GPU (TTGIR): with layouts over threads, and shared memory"
    ),
    "llir": _LevelKind(llvm.rows, "llvm", "LLVM IR"),
    "ptx": _LevelKind(ptx.rows, "ptx", "PTX, NVIDIA's virtual assembly"),
    "sass": _LevelKind(sass.rows, "sass", "SASS, the machine's own instructions"),
}


def look_gpu(source: Source, arguments: Sequence[Mapping[str, Any]], chip: Chip, allowed: bool = False) -> Lens:
    """Return the lens of a GPU source; ``arguments`` as in :class:`~kernellab.lens.dry.records.Request`. Blocks for
    seconds.

    Raises:
        SessionError: the call fails, the compiler refuses, or nothing is launched.
        TargetError: the chip's compute capability is not known.
    """
    answer = _called(source, arguments, chip, allowed).answers[0]
    _raise_error(answer)
    capability = capability_of(chip)
    kernels = [built for built in answer.kernels if built.texts]
    read = {
        name: [kind.read(built.texts[name]) for built in kernels if name in built.texts]
        for name, kind in _LEVELS.items()
    }
    shown = _shown(source, kernels, read)
    levels = [
        level(name, parts, shown, _LEVELS[name].language, _LEVELS[name].title) for name, parts in read.items() if parts
    ]
    many = len(kernels) > 1
    listed = [fact for built in kernels for fact in facts(built, capability, chip.cores, built.name if many else "")]
    target = f"sm_{capability}, as on {chip.name}"
    return Lens(shown.file, shown.text, target, tuple(levels), tuple(listed), tuple(answer.notes))


class Cubins(NamedTuple):
    """The files of a Triton cache (KEY/FILE), and the cubin of each text of CUDA C++."""

    triton: Mapping[str, bytes]
    programs: Mapping[str, bytes]


def cubins(source: Source, arguments: Sequence[Mapping[str, Any]], chip: Chip) -> Cubins:
    """Return the binaries that the call compiles for ``chip``, for trusted sources only: files that their host code
    writes there are not checked. Raises as :func:`look_gpu`."""
    called = _called(source, arguments, chip, allowed=True, collect=True)
    _raise_error(called.answers[0])
    return called.cubins


def watched(
    source: Source, calls: Sequence[Sequence[Mapping[str, Any]]], chip: Chip, processor: int = 0, seconds: int = 60
) -> list[Answer]:
    """Of each call, by its arguments: what it launches, compiled for ``chip``, why a compiler does not take it, and
    what it does in Triton's interpreter; nothing where there is no sandbox to call it in. ``processor``: seconds of its
    time that all may use, in either; 0 means no limit; after ``seconds`` of it the interpreter runs of each launch the
    first program alone. Raises as :func:`look_gpu` where a call takes too long, Overtime
    where it uses more, Killed where the machine ends it, or leaves it too little of its time."""
    request = _request(source, calls[0], chip)
    others = [[dict(one) for one in arguments] for arguments in calls[1:]]
    request = replace(request, others=others, watched=seconds, processor=processor)
    return _answers(json.dumps(asdict(request), sort_keys=True), False).answers


def _raise_error(answer: Answer) -> None:
    if answer.error:
        raise SessionError(*answer.error)


def _called(
    source: Source, arguments: Sequence[Mapping[str, Any]], chip: Chip, allowed: bool, collect: bool = False
) -> _Answers:
    request = replace(_request(source, arguments, chip), allowed=allowed, host=collect)
    return _answers(json.dumps(asdict(request), sort_keys=True), collect)


def _request(source: Source, arguments: Sequence[Mapping[str, Any]], chip: Chip) -> Request:
    return Request(
        files=dict(source.files), entry_file=source.entry_file, entry=source.entry,
        arguments=[dict(one) for one in arguments], capability=capability_of(chip), cores=chip.cores,
    )  # fmt: skip


class _Answers(NamedTuple):
    """Of each call its answer, and what all of them compiled."""

    answers: list[Answer]
    cubins: Cubins


@lru_cache(maxsize=16)
def _answers(request: str, collect: bool) -> _Answers:
    """Make the dry calls of ``request`` (JSON) in a process, and return its answers; results are cached.

    ``collect``: also what it compiled; files that confined code leaves are not looked at."""
    folder = Path(tempfile.mkdtemp(prefix="kernellab-lens-"))
    scratch = folder / "work"
    try:
        # the process may become a separate user, who needs access to its scratch folder
        os.chmod(folder, 0o711)
        scratch.mkdir()
        (folder / "request.json").write_text(request, encoding="utf-8")
        done = _run(folder, scratch, json.loads(request)["processor"])
        answers = _read_answers(scratch / ANSWER, done)
        if any(answer.ran is not None and answer.ran.killed for answer in answers):
            raise _killed()
        return _Answers(answers, _collected(scratch) if collect else Cubins({}, {}))
    finally:
        sandbox.remove(str(folder))


def _run(folder: Path, scratch: Path, processor: int) -> subprocess.CompletedProcess[str]:
    """Run the process of the calls, which may use ``processor`` seconds of CPU time (0: no limit).

    Raises:
        SessionError, Killed: it takes too long, or the machine ends it.
        Overtime: it uses more CPU time.
    """
    environment = clean_environment({
        "TRITON_CACHE_DIR": str(scratch / CACHE), "TRITON_INTERPRET": "0", "HOME": str(scratch),
        "TMPDIR": str(scratch), "TVM_FFI_CACHE_DIR": str(scratch / "tvm-ffi"), "CUDA_VISIBLE_DEVICES": "",
        # the sandbox's user has no entry in the password file, which torch's compiler would read
        "USER": "worker", "LOGNAME": "worker",
    })  # fmt: skip
    command = module_command("kernellab.lens.dry.main", str(folder))
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        if processor:
            # not the source's fault: it did not use its time, on a machine that gave it none, or it waits
            raise Killed(
                f"The dry call was ended after {_SECONDS} s of the clock, before it had used {processor} s of the "
                "processor's time.",
                "Is this machine busy? Try again.",
            ) from None
        raise SessionError(
            f"The dry call took longer than {_SECONDS} s.", "Check that the host code waits for nothing."
        ) from None
    if done.returncode == -signal.SIGXCPU & 0xFF:
        raise Overtime(f"The dry call used more than {processor} s of the processor's time.", _ENDLESS)
    if done.returncode in (-signal.SIGKILL, -signal.SIGKILL & 0xFF):
        raise _killed()
    return done


def _read_answers(path: Path, done: subprocess.CompletedProcess[str]) -> list[Answer]:
    """Return what the process wrote. Raises SessionError: it wrote nothing that is an answer."""
    if not path.is_file() or path.is_symlink() or path.stat().st_size > _MOST_BYTES:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it gives no reason")
        raise SessionError(
            f"The dry call ended with {done.returncode}: {last[:200]}",
            "Check with `kernellab verify` that the source runs.",
        )
    return [_answer(reply) for reply in json.loads(path.read_text(encoding="utf-8"))]


def _collected(scratch: Path) -> Cubins:
    cubins = {path.with_suffix(".cu"): path for path in sorted((scratch / PROGRAMS).glob("*.cubin"))}
    programs = {text.read_text(encoding="utf-8"): path.read_bytes() for text, path in cubins.items() if text.is_file()}
    return Cubins(_of_triton(scratch / CACHE), programs)


def _killed() -> Killed:
    return Killed("The dry call was killed from outside.", "Is this machine short of memory? Try again.")


def _answer(reply: dict[str, Any]) -> Answer:
    ran = Ran(**reply["ran"]) if reply["ran"] else None
    return Answer(**{**reply, "kernels": [Built(**built) for built in reply["kernels"]], "ran": ran})


def _of_triton(cache: Path) -> dict[str, bytes]:
    """Return the cubins of a Triton cache with their metadata, and the launchers; an entry's folder has its key as
    name."""
    cubins: dict[str, bytes] = {}
    for cubin in cache.glob("*/*.cubin"):
        about = cubin.with_suffix(".json")
        if about.is_file():
            key = json.loads(about.read_text(encoding="utf-8"))["hash"]
            cubins |= {f"{key}/{path.name}": path.read_bytes() for path in (cubin, about)}
    for built in cache.glob("*/*.so"):
        name = built.parent.name
        key = base64.b32decode(name + "=" * (-len(name) % 8)).hex()
        cubins[f"{key}/{built.name}"] = built.read_bytes()
    return cubins


def _shown(source: Source, kernels: Sequence[Built], read: Mapping[str, Sequence[Sequence[Row]]]) -> Shown:
    """Return the source's files with device code: one unchanged, several concatenated."""
    hits = Counter(
        file for parts in read.values() for rows in parts for row in rows for file in {file for file, _ in row.places}
    )
    names = {PurePath(name).name: name for name in source.files}
    own = [names[file] for file, _ in hits.most_common() if file in names and not _is_header(file)]
    if len(own) > 1:
        joined, begins, at = [], {}, 0
        for name in sorted(own):
            text = source.files[name].rstrip("\n")
            begins[PurePath(name).name] = at + 1
            joined.append(f"# ---- {name}\n{text}" if name.endswith(".py") else f"// ---- {name}\n{text}")
            at += text.count("\n") + 2
        return Shown(", ".join(sorted(own)), "\n".join(joined), begins)
    if own:
        return Shown(own[0], source.files[own[0]], {PurePath(own[0]).name: 0})
    for built in kernels:
        # device code of a Python string
        for name, text in source.files.items():
            at = text.find(built.source) if built.source else -1
            if at >= 0:
                return Shown(name, text, dict.fromkeys(hits, text.count("\n", 0, at)))
    entry = source.entry_file
    device = next((built.source for built in kernels if built.source), source.files[entry])
    return Shown("device.cu" if device != source.files[entry] else entry, device, dict.fromkeys(hits, 0))


def _is_header(file: str) -> bool:
    return file.endswith((".h", ".hpp", ".cuh"))
