"""The process in which a candidate (or a baseline) runs. It is told what to call; it decides nothing.

Everything after :func:`run` has imported the candidate is the candidate's to change, so nothing that this module says
is believed: the judge reads outputs from this process's memory while it is stopped, compares them with a reference
that never was here, and times with its own clock.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import mmap
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernellab.verifier import sandbox, wire
from kernellab.verifier.control import BAD_OUTPUT, DTYPES, RAISED, Control
from kernellab.verifier.rules import COMPILED

Socket = Any
_SPIN_SECONDS = 0.05
_SHIFT = 1 << 20


class BadOutput(Exception):
    """The kernel returned something that is no tensor."""


def run(request: dict[str, Any], fds: dict[str, int], namespaces: str) -> None:
    """The worker's life: confine, report, then obey until the judge closes the channel. Does not return normally."""
    import socket

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(fds["log"], 1)
    os.dup2(fds["log"], 2)
    keep = {0, 1, 2, fds["packets"], fds["control"], fds["done"]}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor is already closed
                os.close(int(name))
    scratch = request["scratch"]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(os.path.join(scratch, "work"))
    import tempfile

    tempfile.tempdir = None
    held = [namespaces] if namespaces else []
    open_to_it = scratch, request.get("devices", ()), request.get("writable", ())
    held += [*sandbox.other_user(*open_to_it), *sandbox.confine(*open_to_it)]
    channel = socket.socket(fileno=fds["packets"])
    wire.post(channel, {"sandbox": held or ["process"]})
    kind: type[Worker] = Worker
    if request.get("device", "cpu") != "cpu":
        from kernellab.verifier.cuda_worker import DeviceWorker

        kind = DeviceWorker
    kind(channel, Control(fds["control"]), fds["done"], request).obey()


class Worker:
    def __init__(self, channel: Socket, control: Control, done: int, request: dict[str, Any]) -> None:
        self.channel = channel
        self.control = control
        self.done = done
        self.role: str = request["role"]
        self.device: str = request.get("device", "cpu")
        self.threads: int = request["threads"]
        self.function: Callable[..., Any] = _missing
        self.arenas: dict[int, mmap.mmap] = {}
        self.on_device: dict[int, Any] = {}
        #: outputs of the last two calls, so that a kernel that reuses one buffer shows
        self.kept: list[list[Any]] = []
        self.load: Callable[[Sequence[Any]], Sequence[Any]] = lambda args: args
        self._ghost: Any = None
        self.random = random.Random()
        #: the tensors that ``load`` puts a model's last arguments into
        self.parameters: list[Any] = []

    def handlers(self) -> dict[str, Callable[[dict[str, Any], list[int]], None]]:
        """What the judge may ask, by name."""
        return {
            "build": self.build,
            "arena": self.arena,
            "call": self.call,
            "trace": self.trace,
            "ghost": self.ghost,
            "copy": self.copy,
            "echo": self.echo,
            "seal": self.seal,
        }

    def obey(self) -> None:
        handlers = self.handlers()
        while True:
            message, fds = wire.take(self.channel)
            if message is None:
                return
            handlers[message["op"]](message, fds)

    # -- build

    def build(self, message: dict[str, Any], _: list[int]) -> None:
        try:
            import torch

            torch.set_num_threads(self.threads)
            if self.role == "candidate":
                if "seal" in message:
                    from kernellab.verifier.seal import inside

                    inside.watch(message["seal"], self.device)
                self._load_candidate(message)
            elif self.role == "replayer":
                from kernellab.verifier.seal import inside

                self.function = inside.load(Path(message["bundle"]), self.device)
            else:
                self._load_baseline(message)
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})
            return
        wire.post(self.channel, {"ok": True})

    def _load_candidate(self, message: dict[str, Any]) -> None:
        root = message["root"]
        path = os.path.join(root, message["entry_file"])
        sys.path.insert(0, root)
        sys.argv = [path]
        if message.get("command"):
            _run_build(message["command"], root)
        spec = importlib.util.spec_from_file_location("kernel_source", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["kernel_source"] = module
        spec.loader.exec_module(module)
        entry = getattr(module, message["entry"], None)
        model = getattr(module, "ModelNew", None)
        if callable(entry):
            self.function = entry
        elif model is not None:
            self._load_model(model, message)
        else:
            raise AttributeError(f"{message['entry_file']} defines neither {message['entry']} nor ModelNew")

    def _load_model(self, cls: Any, message: dict[str, Any]) -> None:
        import torch

        torch.manual_seed(0)
        model = cls(*message.get("init_args", ()), **message.get("init_kwargs", {})).eval()
        if self.device != "cpu":
            model = model.to(self.device)
        names = message.get("state", [])
        count = len(names)
        state = model.state_dict()
        self.parameters = [state[n] for n in names] if set(names) == set(state) else list(state.values())

        def load(args: Sequence[Any]) -> Sequence[Any]:
            split = len(args) - count
            own = model.state_dict()
            given = dict(zip(names, args[split:], strict=True))
            if set(own) != set(given):
                # strictly by name first, else by order and shape
                if [tuple(v.shape) for v in own.values()] != [tuple(v.shape) for v in given.values()]:
                    raise ValueError(
                        f"ModelNew's state_dict ({list(own)}) fits the reference's ({names}) neither by name nor by "
                        "order and shape"
                    )
                given = dict(zip(own, given.values(), strict=True))
            model.load_state_dict(given, strict=True)
            return args[:split]

        self.load = load
        self.function = _no_grad(model)

    def _load_baseline(self, message: dict[str, Any]) -> None:
        from kernellab.task import TaskForm
        from kernellab.task_load import TaskModule
        from kernellab.verifier.device import sample

        # not the Task: what describes one takes 2 s of imports, which would make this process unlike a candidate's
        module = TaskModule(message["name"], message["text"])
        module.numpy = message["numpy"]
        if module.form is TaskForm.NATIVE:
            self.load, function = _native(module)
        else:
            model = module.model(None if self.device == "cpu" else self.device)

            def load(args: Sequence[Any]) -> Sequence[Any]:
                state = model.state_dict()
                split = len(args) - len(state)
                model.load_state_dict(dict(zip(state, args[split:], strict=True)), strict=True)
                return args[:split]

            self.load, function = load, model
        if self.role in COMPILED:
            import torch

            function = torch.compile(function, mode=COMPILED[self.role])
        self.function = _no_grad(function)
        if self.role in COMPILED:
            # the first calls compile; they happen here, so that the judge need not wait for them
            for _ in range(2):
                self.function(*self.load(sample(module, message["sizes"], 0, self.device)))

    # -- calls

    def arena(self, message: dict[str, Any], fds: list[int]) -> None:
        # its pages are in place before the first call: finding them is no part of a kernel
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        self.arenas[message["slot"]] = mmap.mmap(fds[0], message["bytes"], flags=flags)
        os.close(fds[0])

    def call(self, message: dict[str, Any], _: list[int]) -> None:
        """Prepares the arguments, says so, waits for go, calls, reports where the outputs lie."""
        sequence = message["sequence"]
        try:
            args = self._arguments(message)
            if not message.get("poison", False):
                # a loop of a user's program frees a result before the next call, and so reuses its pages
                self.kept = self.kept if message["op"] == "echo" else []
            with _poisoned(message.get("poison", False)):
                self._timed(sequence, args, message.get("copies", 1))
        except BaseException as error:
            status = BAD_OUTPUT if isinstance(error, BadOutput) else RAISED
            self.control.write_error(status, json.dumps(explain(error, message.get("root", ""))))
            os.eventfd_write(self.done, 1 << 32)

    def _timed(self, sequence: int, args: Sequence[Any], copies: int) -> None:
        function, control, words, done = self.function, self.control, self.control.words, self.done
        synchronize = _synchronizer(self.device)
        synchronize()
        for warm in range(copies):
            # results lie elsewhere in each call: how fast a place is for its neighbours in the caches is luck, and
            # shall not be that of one process for as long as it lives
            shift = _shift(self.random)
            os.eventfd_write(done, 1)
            _wait(words, sequence + warm)
            start = time.perf_counter()
            result = function(*args[warm])
            synchronize()
            seconds = time.perf_counter() - start
            outputs = flatten(result, self.role == "candidate")
            for i, tensor in enumerate(outputs):
                control.write_output(i, *_place(tensor))
            control.write_done(len(outputs), seconds)
            os.eventfd_write(done, 1 << 32)
            self.kept = [*self.kept[-1:], outputs] if warm + 1 == copies else []
            del result, outputs, shift

    def echo(self, message: dict[str, Any], _: list[int]) -> None:
        """The same road with nothing to compute: what the judge's clock sees of a call that takes no time."""
        outputs = self.kept[-1] if self.kept else []
        function, self.function = self.function, lambda *_: tuple(outputs)
        try:
            self.call(message, [])
        finally:
            self.function = function

    def copy(self, message: dict[str, Any], fds: list[int]) -> None:
        """Copies the last outputs, contiguous and in order, into the judge's memory (device tensors)."""
        import torch

        with mmap.mmap(fds[0], message["bytes"]) as target:
            place = 0
            for tensor in self.kept[-1]:
                size = tensor.numel() * tensor.element_size()
                if size and place + size <= message["bytes"]:
                    into = torch.frombuffer(target, dtype=tensor.dtype, count=tensor.numel(), offset=place)
                    into.copy_(tensor.reshape(-1))
                    del into
                place += -(-size // 64) * 64
        os.close(fds[0])
        wire.post(self.channel, {"ok": True})

    def trace(self, message: dict[str, Any], _: list[int]) -> None:
        """One call under a dispatch mode: seconds inside the framework's compute operators, by name."""
        from kernellab.verifier.dispatch import library_seconds

        try:
            args = self._arguments(message)[0]
            total, by_name = library_seconds(self.function, args, _synchronizer(self.device))
            top = dict(sorted(by_name.items(), key=lambda kv: -kv[1])[:16])
            wire.post(self.channel, {"ok": True, "total": total, "library": top})
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})

    def seal(self, message: dict[str, Any], _: list[int]) -> None:
        """Records what a call does on two sets of arguments, for a replay without the candidate."""
        from kernellab.verifier.seal import inside

        scratch = Path(message["root"]).parent
        try:
            sets = self._arguments(message)
            answer = inside.seal(self.function, sets, self.parameters, message["dsl"], self.device, scratch)
        except BaseException as error:
            answer = {"ok": False, **explain(error, message["root"])}
        wire.post(self.channel, answer)

    def ghost(self, message: dict[str, Any], _: list[int]) -> None:
        """Watches the candidate's launches from now on, leaving out those named in ``off``; None ends it. Answers with
        the names of those that were seen before."""
        from kernellab.verifier.ghost import Ghost

        try:
            watch = self._ghost = self._ghost or Ghost(message["root"])
            seen = list(watch.seen)
            if message["off"] is None:
                watch.disarm()
            else:
                watch.arm(message["off"])
            wire.post(self.channel, {"ok": True, "seen": [name[:80] for name in seen]})
        except BaseException as error:
            wire.post(self.channel, {"ok": False, **explain(error, message.get("root", ""))})

    def _arguments(self, message: dict[str, Any]) -> list[Sequence[Any]]:
        import torch

        sets = []
        for slot in message["slots"]:
            args: list[Any] = []
            for spec in message["args"]:
                if "value" in spec:
                    args.append(spec["value"])
                    continue
                dtype = getattr(torch, spec["dtype"])
                shape, strides = spec["shape"], spec["strides"]
                span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
                if span:
                    flat = torch.frombuffer(self.arenas[slot], dtype=dtype, count=span, offset=spec["offset"])
                else:
                    flat = torch.empty(0, dtype=dtype)
                tensor = flat.as_strided(shape, strides)
                if self.device != "cpu":
                    tensor = self._to_device(slot, len(args), flat).as_strided(shape, strides)
                args.append(tensor)
            sets.append(self.load(args))
        return sets

    def _to_device(self, slot: int, index: int, flat: Any) -> Any:
        """A device copy at the same address as long as size and dtype are the same."""
        import torch

        held = self.on_device.get((slot << 16) + index)
        if held is None or held.numel() != flat.numel() or held.dtype != flat.dtype:
            held = torch.empty(flat.shape, dtype=flat.dtype, device=self.device)
            self.on_device[(slot << 16) + index] = held
        held.copy_(flat)
        return held


def flatten(result: Any, strict: bool) -> list[Any]:
    """The tensors of a kernel's result in order; numbers become tensors."""
    import torch

    if type(result) is torch.Tensor or (not strict and isinstance(result, torch.Tensor)):
        return [result]
    if isinstance(result, (bool, int, float)):
        return [torch.as_tensor(result)]
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        return [t for item in result if item is not None for t in flatten(item, strict)]
    raise BadOutput(f"kernel returned {type(result).__module__}.{type(result).__name__}, not a plain tensor")


def explain(error: BaseException, root: str) -> dict[str, Any]:
    """An exception as data: type, message, the frames in the candidate's files, and where outside them it arose."""
    text = str(error)
    frames = [
        {"file": os.path.relpath(f.filename, root), "line": f.lineno or 0}
        for f in traceback.extract_tb(error.__traceback__)
        if root and f.filename.startswith(root)
    ]
    if isinstance(error, SyntaxError) and error.filename and root and error.filename.startswith(root):
        frames.append({"file": os.path.relpath(error.filename, root), "line": error.lineno or 0})
        text = error.msg or text
    return {
        "type": type(error).__name__,
        "message": text[-12000:],
        "frames": frames[-8:],
        "inside": _inside(error, root),
        "trace": "".join(traceback.format_exception(error))[-16000:],
    }


def _inside(error: BaseException, root: str) -> str:
    """The innermost frame, ``"torch/cuda/__init__.py, line 512"``, when it is a library's; else ""."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    if not frames or (root and frames[-1].filename.startswith(root)):
        return ""
    last = frames[-1]
    for folder in sorted(filter(None, sys.path), key=len, reverse=True):
        if last.filename.startswith(folder.rstrip("/") + "/"):
            return f"{os.path.relpath(last.filename, folder)}, line {last.lineno}"
    return f"{last.filename}, line {last.lineno}"


def _place(tensor: Any) -> tuple[tuple[int, int, int, int], tuple[int, ...], tuple[int, ...]]:
    storage = tensor.untyped_storage()
    name = str(tensor.dtype).removeprefix("torch.")
    return (
        (tensor.data_ptr(), storage.data_ptr(), storage.nbytes(), DTYPES.index(name)),
        tuple(tensor.shape),
        tuple(tensor.stride()),
    )


def _shift(draw: random.Random) -> Any:
    """Memory, up to a megabyte, that moves what is allocated after it."""
    import torch

    return torch.empty(draw.randrange(1, _SHIFT), dtype=torch.uint8)


def _wait(words: memoryview, sequence: int) -> None:
    """Spins for the judge's go (a wake-up would cost more than a small kernel), then sleeps in small steps."""
    limit = time.perf_counter() + _SPIN_SECONDS
    while words[0] != sequence:
        if time.perf_counter() > limit:
            time.sleep(1e-4)


def _synchronizer(device: str) -> Callable[[], None]:
    if device == "cpu":
        return _nothing
    import torch

    return torch.cuda.synchronize


@contextlib.contextmanager
def _poisoned(on: bool, device: str = "cpu") -> Iterator[None]:
    """Fresh tensors hold NaN between guards, so that a place never written, or one written beyond, shows."""
    if not on:
        yield
        return
    import torch

    from kernellab.verifier.guards import guarded

    # the public function imports the whole of inductor (0.8 s)
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        with guarded(device):
            yield
    finally:
        torch._C._set_deterministic_algorithms(False)


def _native(module: Any) -> tuple[Callable[[Sequence[Any]], Sequence[Any]], Callable[..., Any]]:
    """A native reference's own call with its keywords bound outside the clock."""
    from kernellab.task_load import to_numpy

    bound: dict[str, Any] = {}
    reference = module.namespace["reference"]

    def load(args: Sequence[Any]) -> Sequence[Any]:
        given = [to_numpy(a) for a in args] if module.numpy else list(args)
        positional, keywords = module._bind(given)
        bound["keywords"] = keywords
        return tuple(positional)

    def call(*args: Any) -> Any:
        result = reference(*args, **bound["keywords"])
        return tuple(module.flatten(result)) if module.numpy else result

    return load, call


def _no_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    def call(*args: Any) -> Any:
        with torch.no_grad():
            return function(*args)

    return call


def _run_build(command: Sequence[str], root: str) -> None:
    """The command that a DSL's spec.toml names, in the source's folder. Raises RuntimeError with its log."""
    import subprocess

    done = subprocess.run(list(command), cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}.\n{done.stderr or done.stdout}")


def _missing(*_: Any) -> Any:
    raise RuntimeError("nothing was built")


def _nothing() -> None: ...


def write_files(root: Path, files: dict[str, str]) -> None:
    """The source's files under ``root``. Raises ValueError for a path that leaves it."""
    for name, text in files.items():
        path = (root / name).resolve()
        if not path.is_relative_to(root.resolve()):
            raise ValueError(f"the file name {name!r} leaves the source's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
