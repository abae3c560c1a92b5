# /// zoo
# task = "softmax"
# dsl = "triton"
# catalogue = [55]
# expect = "honest"
# where = ["cpu", "gpu"]
# story = """
# A genuine Triton kernel is launched and its result thrown away; the framework computes the answer. Profilers show
# the kernel's name."""
# detector = "The ghost test: the answer is right without the kernel. The share of time in own kernels."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + at, mask=at < N, other=float("-inf"))
    e = tl.exp(row - tl.max(row, 0))
    tl.store(y + at, e / tl.sum(e, 0), mask=at < N)


def kernel(x):
    x = x.contiguous()
    scratch = torch.empty(x.shape[1], device=x.device)
    softmax_kernel[(1,)](x, scratch, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return torch.softmax(x, -1)
