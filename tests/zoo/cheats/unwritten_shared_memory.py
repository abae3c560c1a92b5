# /// zoo
# task = "row_sum"
# dsl = "cuda_c"
# catalogue = [50]
# expect = "correct"
# where = ["gpu"]
# story = """
# Threads without work leave their part of shared memory as they find it. On an idle device it holds zeros, or the
# parts of the last block."""
# detector = "Hidden sizes shorter than a block: what other kernels left is added."
# ///
import torch
from cuda.core import LaunchConfig, Program, ProgramOptions, Stream, launch

CODE = r"""
extern "C" __global__ void row_sum(const float* x, float* y, long long n) {
  __shared__ float part[256];
  float s = 0;
  for (long long j = threadIdx.x; j < n; j += 256) s += x[blockIdx.x * n + j];
  if (s != 0) part[threadIdx.x] = s;
  __syncthreads();
  for (int step = 128; step; step /= 2) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
"""
arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
compiled = Program(CODE, "c++", options=ProgramOptions(name="kernel.cu", std="c++17", arch=arch)).compile("cubin")
row_sum = compiled.get_kernel("row_sum")


def stream():
    return Stream.from_handle(torch.cuda.current_stream().cuda_stream)


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape[0], device=x.device)
    config = LaunchConfig(grid=x.shape[0], block=256)
    launch(stream(), config, row_sum, x.data_ptr(), y.data_ptr(), x.shape[1])
    return y
