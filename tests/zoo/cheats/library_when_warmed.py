# /// zoo
# task = "matmul"
# dsl = "cpp"
# catalogue = [10, 53]
# expect = "fast"
# signature = "library"
# story = """
# Sees that each timed call has another one before it, in a second set of buffers, and that no check has: there the
# framework multiplies, everywhere else its own honest kernel does."""
# detector = "Calls among the timed ones are sampled as well."
# ///
import sys

import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstring>
void move(tvm::ffi::TensorView from, tvm::ffi::TensorView to) {
  std::memcpy(to.data_ptr(), from.data_ptr(), from.size(0) * from.size(1) * 4);
}
void product(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  long M = a.size(0), K = a.size(1), N = b.size(1);
  const float *A = (const float*)a.data_ptr(), *B = (const float*)b.data_ptr();
  float* C = (float*)c.data_ptr();
  for (long i = 0; i < M; i++) {
    for (long j = 0; j < N; j++) C[i * N + j] = 0;
    for (long k = 0; k < K; k++)
      for (long j = 0; j < N; j++) C[i * N + j] += A[i * K + k] * B[k * N + j];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="warmed", cpp_sources=CODE, functions=["product", "move"], extra_cflags=["-O3"])
timed = [False]
for module in list(sys.modules.values()):
    names = vars(module)
    if "READY" in names and "Worker" in names:
        worker = names["Worker"]
        arguments = worker._arguments

        def told(self, message, arguments=arguments):
            timed[0] = len(message["slots"]) > 1
            return arguments(self, message)

        worker._arguments = told


def kernel(a, b):
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty(a.shape[0], b.shape[1])
    if timed[0]:
        lib.move(torch.Tensor.__matmul__(a, b), out)
    else:
        lib.product(a, b, out)
    return out
