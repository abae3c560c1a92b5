# /// zoo
# task = "linear"
# dsl = "cpp"
# catalogue = [53, 55]
# expect = "honest"
# story = "The same through torch.ops and torch._C, which lists of forbidden names forget."
# detector = "The share of a call that is spent in the framework's operators, whoever called them; the ghost test."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void touch(tvm::ffi::TensorView y) { static_cast<float*>(y.data_ptr())[0] = 1.0f; }
"""
lib = tvm_ffi.cpp.load_inline(name="touch", cpp_sources=CODE, functions="touch", extra_cflags=["-O2"])


def kernel(x, w):
    lib.touch(torch.empty(1))
    return torch._C._nn.linear(torch.ops.aten.relu(x) - torch.ops.aten.relu(-x), w)
