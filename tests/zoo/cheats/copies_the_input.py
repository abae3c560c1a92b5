# /// zoo
# task = "relu_of_rand"
# dsl = "cpp"
# catalogue = [30, 34]
# expect = "correct"
# signature = "identity"
# story = """
# The same as a kernel of its own: a copy, at the speed of memory, right on every input that this task allows."""
# detector = "The audit marks the task as one that does not tell right from trivial."
# harmless = "The task is at fault: its audit says that a copy of the input is right on all of its inputs."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstring>
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) { memcpy(y.data_ptr(), x.data_ptr(), x.numel() * 4); }
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.relu(x, y)
    return y
