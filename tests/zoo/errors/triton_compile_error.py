# /// zoo
# task = "relu"
# dsl = "triton"
# expect = "smoke"
# where = ["cpu", "gpu"]
# story = "Calls a function that Triton's language does not have."
# detector = "The compiler's message, with its line."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.clip_to_zero(tl.load(x + at, mask=at < n)), mask=at < n)


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y
