# /// zoo
# task = "transpose"
# dsl = "triton"
# catalogue = [49]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "Uses the input's row length for the output: right for square matrices."
# detector = "Hidden sizes that are not square; guards."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def add_one_kernel(x, y, M, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m, n = at // N, at % N
    # the output has M columns, not N
    tl.store(y + n * N + m, tl.load(x + at, mask=at < M * N) + 1, mask=at < M * N)


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape[1], x.shape[0], device=x.device)
    add_one_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.shape[0], x.shape[1], BLOCK=256)
    return y
