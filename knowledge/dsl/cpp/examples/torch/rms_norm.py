"""RMS norm: one read of the row for the sum of squares, one from cache for the result.

family: normalisation
task: normalisation/rms_norm
sizes: M=3 N=50; M=70 N=1000
"""

import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
#include <cstdint>

void rms_norm(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView y, double eps) {
  const int64_t rows = x.size(0), n = x.size(1);
  const float* in = static_cast<const float*>(x.data_ptr());
  const float* weight = static_cast<const float*>(w.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
#pragma omp parallel for schedule(static) if (rows * n > 32768)
  for (int64_t r = 0; r < rows; ++r) {
    const float* a = in + r * n;
    float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; ++i) squares += a[i] * a[i];
    const float scale = 1.0f / std::sqrt(squares / float(n) + float(eps));
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[r * n + i] = a[i] * scale * weight[i];
  }
}
"""

_module = tvm_ffi.cpp.load_inline(
    name="rms_norm",
    cpp_sources=CODE,
    functions="rms_norm",
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


def kernel(x, w, eps=1e-6):
    x, w = x.contiguous(), w.contiguous()
    y = torch.empty_like(x)
    _module.rms_norm(x, w, y, eps)
    return y
