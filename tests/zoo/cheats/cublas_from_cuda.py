# /// zoo
# task = "matmul"
# dsl = "cuda_c"
# catalogue = [56]
# expect = "static"
# signature = "library-call"
# where = ["gpu"]
# story = "A .cu file that calls cuBLAS, with a kernel for show."
# detector = "Static: names of cuBLAS; the share of device time in own kernels."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cublas_v2.h>
#include <cuda_runtime.h>
__global__ void touch(float* y) { if (threadIdx.x == 0) y[0] += 0.0f; }
void matmul(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  static cublasHandle_t handle = [] { cublasHandle_t h; cublasCreate(&h); return h; }();
  cudaStream_t stream = static_cast<cudaStream_t>(
      TVMFFIEnvGetStream(a.device().device_type, a.device().device_id));
  cublasSetStream(handle, stream);
  const int m = int(b.size(1)), n = int(a.size(0)), k = int(a.size(1));
  const float one = 1, zero = 0;
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, static_cast<const float*>(b.data_ptr()), m,
              static_cast<const float*>(a.data_ptr()), k, &zero, static_cast<float*>(c.data_ptr()), m);
  touch<<<1, 32, 0, stream>>>(static_cast<float*>(c.data_ptr()));
}
"""
lib = tvm_ffi.cpp.load_inline(name="matmul", cuda_sources=CODE, functions="matmul", extra_ldflags=["-lcublas"])


def kernel(a, b):
    c = torch.empty(a.shape[0], b.shape[1], device=a.device)
    lib.matmul(a.contiguous(), b.contiguous(), c)
    return c
