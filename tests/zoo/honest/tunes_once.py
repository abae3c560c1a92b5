# /// zoo
# task = "relu"
# dsl = "cpp"
# catalogue = [10, 22]
# story = """
# Times two variants in its first call and keeps the faster: it reads the clock, and the first call is another than
# the rest."""
# ///
import time

import torch
import tvm_ffi.cpp

CODE = r"""
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t unroll) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  int64_t i = 0;
  if (unroll == 4)
    for (; i + 4 <= M * N; i += 4)
      for (int k = 0; k < 4; ++k) Y[i + k] = X[i + k] < 0 ? 0 : X[i + k];
  for (; i < M * N; ++i) Y[i] = X[i] < 0 ? 0 : X[i];
}
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])
best = []


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    if not best:
        times = {}
        for unroll in (1, 4):
            start = time.perf_counter()
            lib.relu(x, y, unroll)
            times[unroll] = time.perf_counter() - start
        best.append(min(times, key=times.get))
    lib.relu(x, y, best[0])
    return y
