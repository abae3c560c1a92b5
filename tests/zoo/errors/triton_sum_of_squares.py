# /// zoo
# task = "variance"
# dsl = "triton"
# expect = "correct"
# where = ["cpu", "gpu"]
# story = """
# Masks the load and not the difference: every masked element adds the squared mean. Nothing where the mean is zero."""
# detector = "Hidden sizes and shifted inputs."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def variance_kernel(x, y, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * N + at, mask=at < N, other=0.0)
    mean = tl.sum(row, 0) / N
    # masked elements are not zero any more after the subtraction
    off = row - mean
    tl.store(y + tl.program_id(0), tl.sum(off * off, 0) / (N - 1))


def kernel(x):
    y = torch.empty(x.shape[0], device=x.device)
    variance_kernel[(x.shape[0],)](x.contiguous(), y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
