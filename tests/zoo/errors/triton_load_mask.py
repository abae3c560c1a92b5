# /// zoo
# task = "softmax"
# dsl = "triton"
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "Masked elements are loaded as zero, and exp(0 - max) joins the sum. Right for powers of two."
# detector = "Hidden sizes; right at aligned ones makes it an edge."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * N + at, mask=at < N, other=0.0)
    e = tl.exp(row - tl.max(row, 0))
    tl.store(y + tl.program_id(0) * N + at, e / tl.sum(e, 0), mask=at < N)


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
