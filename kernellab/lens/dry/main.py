"""``-m kernellab.lens.dry.main FOLDER``: confines itself, makes the dry call of FOLDER/request.json, and writes
FOLDER/work/answer.json. The code that runs here is the candidate's."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from kernellab.lens.dry import cuda, tools
from kernellab.lens.dry import triton as by_triton
from kernellab.lens.dry.recorder import Recorder
from kernellab.lens.dry.records import Answer, Built, Ran, Request
from kernellab.sandbox import sandbox
from kernellab.task.faking import on_meta
from kernellab.verifier.worker.build import taken

ANSWER = "answer.json"
#: texts of CUDA C++ and their cubins, and Triton's cache, in the call's folder
PROGRAMS, CACHE = Path("programs"), "triton"


def main() -> None:
    folder = Path(sys.argv[1])
    scratch = folder / "work"
    request = Request(**json.loads((folder / "request.json").read_text(encoding="utf-8")))
    if request.processor:
        resource.setrlimit(resource.RLIMIT_CPU, (request.processor, request.processor + 1))
    level = sandbox.enter() if len(os.listdir("/proc/self/task")) == 1 else ""
    _fork()
    shared = "" if not level or sandbox.own_proc() else " (shared /proc)"
    _fork()
    # imported before it is confined, since imports are slower afterwards
    import torch  # noqa: F401

    interpreting = _start_interpreting(request, folder / "run", level) if request.watched else None
    _import_compilers()
    held = [f"{level}{shared}"] if level else []
    held += [*sandbox.other_user(str(scratch)), *sandbox.confine(str(scratch))]
    os.chdir(scratch)
    answers = [call(replace(request, arguments=arguments), held) for arguments in (request.arguments, *request.others)]
    if interpreting is not None:
        records = _interpreted(interpreting, len(answers))
        answers = [replace(answer, ran=ran) for answer, ran in zip(answers, records, strict=True)]
    (scratch / ANSWER).write_text(json.dumps([asdict(one) for one in answers]), encoding="utf-8")


class _Child(NamedTuple):
    """A process that makes the calls in Triton's interpreter, and the end of the pipe on which it answers."""

    pid: int
    pipe: int


def _start_interpreting(request: Request, scratch: Path, level: str) -> _Child:
    """Start the calls in Triton's interpreter, in a child that has torch already."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return _Child(child, reading)
    sandbox.die_with_parent()
    os.close(reading)
    os.environ["TRITON_INTERPRET"] = "1"
    scratch.mkdir()  # two users share no folder
    from kernellab.lens.dry import interpreted

    watch = interpreted.install(request)
    held = [level, *sandbox.other_user(str(scratch)), *sandbox.confine(str(scratch))]
    os.chdir(scratch)
    ran = []
    for arguments in (request.arguments, *request.others):
        drawn = arguments is request.arguments
        watch.begin(request.watched if drawn else 0)
        error = ""
        try:
            if not request.allowed and not sandbox.contains(", ".join(held)):
                raise RuntimeError("this machine has no sandbox")
            entry, args = _entry(request), interpreted.arguments(arguments, drawn)
            entry(*args[: taken(entry, len(args), sum(bool(one.get("default")) for one in arguments))])
        except BaseException as ended:
            error = _error_line(ended, request)
        ran.append(asdict(watch.ran(error)))
    with os.fdopen(writing, "w") as out:
        json.dump(ran, out)
    os._exit(0)


def _interpreted(child: _Child, calls: int) -> list[Ran]:
    """Return the child's record of each of its ``calls``. This process ends as the child does if its time was up."""
    with os.fdopen(child.pipe) as pipe:
        text = pipe.read()
    status = os.waitpid(child.pid, 0)[1]
    ending = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if ending == signal.SIGXCPU:
        os._exit(-signal.SIGXCPU & 0xFF)
    if not text:
        manner = f"by {signal.Signals(ending).name}" if ending else f"with {os.WEXITSTATUS(status)}"
        error = f"the end of Triton's interpreter {manner}"
        return [Ran(whole=False, drawn=False, error=error, killed=ending == signal.SIGKILL)] * calls
    return [Ran(**record) for record in json.loads(text)]


def _fork() -> None:
    """Continue in a child process; this process waits for its end and exit status, and the child ends with it."""
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    sandbox.die_with_parent()


def _import_compilers() -> None:
    with contextlib.suppress(ImportError):
        import triton  # type: ignore[import-untyped]  # noqa: F401
    with contextlib.suppress(ImportError):
        import tvm_ffi.cpp  # noqa: F401


def call(request: Request, held: list[str]) -> Answer:
    """Make the dry call; ``held`` are the restrictions of this process."""
    if not request.allowed and not sandbox.contains(", ".join(held)):
        return Answer(error=[
            "This machine has no sandbox, so this kernel's host code would run with your own rights.",
            "If you trust its author, allow it: --unsandboxed.",
        ])  # fmt: skip
    # torch's fake tensors load its compiler, 70 MB and a second
    recorder = Recorder()
    error = _call_recorded(request, on_meta, recorder)
    if error is not None and not isinstance(error, cuda.Refused):
        recorder = Recorder()
        error = _call_recorded(request, _fake, recorder)
    if isinstance(error, cuda.Refused):
        reason = _first_error(str(error))
        return Answer(
            error=[f"The compiler refuses this source: {reason}", "Its verdict lists all errors."], refused=reason
        )
    ended = "" if error is None else _error_line(error, request)
    if not recorder.kernels:
        if ended:
            remedy = "Give the task whose inputs it takes, and a source that runs."
            return Answer(error=[ended, remedy], refused=ended)
        missing = f"{request.entry_file} launches no kernel of Triton or CUDA C++."
        return Answer(error=[missing, "The lens shows what such a kernel becomes."], refused=missing)
    if ended:
        recorder.note(f"The call ended early: {ended}")
    _write_programs(recorder)
    kernels = _disassembled(recorder)
    if not request.watched and tools.tool("nvdisasm") is None:
        recorder.note("There is no SASS: nvdisasm is not installed (it comes with the CUDA toolkit and with Triton).")
    return Answer(
        kernels=kernels, launches=recorder.launches, calls=recorder.calls, notes=recorder.notes, refused=ended,
        held=held,
    )  # fmt: skip


def _write_programs(recorder: Recorder) -> None:
    PROGRAMS.mkdir(exist_ok=True)
    for n, (text, binary) in enumerate(recorder.programs.items()):
        (PROGRAMS / f"{n}.cu").write_text(text, encoding="utf-8")
        (PROGRAMS / f"{n}.cubin").write_bytes(binary.cubin)


def _disassembled(recorder: Recorder) -> list[Built]:
    """Return the kernels with their SASS and the resources that they use."""
    kernels = []
    for built, cubin in zip(recorder.kernels, recorder.cubins, strict=True):
        sass, used = (tools.disassembled(cubin), tools.resources(cubin)) if cubin else ("", {})
        texts = {**built.texts, "sass": sass} if sass else built.texts
        name = built.name or next(iter(used), "")
        kernels.append(replace(built, name=name, texts=texts, resources=used.get(name, "")))
    return kernels


def _call_recorded(
    request: Request, tensors: Callable[[str], AbstractContextManager[Any]], recorder: Recorder
) -> BaseException | None:
    """Call the entry once; what it launches is recorded. Returns the exception that ended it, if there is one."""
    try:
        with cuda.compiled(request, recorder), by_triton.compiled(request, recorder), gpu(request, tensors):
            entry = _entry(request)
            args = arguments(request.arguments)
            entry(*args[: taken(entry, len(args), sum(bool(one.get("default")) for one in request.arguments))])
    except BaseException as error:
        return error
    return None


def _fake(device: str) -> AbstractContextManager[Any]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def _entry(request: Request):  # type: ignore[no-untyped-def]
    place = Path.cwd()
    for name, text in request.files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    sys.path.insert(0, str(place))
    spec = importlib.util.spec_from_file_location("kernel_source", place / request.entry_file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel_source"] = module
    spec.loader.exec_module(module)
    entry = getattr(module, request.entry, None)
    if not callable(entry):
        raise AttributeError(f"{request.entry_file} defines no {request.entry}(*inputs)")
    return entry


def _error_line(error: BaseException, request: Request) -> str:
    """Return the error in one line, with the deepest line of the source."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name in request.files]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else ""
    return f"{where}{type(error).__name__}: {_first_error(str(error))}"


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "it gives no reason")[:300]


# -- torch in a dry call: tensors without contents on an absent GPU ----------------------------------------------------

#: an address that is a multiple of every alignment
_ADDRESS = 1 << 20


@contextlib.contextmanager
def gpu(request: Request, tensors: Callable[[str], AbstractContextManager[Any]] = _fake) -> Iterator[None]:
    """While it holds, torch makes tensors without contents (``tensors`` of a device), and says that there is a GPU as
    the request describes."""
    import torch
    from torch._subclasses import fake_tensor

    major, minor = divmod(request.capability, 10)
    facts = SimpleNamespace(
        name=f"sm_{request.capability}", major=major, minor=minor, multi_processor_count=request.cores, warp_size=32,
        total_memory=1 << 36, max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
        shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472, L2_cache_size=50 << 20,
    )  # fmt: skip
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None, wait_stream=lambda other: None)
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_properties": lambda device=None: facts,
        "get_device_name": lambda device=None: facts.name,
        "device": lambda device=None: contextlib.nullcontext(),
    }
    originals = {name: getattr(torch.cuda, name) for name in answers if hasattr(torch.cuda, name)}
    address = torch.Tensor.data_ptr
    for name, value in answers.items():
        setattr(torch.cuda, name, value)
    torch.Tensor.data_ptr = _address  # type: ignore[method-assign, assignment]
    for name in ("init_gpu_context", "init_cuda_context"):
        # makes a real tensor to initialise the driver, which is absent
        if hasattr(fake_tensor, name):
            setattr(fake_tensor, name, lambda *_: None)
    try:
        with tensors("cuda:0"):
            yield
    finally:
        torch.Tensor.data_ptr = address  # type: ignore[method-assign]
        for name, value in originals.items():
            setattr(torch.cuda, name, value)


def _address(tensor: Any) -> int:
    return _ADDRESS + int(tensor.storage_offset()) * int(tensor.element_size())


def arguments(specs: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the entry's arguments, inside :func:`gpu`."""
    import torch

    return [
        one["value"] if "value" in one else torch.empty(one["shape"], dtype=getattr(torch, one["dtype"]), device="cuda")
        for one in specs
    ]


if __name__ == "__main__":
    main()
    # nothing of the candidate's runs at the end, and unloading torch would take a quarter of the call's processor time
    sys.stderr.flush()
    os._exit(0)
