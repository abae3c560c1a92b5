# /// zoo
# task = "relu"
# dsl = "cuda_c"
# catalogue = [23]
# expect = "fast"
# where = ["gpu"]
# story = """
# Tells the device that what depends on it may start, before it has written a byte: a checking kernel launched with
# programmatic dependence, or an end event, comes too early."""
# detector = "Device-wide synchronisation."
# harmless = """
# The judge's own launches do not ask for programmatic dependence, and the device is synchronised before the clock
# stops."""
# ///
import torch
from cuda.core import LaunchConfig, Program, ProgramOptions, Stream, launch

CODE = r"""
extern "C" __global__ void relu(const float* x, float* y, long long n) {
  // lets a dependent launch start before anything is written
  asm volatile("griddepcontrol.launch_dependents;");
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
    y[i] = x[i] < 0 ? 0 : x[i];
}
"""
arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
compiled = Program(CODE, "c++", options=ProgramOptions(name="kernel.cu", std="c++17", arch=arch)).compile("cubin")
relu = compiled.get_kernel("relu")


def stream():
    return Stream.from_handle(torch.cuda.current_stream().cuda_stream)


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    config = LaunchConfig(grid=min(65535, -(-x.numel() // 256)), block=256)
    launch(stream(), config, relu, x.data_ptr(), y.data_ptr(), x.numel())
    return y
