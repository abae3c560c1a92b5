# /// zoo
# task = "row_sum_half"
# dsl = "cpp"
# catalogue = [43]
# expect = "correct"
# signature = "accumulate-dtype"
# story = "Keeps the sum in the type of the inputs."
# detector = "Error against float64, far beyond what float32 sums leave."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const _Float16* X = static_cast<const _Float16*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.size(0); ++i) {
    _Float16 s = 0;
    for (int64_t j = 0; j < x.size(1); ++j) s += X[i * x.size(1) + j];
    Y[i] = s;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_sum", cpp_sources=CODE, functions="row_sum", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.row_sum(x.contiguous(), y)
    return y
