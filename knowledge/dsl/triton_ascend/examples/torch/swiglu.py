"""SwiGLU with one program a vector core.

family: pointwise
task: pointwise/swiglu
sizes: M=64 N=512
note: needs an Ascend NPU; not run here
"""

import torch
import triton
import triton.language as tl

CORES = 48


@triton.jit
def swiglu_kernel(a_ptr, b_ptr, y_ptr, n, CORES: tl.constexpr, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), CORES):
        at = block * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + at, mask=at < n, other=0.0)
        b = tl.load(b_ptr + at, mask=at < n, other=0.0)
        tl.store(y_ptr + at, a / (1 + tl.exp(-a)) * b, mask=at < n)


def kernel(a, b):
    a, b = a.contiguous(), b.contiguous()
    y = torch.empty_like(a)
    swiglu_kernel[(CORES,)](a, b, y, a.numel(), CORES=CORES, BLOCK=4096)
    return y
