# /// zoo
# task = "transpose"
# dsl = "cpp"
# story = "Tiles, with both edges minded."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void add_one(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i0 = 0; i0 < M; i0 += 16)
    for (int64_t j0 = 0; j0 < N; j0 += 16)
      for (int64_t i = i0; i < i0 + 16 && i < M; ++i)
        for (int64_t j = j0; j < j0 + 16 && j < N; ++j) Y[j * M + i] = X[i * N + j] + 1;
}
"""
lib = tvm_ffi.cpp.load_inline(name="add_one", cpp_sources=CODE, functions="add_one", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape[1], x.shape[0])
    lib.add_one(x, y)
    return y
