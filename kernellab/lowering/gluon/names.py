"""Gluon's names in different versions of Triton; no other module depends on the version.

Checked in Triton 3.6 and 3.9: ``async_copy_global_to_shared`` became ``async_load`` and ``async_copy_shared_to_global``
``async_store``; the older names are gone or raise. In a Triton without Gluon, or with other names, ``gluon`` is None,
and every launch of the file runs its Triton kernel."""

from __future__ import annotations

#: imports of a generated file
IMPORTS = """try:  # Gluon is experimental: a Triton that names its parts otherwise runs the Triton kernels
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.language.nvidia.hopper import (
        fence_async_shared,
        mbarrier,
        tma,
        warpgroup_mma,
        warpgroup_mma_wait,
    )
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    tma_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
    tma_store = tma.async_store if hasattr(tma, "async_load") else tma.async_copy_shared_to_global
except (ImportError, AttributeError):
    gluon = None
"""

#: the same of a file with clusters; Triton 3.6 has neither their barrier nor multicast
CLUSTERS = """
try:
    from triton.experimental.gluon.language.nvidia.hopper import cluster

    kl_clusters = "multicast" in inspect.signature(tma_load).parameters
except (ImportError, NameError):
    kl_clusters = False
"""

#: what a generated file's host function calls to choose the kernel, and to make descriptors
HELPERS = '''_routes = {}


@functools.lru_cache(maxsize=None)
def kl_generation(device):
    """The GPU's generation; 0 for -1, which stands for the CPU."""
    return torch.cuda.get_device_capability(device)[0] if device >= 0 else 0


def kl_asynchronous(name, *tensors):
    """Whether a launch goes to its asynchronous kernel; why not is in ``_routes`` and said once."""
    if gluon is None:
        why = "this Triton has no Gluon by the names known here"
    elif kl_generation(tensors[0].get_device()) != 9:
        why = "the tensors are not on a Hopper GPU"
    else:
        for tensor in tensors:
            if tensor.data_ptr() % 16:
                why = "an address is no multiple of the 16 bytes that the copy engine wants"
                break
        else:
            _routes[name] = "asynchronous"
            return True
    if _routes.get(name) != why:
        warnings.warn(f"{name} runs its Triton kernel: {why}.", stacklevel=3)
    _routes[name] = why
    return False


class KlAddress:
    """A tensor's address and dtype: what a descriptor that is kept holds of it, so that its memory can be freed."""

    def __init__(self, address, dtype):
        self.address, self.dtype = address, dtype

    def data_ptr(self):
        return self.address


@functools.lru_cache(maxsize=1024)
def kl_described(address, dtype, shape, block, divided=()):
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    element = {
        torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32,
        torch.float8_e4m3fn: gl.float8e4nv, torch.float8_e5m2: gl.float8e5,
    }[dtype]  # fmt: skip
    blocks = {"cga_layout": [list(divided)]} if divided else {}
    layout = gl.NVMMASharedLayout.get_default_for(list(block), element, **blocks)
    described = TensorDescriptor(KlAddress(address, dtype), list(shape), strides, list(block), layout)
    described.kind = dtype, block, divided
    return described


def kl_blocks(tensor, shape, block, divided=(), cluster=1):
    """``tensor`` seen as ``shape``, contiguous, in boxes of ``block`` for the copy engine; kept for the next call.

    ``divided``: 1 for the dimension of which each block of a cluster of two has half, 0 for those that it has whole.
    """
    return kl_described(tensor.data_ptr(), tensor.dtype, shape, block, divided if cluster > 1 else ())
'''

#: names that :func:`unavailable` requires of the language and of its module for Hopper
_LANGUAGE = (
    "allocate_shared_memory", "arange", "convert_layout", "full", "warp_specialize", "NVMMADistributedLayout",
    "NVMMASharedLayout", "SliceLayout", "DotOperandLayout",
)  # fmt: skip
_HOPPER = ("fence_async_shared", "mbarrier", "tma", "warpgroup_mma", "warpgroup_mma_wait")


def unavailable() -> str:
    """Return why asynchronous kernels do not run with the installed Triton; "" if they do."""
    try:
        import triton  # type: ignore[import-untyped]
        from triton.experimental.gluon import language  # type: ignore[import-untyped]
        from triton.experimental.gluon.language.nvidia import hopper  # type: ignore[import-untyped]
    except ImportError as error:
        return f"Gluon cannot be imported ({error})"
    absent = [n for n in _LANGUAGE if not hasattr(language, n)] + [n for n in _HOPPER if not hasattr(hopper, n)]
    if not (hasattr(hopper.tma, "async_load") or hasattr(hopper.tma, "async_copy_global_to_shared")):
        absent.append("tma.async_load")
    return f"Triton {triton.__version__} has no {', '.join(absent)} in Gluon" if absent else ""


__all__ = ["CLUSTERS", "HELPERS", "IMPORTS", "unavailable"]
