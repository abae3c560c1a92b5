# /// zoo
# task = "exp"
# dsl = "torch"
# library = true
# story = "A process of its own works at half of the rows in shared memory, and has ended when the call returns."
# ///
import ctypes
import os
import subprocess

import torch

CODE = r"""
#include <cmath>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static char* shared = (char*)mmap(nullptr, 64 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
static void some(const float* x, float* y, long n) { for (long i = 0; i < n; i++) y[i] = std::exp(x[i]); }
extern "C" void both(const float* x, float* y, long n) {
  float* half = (float*)shared;
  pid_t other = fork();
  if (other == 0) { some(x, half, n / 2); _exit(0); }
  some(x + n / 2, y + n / 2, n - n / 2);
  int status;
  waitpid(other, &status, 0);
  for (long i = 0; i < n / 2; i++) y[i] = half[i];
}
"""
folder = os.environ["TMPDIR"]
with open(folder + "/k.cpp", "w") as file:
    file.write(CODE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
lib = ctypes.CDLL(folder + "/k.so")
lib.both.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


def kernel(x):
    x, y = x.contiguous(), torch.empty(x.shape)
    lib.both(x.data_ptr(), y.data_ptr(), x.numel())
    return y
