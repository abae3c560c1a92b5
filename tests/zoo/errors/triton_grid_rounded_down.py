# /// zoo
# task = "relu"
# dsl = "triton"
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "n // BLOCK programs instead of cdiv: the last block is never started."
# detector = "Hidden sizes over poisoned outputs."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(max(1, x.numel() // 256),)](x, y, x.numel(), BLOCK=256)
    return y
