#include <cstdint>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

static void add(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView z) {
  const float* X = static_cast<const float*>(x.data_ptr());
  const float* Y = static_cast<const float*>(y.data_ptr());
  float* Z = static_cast<float*>(z.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) Z[i] = X[i] + Y[i];
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(add, add);
