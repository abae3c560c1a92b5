# /// zoo
# task = "softmax"
# dsl = "triton"
# where = ["cpu", "gpu"]
# story = "Rows of any length, in pieces, with a running maximum."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0) * N
    top = float("-inf")
    total = 0.0
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + row + at, mask=at < N, other=float("-inf"))
        now = tl.maximum(top, tl.max(part, 0))
        total = total * tl.exp(top - now) + tl.sum(tl.exp(part - now), 0)
        top = now
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + row + at, mask=at < N)
        tl.store(y + row + at, tl.exp(part - top) / total, mask=at < N)


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
    return y
