# /// zoo
# task = "row_sum"
# dsl = "cpp"
# catalogue = [13]
# story = """
# Keeps a workspace between calls by shape, and writes all of it anew each time. Looks like a cache of results."""
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView parts) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  float* P = static_cast<float*>(parts.data_ptr());
  for (int64_t i = 0; i < M; ++i) {
    for (int p = 0; p < 4; ++p) P[i * 4 + p] = 0;
    for (int64_t j = 0; j < N; ++j) P[i * 4 + j % 4] += X[i * N + j];
  }
  for (int64_t i = 0; i < M; ++i) Y[i] = (P[i * 4] + P[i * 4 + 1]) + (P[i * 4 + 2] + P[i * 4 + 3]);
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_sum", cpp_sources=CODE, functions="row_sum", extra_cflags=["-O2"])
workspace = {}


def kernel(x):
    if x.shape[0] not in workspace:
        workspace[x.shape[0]] = torch.empty(x.shape[0], 4)
    y = torch.empty(x.shape[0])
    lib.row_sum(x.contiguous(), y, workspace[x.shape[0]])
    return y
