# /// zoo
# task = "relu"
# dsl = "cpp"
# catalogue = [2]
# expect = "correct"
# story = "The same with a detached std::thread, because a count of Python's threads does not see it."
# detector = "Outputs are read the moment the call returns."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <chrono>
#include <thread>
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.numel();
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0 ? in[i] : 0;
  }).detach();
}
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.relu(x, y)
    return y
