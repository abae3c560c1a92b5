# /// zoo
# task = "row_max_special"
# dsl = "cpp"
# catalogue = [52]
# expect = "correct"
# story = """
# The source treats NaN rightly; -ffast-math lets the compiler assume that there is none. The flag also changes the
# processor's mode for the whole process."""
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
    float m = X[i * N];
    for (int64_t j = 1; j < N; ++j)
      if (X[i * N + j] > m || X[i * N + j] != X[i * N + j]) m = X[i * N + j];
    Y[i] = m;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(
    name="row_max", cpp_sources=CODE, functions="row_max", extra_cflags=["-O3", "-ffast-math"]
)


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.row_max(x.contiguous(), y)
    return y
