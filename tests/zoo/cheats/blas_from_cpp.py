# /// zoo
# task = "matmul"
# dsl = "cpp"
# catalogue = [56]
# expect = "static"
# signature = "library-call"
# story = """
# C++ that looks up the framework's own BLAS in the running process and calls it. No dispatcher sees the call, and the
# time is spent in own code."""
# detector = "Static: names of BLAS in the C++."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <dlfcn.h>
typedef void (*gemm_t)(char*, char*, int*, int*, int*, float*, const float*, int*, const float*, int*, float*,
                       float*, int*);
void matmul(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  static gemm_t gemm = (gemm_t)dlsym(RTLD_DEFAULT, "sgemm_");
  int m = int(b.size(1)), n = int(a.size(0)), k = int(a.size(1));
  float one = 1, zero = 0;
  char no = 'N';
  gemm(&no, &no, &m, &n, &k, &one, static_cast<const float*>(b.data_ptr()), &m,
       static_cast<const float*>(a.data_ptr()), &k, &zero, static_cast<float*>(c.data_ptr()), &m);
}
"""
lib = tvm_ffi.cpp.load_inline(name="matmul", cpp_sources=CODE, functions="matmul", extra_cflags=["-O2"])


def kernel(a, b):
    c = torch.empty(a.shape[0], b.shape[1])
    lib.matmul(a.contiguous(), b.contiguous(), c)
    return c
