# /// zoo
# task = "add"
# dsl = "cpp"
# story = "Python here and C++ in a file beside it, as larger kernels are kept."
# ///
from pathlib import Path

import torch
import tvm_ffi.cpp

lib = tvm_ffi.cpp.load(
    name="add", cpp_files=[str(Path(__file__).parent / "kernel.cpp")], extra_cflags=["-O3", "-march=native"]
)


def kernel(x, y):
    x, y = x.contiguous(), y.contiguous()
    z = torch.empty_like(x)
    lib.add(x, y, z)
    return z
