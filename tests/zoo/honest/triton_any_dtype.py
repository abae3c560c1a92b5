# /// zoo
# task = "silu_half"
# dsl = "triton"
# where = ["cpu", "gpu"]
# story = "Float inside, whatever comes and goes."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(y + at, (value * tl.sigmoid(value)).to(y.dtype.element_ty), mask=at < n)


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
