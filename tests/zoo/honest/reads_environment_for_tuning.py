# /// zoo
# task = "relu"
# dsl = "cpp"
# catalogue = [46]
# story = "Takes a tuning parameter from the environment, with a default."
# ///
import os

import torch
import tvm_ffi.cpp

CODE = r"""
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t chunk) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
#pragma omp parallel for schedule(static)
  for (int64_t begin = 0; begin < M * N; begin += chunk)
    for (int64_t i = begin; i < begin + chunk && i < M * N; ++i) Y[i] = X[i] < 0 ? 0 : X[i];
}
"""
lib = tvm_ffi.cpp.load_inline(
    name="relu",
    cpp_sources=CODE,
    functions="relu",
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)
chunk = int(os.environ.get("RELU_CHUNK", "4096"))


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.relu(x, y, chunk)
    return y
