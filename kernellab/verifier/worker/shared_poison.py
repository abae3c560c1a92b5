"""Leaves NaN in the shared memory of all multiprocessors, as fresh tensors of a poisoned call hold NaN.

Shared memory keeps what the last block on its multiprocessor left. A kernel that reads elements of it which it never
wrote is right on zeros and on its own leftovers, and wrong after other kernels. One block per multiprocessor, with all
the shared memory that a block may have, writes to it before the call; the code is PTX, so no compiler is needed.
"""

from __future__ import annotations

import ctypes

from kernellab.verifier.cuda import driver as cuda_driver

#: a NaN as float32, and as two of bfloat16 or float16
PATTERN = 0x7FFF7FFF
_THREADS = 256
#: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SHARED_BYTES = 8
#: volatile, since nothing here reads what is stored
CODE = b"""
.version 7.0
.target sm_70
.address_size 64
.extern .shared .align 16 .b8 room[];
.visible .entry leave_nan(.param .u32 words, .param .u32 pattern)
{
  .reg .pred %p;
  .reg .b32 %count, %value, %at, %threads, %place, %step;
  ld.param.u32 %count, [words];
  ld.param.u32 %value, [pattern];
  mov.u32 %at, %tid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %place, room;
  shl.b32 %step, %at, 2;
  add.u32 %place, %place, %step;
  shl.b32 %step, %threads, 2;
NEXT:
  setp.ge.u32 %p, %at, %count;
  @%p bra DONE;
  st.volatile.shared.b32 [%place], %value;
  add.u32 %at, %at, %threads;
  add.u32 %place, %place, %step;
  bra NEXT;
DONE:
  ret;
}
"""


class SharedPoison:
    """The kernel that leaves NaN behind, in this process's current context. Raises DriverError, OSError on creation."""

    def __init__(self) -> None:
        import torch

        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.blocks = properties.multi_processor_count
        self.bytes = int(getattr(properties, "shared_memory_per_block_optin", 48 << 10))
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        cuda_driver.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(CODE))
        cuda_driver.call("cuModuleGetFunction", ctypes.byref(self.function), module, ctypes.c_char_p(b"leave_nan"))
        cuda_driver.call("cuFuncSetAttribute", self.function, ctypes.c_int(_SHARED_BYTES), ctypes.c_int(self.bytes))

    def __call__(self, stream: int) -> None:
        """Queue it on ``stream`` (a CUstream)."""
        words, pattern = ctypes.c_uint32(self.bytes // 4), ctypes.c_uint32(PATTERN)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(words), ctypes.addressof(pattern))
        sizes = [ctypes.c_uint(n) for n in (self.blocks, 1, 1, _THREADS, 1, 1, self.bytes)]
        cuda_driver.call("cuLaunchKernel", self.function, *sizes, ctypes.c_void_p(stream), parameters, None)
