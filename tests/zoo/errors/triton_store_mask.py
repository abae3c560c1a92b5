# /// zoo
# task = "relu"
# dsl = "triton"
# catalogue = [49]
# expect = "smoke"
# where = ["cpu", "gpu"]
# story = "The store has no mask: zeros are written past the end."
# detector = "Guard zones round the output."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < n, other=0.0), 0.0))


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y
