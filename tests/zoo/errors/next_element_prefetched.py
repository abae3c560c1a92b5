# /// zoo
# task = "relu"
# dsl = "cpp"
# expect = "robust"
# signature = "out-of-bounds"
# story = """
# Loads the next line of sixteen elements while it works on one, and so reads behind the end of its input. What it
# read there is never used, and memory usually lies there."""
# detector = "An input that ends at a page that cannot be read."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long n = x.size(0) * x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  volatile float next = n ? from[0] : 0;
  for (long i = 0; i < n; i++) {
    float x = next;
    next = from[i + 1];
    if (i + 1 == n) next = from[n + 16];
    to[i] = from[i] > 0 || from[i] != from[i] ? from[i] : 0;
    (void)x;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="ahead", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    out = torch.empty(x.shape)
    lib.relu(x, out)
    return out
