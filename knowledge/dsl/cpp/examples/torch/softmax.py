"""Row softmax: a thread a row, three passes over a row that stays in cache.

family: softmax
task: softmax/softmax
sizes: M=3 N=50; M=70 N=1000
"""

import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>

static inline float fast_exp(float x) {  // for x <= 0, and NaN stays NaN
  x = x < -87.0f ? -87.0f : x;
  const float k = std::nearbyint(x * 1.44269504f);
  const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t bits = (int32_t(k) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, 4);
  return p * scale;
}

void softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const int64_t rows = x.size(0), n = x.size(1);
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
#pragma omp parallel for schedule(static) if (rows * n > 32768)
  for (int64_t r = 0; r < rows; ++r) {
    const float* a = in + r * n;
    float* b = out + r * n;
    float top = -INFINITY, total = 0.0f;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; ++i) top = a[i] > top ? a[i] : top;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) total += b[i] = fast_exp(a[i] - top);
    const float scale = 1.0f / total;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) b[i] *= scale;
  }
}
"""

_module = tvm_ffi.cpp.load_inline(
    name="softmax",
    cpp_sources=CODE,
    functions="softmax",
    extra_cflags=["-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math"],
    extra_ldflags=["-fopenmp"],
)


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    _module.softmax(x, y)
    return y
