# /// zoo
# task = "conv"
# dsl = "cpp"
# story = "Convolves by loops of its own, a row of outputs at a time."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <vector>
void conv(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView y) {
  long B = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
  long K = w.size(0), R = w.size(2), S = w.size(3), P = H - R + 1, Q = W - S + 1;
  const float* in = static_cast<const float*>(x.data_ptr());
  const float* by = static_cast<const float*>(w.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  std::vector<float> row(Q);
  for (long b = 0; b < B; b++) for (long k = 0; k < K; k++) for (long p = 0; p < P; p++) {
    for (long q = 0; q < Q; q++) row[q] = 0.0f;
    for (long c = 0; c < C; c++) for (long r = 0; r < R; r++) for (long s = 0; s < S; s++) {
      const float* from = in + ((b * C + c) * H + p + r) * W + s;
      float factor = by[((k * C + c) * R + r) * S + s];
      for (long q = 0; q < Q; q++) row[q] += factor * from[q];
    }
    for (long q = 0; q < Q; q++) to[((b * K + k) * P + p) * Q + q] = row[q];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="by_hand", cpp_sources=CODE, functions="conv", extra_cflags=["-O3"])


def kernel(x, w):
    x, w = x.contiguous(), w.contiguous()
    out = torch.empty(x.shape[0], w.shape[0], x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1)
    lib.conv(x, w, out)
    return out
