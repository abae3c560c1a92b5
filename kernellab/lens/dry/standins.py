"""torch as a dry call sees it: tensors without contents on a GPU that is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from kernellab.lens.dry.records import Request

#: an address that every alignment divides
_ADDRESS = 1 << 20


@contextlib.contextmanager
def gpu(request: Request) -> Iterator[None]:
    """While it holds, torch makes tensors without contents, and says that there is a GPU as the request describes."""
    import torch
    from torch._subclasses import fake_tensor

    major, minor = divmod(request.capability, 10)
    facts = SimpleNamespace(
        name=f"sm_{request.capability}", major=major, minor=minor, multi_processor_count=request.cores, warp_size=32,
        total_memory=1 << 36, max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
        shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472, L2_cache_size=50 << 20,
    )  # fmt: skip
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None, wait_stream=lambda other: None)
    said: dict[str, Any] = {
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
    kept = {name: getattr(torch.cuda, name) for name in said if hasattr(torch.cuda, name)}
    address = torch.Tensor.data_ptr
    for name, value in said.items():
        setattr(torch.cuda, name, value)
    torch.Tensor.data_ptr = _address  # type: ignore[method-assign, assignment]
    for name in ("init_gpu_context", "init_cuda_context"):
        # makes a real tensor to wake the driver, which is not there
        if hasattr(fake_tensor, name):
            setattr(fake_tensor, name, lambda *_: None)
    try:
        with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
            yield
    finally:
        torch.Tensor.data_ptr = address  # type: ignore[method-assign]
        for name, value in kept.items():
            setattr(torch.cuda, name, value)


def _address(tensor: Any) -> int:
    return _ADDRESS + int(tensor.storage_offset()) * int(tensor.element_size())


def arguments(given: Sequence[dict[str, Any]]) -> list[Any]:
    """What the entry is called with, within :func:`gpu`."""
    import torch

    return [
        one["value"] if "value" in one else torch.empty(one["shape"], dtype=getattr(torch, one["dtype"]), device="cuda")
        for one in given
    ]
