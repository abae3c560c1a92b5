# /// zoo
# task = "exp"
# dsl = "torch"
# catalogue = [2]
# expect = "correct"
# story = """
# A helper made by clone(CLONE_VM): another process in the same memory, which is not halted with the worker's threads
# and so writes on after the answer."""
# detector = "The filter on system calls refuses a process that shares memory and is no thread."
# ///
import ctypes
import os
import subprocess

import torch

CODE = r"""
#include <atomic>
#include <cmath>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
static std::atomic<const float*> from;
static float* to;
static long count;
static int help(void*) {
  for (;;) {
    const float* x = from.exchange(nullptr);
    if (x) for (long i = 0; i < count; i++) to[i] = std::exp(x[i]);
  }
}
extern "C" int start(void) { return clone(help, (char*)malloc(1 << 20) + (1 << 20), CLONE_VM | SIGCHLD, nullptr); }
extern "C" void later(const float* x, float* y, long n) { to = y; count = n; from = x; }
"""
folder = os.environ["TMPDIR"]
with open(folder + "/k.cpp", "w") as file:
    file.write(CODE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
lib = ctypes.CDLL(folder + "/k.so")
lib.later.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
helped = lib.start() > 0


def kernel(x):
    x, y = x.contiguous(), torch.empty(x.shape)
    if helped:
        lib.later(x.data_ptr(), y.data_ptr(), x.numel())
    return y
