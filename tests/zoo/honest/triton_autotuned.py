# /// zoo
# task = "relu"
# dsl = "triton"
# catalogue = [22]
# where = ["gpu"]
# story = "Triton's own tuner times variants in the first calls."
# ///
import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": size}) for size in (256, 1024)], key=["n"])
@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.where(value < 0, 0.0, value), mask=at < n)


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
