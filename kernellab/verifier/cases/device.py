"""The device on which a verification's cases are made and references run, and torch's precision settings there.

Arguments are drawn on the device (drawing gigabytes on the CPU takes minutes). The references, native and in float64,
run there in the judge's own context.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernellab.errors import KernellabError, TargetError
from kernellab.target import Backend
from kernellab.task import Task
from kernellab.verifier.judge import turns

if TYPE_CHECKING:
    from kernellab.task.module import TaskModule

#: Operators whose float32 products cuDNN and cuBLAS may compute in TF32.
_CONVOLUTIONS = ("convolution", "_convolution", "cudnn_convolution", "convolution_overrideable", "conv2d", "conv3d")
_MATMULS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "addbmm", "_scaled_dot_product_efficient_attention")

_device: ContextVar[str] = ContextVar("device", default="cpu")


def current() -> str:
    """Return ``cpu`` or ``cuda``."""
    return _device.get()


@contextmanager
def on(device: str) -> Iterator[None]:
    """Make cases on ``device`` inside this context."""
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


def start_cuda() -> None:
    """Create this process's CUDA context and set torch's flags as tasks expect them.

    Raises:
        TargetError: torch has no CUDA here, or the driver cannot share memory between processes.
    """
    import torch

    from kernellab.verifier.cuda import driver as cuda_driver

    if not torch.cuda.is_available():
        raise TargetError(
            "torch finds no CUDA device here.",
            "Choose Triton in its interpreter or the DSL cpp on the CPU, or install a torch built for CUDA.",
        )
    try:
        # Load the libraries of products here, not in the first verification.
        ones = torch.ones(8, 8, device="cuda")
        torch.linalg.vector_norm(ones @ ones, dtype=torch.float64).item()
        mapping = cuda_driver.create(1, int(torch.cuda.current_device()))
        try:
            os.close(mapping.export())
        finally:
            mapping.close()
    except (RuntimeError, OSError, cuda_driver.DriverError) as error:
        raise TargetError(
            f"The CUDA device cannot be used: {str(error).splitlines()[0].rstrip('.')}.",
            "Its driver must let processes share memory by descriptor (not on Windows' WSL); see kernellab doctor.",
        ) from None
    turns.by_default(f"device:{_lock_file()}")
    set_precision({})


def give_back() -> None:
    """Return the memory that torch caches in this process to the device."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def clock_name(backend: Backend) -> str:
    """Return a name that identifies this process's device on the machine, in characters valid in a file name."""
    if backend is not Backend.CUDA:
        return str(backend.value)
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    identifier: str = str(getattr(properties, "uuid", properties.name))
    return identifier.replace(" ", "-").replace("/", "-")


def _lock_file() -> str:
    """Return the lock file of this device and user, by which judges take turns at timing."""
    return f"/tmp/kernellab-{os.getuid()}-{clock_name(Backend.CUDA)}.lock"


def set_precision(precision: Mapping[str, str]) -> None:
    """Set torch's flags as at registration (matmul in IEEE float32, convolution in TF32), unless the task says
    otherwise."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = precision.get("matmul", "ieee") == "tf32"
    torch.backends.cudnn.allow_tf32 = precision.get("conv", "tf32") == "tf32"


def sample(module: TaskModule, sizes: Mapping[str, int] | None, seed: int, device: str) -> tuple[Any, ...]:
    """Return ``module.sample`` on ``device``: drawn there if the task's ``inputs`` allows it, else moved there."""
    import torch

    if device == "cpu":
        return module.sample(sizes, seed)
    module.state()  # create the Model on the CPU once, with its weights there
    try:
        with torch.device(device):
            args = module.sample(sizes, seed)
    except KernellabError:
        # The task uses a CPU generator, or mixes devices.
        args = module.sample(sizes, seed)
    return tuple(a.to(device) if isinstance(a, torch.Tensor) else a for a in args)


def free() -> int:
    """Return the bytes of CUDA memory that this process can still use, including torch's cache."""
    import torch

    return int(torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


def synchronize() -> None:
    """Wait for the device, if there is one."""
    if current() == "cuda":
        import torch

        torch.cuda.synchronize()


def runs_tf32(task: Task) -> bool:
    """Return whether float32 outputs of ``task`` may be of TF32 precision: an operation of the reference may run in
    TF32, as the task states or, for convolutions on a CUDA device, by the framework's default."""
    return bool(tf32_operators(task))


def tf32_operators(task: Task) -> frozenset[str]:
    """Return the names of the reference's operators whose float32 factors may be TF32; none if the task is strict."""
    return frozenset() if task.strict else eager_tf32(task)


def eager_tf32(task: Task) -> frozenset[str]:
    """Return the names of the reference's operators that torch's flags let eager compute in TF32."""
    convolution = "tf32" if current() == "cuda" else "ieee"
    wanted: tuple[str, ...] = ()
    wanted += _CONVOLUTIONS if task.precision.get("conv", convolution) == "tf32" else ()
    wanted += _MATMULS if task.precision.get("matmul", "ieee") == "tf32" else ()
    return operators(task) & frozenset(wanted)


@lru_cache(maxsize=64)
def operators(task: Task) -> frozenset[str]:
    """Return the names of the reference's operators, observed on tensors without memory; if it needs values, the
    operator names in its text."""
    import torch

    from kernellab.task.fakes import fake_model
    from kernellab.task.faking import without_memory
    from kernellab.task.meta.operators import watching

    if task.framework == "numpy":
        return frozenset()
    names: set[str] = set()

    def note(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        names.add(func.overloadpacket.__name__)
        return func(*args, **kwargs)

    module = task.traced_module()
    sizes = module.default_sizes()
    args: list[Any] = []
    for spec in task.args:
        if spec.is_tensor:
            args.append(torch.empty(spec.extents(sizes), dtype=getattr(torch, spec.dtype), device="meta"))
        else:
            args.append(spec.value)

    def run() -> None:
        # The module keeps a Model with memory; this builds another one without.
        model = None if module.needs_values else fake_model(task)
        with watching(note):
            module.call(args, model)

    try:
        run() if module.needs_values else without_memory(run)
    except (KernellabError, RuntimeError, NotImplementedError, TypeError):
        names |= {name for name in (*_CONVOLUTIONS, *_MATMULS) if name in task.text}
        if "conv" in task.text.lower():
            names.add("convolution")
    return frozenset(names)
