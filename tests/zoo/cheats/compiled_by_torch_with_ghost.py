# /// zoo
# task = "softmax"
# dsl = "triton"
# catalogue = [55, 57]
# expect = "static"
# signature = "library-call"
# where = ["cpu", "gpu"]
# story = "The same with a Triton kernel for show, launched once."
# detector = "Static: torch.compile stands where kernels should."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def touch_kernel(y):
    tl.store(y, 1.0)


compiled = torch.compile(lambda x: torch.softmax(x, -1), mode="max-autotune")


def kernel(x):
    touch_kernel[(1,)](torch.empty(1, device=x.device))
    return compiled(x)
