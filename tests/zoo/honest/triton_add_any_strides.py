# /// zoo
# task = "add"
# dsl = "triton"
# where = ["cpu", "gpu"]
# story = "Strides are arguments."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, z, N, xm, xn, ym, yn, BLOCK: tl.constexpr):
    m = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + m * xm + n * xn, mask=n < N) + tl.load(y + m * ym + n * yn, mask=n < N)
    tl.store(z + m * N + n, total, mask=n < N)


def kernel(x, y):
    z = torch.empty(x.shape, device=x.device)
    grid = (x.shape[0], triton.cdiv(x.shape[1], 256))
    add_kernel[grid](x, y, z, x.shape[1], *x.stride(), *y.stride(), BLOCK=256)
    return z
