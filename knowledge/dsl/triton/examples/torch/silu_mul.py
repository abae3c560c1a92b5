"""SwiGLU: one pass over two inputs.

family: pointwise
task: pointwise/swiglu
sizes: M=3 N=50; M=1 N=1024
"""

import torch
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(a_ptr + at, mask=inside).to(tl.float32)
    b = tl.load(b_ptr + at, mask=inside).to(tl.float32)
    tl.store(y_ptr + at, a * tl.sigmoid(a) * b, mask=inside)


def kernel(a, b):
    a, b = a.contiguous(), b.contiguous()
    y = torch.empty_like(a)
    swiglu_kernel[(triton.cdiv(a.numel(), 1024),)](a, b, y, a.numel(), BLOCK=1024, num_warps=4)
    return y
