# /// zoo
# task = "row_sum"
# dsl = "triton"
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "<= for <: the first element of the next row is added, unless the row fills its block."
# detector = "Hidden sizes; poison behind the last row."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x, y, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * N + at, mask=at <= N, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(row, 0))


def kernel(x):
    y = torch.empty(x.shape[0], device=x.device)
    row_sum_kernel[(x.shape[0],)](x.contiguous(), y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
