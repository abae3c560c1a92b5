# /// zoo
# task = "relu"
# dsl = "triton"
# catalogue = [1]
# where = ["gpu"]
# story = "Works on a stream of its own, and the caller's stream waits for it."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.where(value < 0, 0.0, value), mask=at < n)


side = torch.cuda.Stream() if torch.cuda.is_available() else None


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    current = torch.cuda.current_stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    current.wait_stream(side)
    y.record_stream(side)
    return y
