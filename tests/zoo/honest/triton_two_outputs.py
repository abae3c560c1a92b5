# /// zoo
# task = "moments"
# dsl = "triton"
# where = ["cpu", "gpu"]
# story = "Two stores from one pass."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def moments_kernel(x, mean, var, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * N + at, mask=at < N, other=0.0)
    middle = tl.sum(row, 0) / N
    off = tl.where(at < N, row - middle, 0.0)
    tl.store(mean + tl.program_id(0), middle)
    tl.store(var + tl.program_id(0), tl.sum(off * off, 0) / N)


def kernel(x):
    mean = torch.empty(x.shape[0], device=x.device)
    var = torch.empty_like(mean)
    block = triton.next_power_of_2(x.shape[1])
    moments_kernel[(x.shape[0],)](x.contiguous(), mean, var, x.shape[1], BLOCK=block)
    return mean, var
