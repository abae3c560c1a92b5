# /// zoo
# task = "row_sum"
# dsl = "cpp"
# catalogue = [2]
# threads = 3
# story = "Threads of its own, all of which have ended when the call returns."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <thread>
#include <vector>
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  std::vector<std::thread> team;
  for (int t = 0; t < 3; ++t)
    team.emplace_back([=] {
      for (int64_t i = t; i < M; i += 3) {
        double s = 0;
        for (int64_t j = 0; j < N; ++j) s += X[i * N + j];
        Y[i] = float(s);
      }
    });
  for (auto& thread : team) thread.join();
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_sum", cpp_sources=CODE, functions="row_sum", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.row_sum(x.contiguous(), y)
    return y
