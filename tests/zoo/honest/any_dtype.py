# /// zoo
# task = "silu_half"
# dsl = "cpp"
# story = "One template for every dtype, float inside."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
template <typename T>
static void run(const T* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float v = float(x[i]);
    y[i] = T(v / (1 + std::exp(-v)));
  }
}
void silu(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t half) {
  if (half)
    run(static_cast<const _Float16*>(x.data_ptr()), static_cast<_Float16*>(y.data_ptr()), x.numel());
  else
    run(static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()), x.numel());
}
"""
lib = tvm_ffi.cpp.load_inline(name="silu", cpp_sources=CODE, functions="silu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.silu(x, y, int(x.dtype == torch.float16))
    return y
