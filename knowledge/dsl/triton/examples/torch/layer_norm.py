"""Layer norm: mean and variance of a row held in registers.

family: normalisation
task: normalisation/layer_norm
sizes: M=3 N=50; M=2 N=256
"""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + row * n + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n
    d = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, axis=0) / n + eps)
    w = tl.load(w_ptr + at, mask=inside)
    b = tl.load(b_ptr + at, mask=inside)
    tl.store(y_ptr + row * n + at, d * scale * w + b, mask=inside)


def kernel(x, weight, bias, eps=1e-5):
    x = x.contiguous()
    m, n = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(n)
    layer_norm_kernel[(m,)](x, weight, bias, y, n, eps, BLOCK=block, num_warps=max(1, min(16, block // 256)))
    return y
