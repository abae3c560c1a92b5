# /// zoo
# task = "relu"
# dsl = "cpp"
# story = """
# Writes a loop of eight instructions into memory that no file is behind, and calls it, as a compiler at run time does:
# it is nobody's copy."""
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <sys/mman.h>
#include <cstring>
typedef void (*Loop)(const float*, float*, long);
static Loop make() {
  static const unsigned char code[] = {
      0x0f, 0x57, 0xc0,        // next: xorps xmm0, xmm0
      0xf3, 0x0f, 0x5f, 0x07,  // maxss xmm0, [rdi]
      0xf3, 0x0f, 0x11, 0x06,  // movss [rsi], xmm0
      0x48, 0x83, 0xc7, 0x04,  // add rdi, 4
      0x48, 0x83, 0xc6, 0x04,  // add rsi, 4
      0x48, 0xff, 0xca,        // dec rdx
      0x75, 0xe8,              // jnz next
      0xc3};
  void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(at, code, sizeof code);
  mprotect(at, 4096, PROT_READ | PROT_EXEC);
  return (Loop)at;
}
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  static Loop loop = make();
  loop(static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()), x.numel());
}
"""
lib = tvm_ffi.cpp.load_inline(name="made", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        lib.relu(x, out)
    return out
