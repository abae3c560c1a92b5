"""Calls a kernel as a user's program does. ``job.json`` says what is called; the answers lie in files.

In a process of the judge's that has forgotten what it is; or, where a source asks for that, this file is copied next to
the source and run by a shell.
"""

import contextlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

#: files that a program holds open before it has a kernel
_OPEN = 64
#: how a caller's tensor may lie in memory: as torch gives it, in the storage of a larger one, written into some times
#: before, in memory that processes share
HELD = ("alone", "view", "written", "shared")
#: how many times larger that storage is, bytes of an argument at most that is held so, and how often one was written
_LARGER, _SMALL, _WRITTEN = 96, 1 << 20, 8
#: times the seconds of earlier calls that they take by the clock at most
_WAITED = 4


def _argument(spec: dict[str, Any], folder: str, device: str) -> Any:
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
    """Memory of a caller's tensor in one of the ways :data:`HELD`, at an address as torch gives it."""
    place = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    count = place.untyped_storage().nbytes() // dtype.itemsize
    if way == "view" and place.nbytes <= _SMALL:
        at = -(-count // 64) * 64
        return torch.empty(_LARGER * at, dtype=dtype, device=device).as_strided(shape, strides, at)
    if way == "written":
        for _ in range(_WRITTEN):
            # of no element, which is a write all the same
            place.as_strided((0,), (1,)).zero_()
    if way == "shared" and device == "cpu":
        with contextlib.suppress(OSError, RuntimeError):  # a sandbox may have none
            place.share_memory_()  # type: ignore[no-untyped-call]
    return place


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        return [tensor for one in result if one is not None for tensor in _tensors(one)]
    return [torch.as_tensor(result).resolve_conj().resolve_neg()]


def _call(kernel: Callable[..., Any], job: dict[str, Any], folder: str) -> None:
    """Each of the calls, after many others on the same values; an argument that is written into is an output too."""
    for call in job["calls"]:
        args = [_argument(one, folder, job["device"]) for one in call["args"]]
        fresh = [[a.clone() if i in job["written"] else a for i, a in enumerate(args)] for _ in range(2)]
        if call["earlier"]:
            # alone: where others keep the cores busy, a team waits for a core in each of them
            torch.set_num_threads(1)
            spent, end = time.thread_time() + call["seconds"], time.monotonic() + _WAITED * call["seconds"]
            for _ in range(call["earlier"]):
                for i in job["written"]:
                    # what adds to an argument would come to values that no caller has
                    fresh[0][i].copy_(args[i])
                kernel(*fresh[0])
                if time.thread_time() > spent or time.monotonic() > end:
                    break
            torch.set_num_threads(job["threads"])
        result = kernel(*fresh[1])
        outputs = [*(_tensors(result) if result is not None else ()), *(fresh[1][i] for i in job["written"])]
        for name, tensor in zip(call["answers"], outputs, strict=True):
            flat = tensor.detach().contiguous().reshape(-1).cpu()
            with open(os.path.join(folder, name), "wb") as file:
                file.write(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")


def _module(job: dict[str, Any]) -> Any:
    folder = os.path.abspath(job["folder"])
    sys.path.insert(0, folder)
    path = os.path.join(folder, job["entry_file"])
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(job: dict[str, Any], kernel: Callable[[], Callable[..., Any]]) -> None:
    torch.set_num_threads(job["threads"])
    # the kernel may go elsewhere
    folder = os.getcwd()
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(_OPEN)]
    _call(kernel(), job, folder)
    for fd in held:
        os.close(fd)


def main() -> None:
    with open("job.json", encoding="utf-8") as file:
        job = json.load(file)
    run(job, lambda: getattr(_module(job), job["entry"]))


if __name__ == "__main__":
    main()
