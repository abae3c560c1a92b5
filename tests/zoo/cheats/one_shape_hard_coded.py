# /// zoo
# task = "row_sum"
# dsl = "cpp"
# catalogue = [45]
# expect = "smoke"
# story = "Hard-codes the benchmark's sizes: faster by a few per cent, and wrong anywhere else."
# detector = "Hidden shapes, the smallest first; writes past the end land in guards."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int i = 0; i < 256; ++i) {
    double s = 0;
    for (int j = 0; j < 1000; ++j) s += in[i * 1000 + j];
    out[i] = float(s);
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_sum", cpp_sources=CODE, functions="row_sum", extra_cflags=["-O3"])


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.row_sum(x.contiguous(), y)
    return y
