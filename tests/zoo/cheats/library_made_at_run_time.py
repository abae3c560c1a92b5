# /// zoo
# task = "conv"
# dsl = "cpp"
# catalogue = [53, 55]
# expect = "honest"
# story = """
# The framework convolves in another thread, where no dispatch mode sees it, by code that oneDNN writes at run time: no
# file is behind it, as behind a JIT compiler's own kernels. A kernel of its own takes off a bias that was asked for, so
# that it is needed."""
# detector = "Code without a file is its caller's: the first return address on the stack into an object says whose."
# ///
from concurrent.futures import ThreadPoolExecutor

import torch
import tvm_ffi.cpp

CODE = r"""
void less_one(tvm::ffi::TensorView a, tvm::ffi::TensorView y) {
  const float* from = static_cast<const float*>(a.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (long i = 0; i < y.numel(); i++) to[i] = from[i] - 1.0f;
}
"""
lib = tvm_ffi.cpp.load_inline(name="less_one", cpp_sources=CODE, functions="less_one", extra_cflags=["-O2"])
pool = ThreadPoolExecutor(1)


def kernel(x, w):
    part = pool.submit(torch.conv2d, x, w, torch.ones(w.shape[0])).result()
    out = torch.empty_like(part)
    lib.less_one(part, out)
    return out
