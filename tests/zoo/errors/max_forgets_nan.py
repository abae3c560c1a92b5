# /// zoo
# task = "row_max_special"
# dsl = "cpp"
# catalogue = [52]
# expect = "correct"
# story = "fmax drops NaN, torch's maximum keeps it."
# detector = "Non-finite values stand where the reference has them."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void row_max(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i) {
    float m = -INFINITY;
    for (int64_t j = 0; j < N; ++j) m = std::fmax(m, X[i * N + j]);
    Y[i] = m;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_max", cpp_sources=CODE, functions="row_max", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.row_max(x.contiguous(), y)
    return y
