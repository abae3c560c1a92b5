# /// zoo
# task = "column_sum"
# dsl = "cuda_c"
# catalogue = [48]
# expect = "correct"
# where = ["gpu"]
# story = "Blocks add to the same places without atomics."
# detector = "Comparison; a second call that differs."
# ///
import torch
from cuda.core import LaunchConfig, Program, ProgramOptions, Stream, launch

CODE = r"""
extern "C" __global__ void column_sum(const float* x, float* y, long long m, long long n) {
  const long long j = blockIdx.x * 32 + threadIdx.x;
  float s = 0;
  for (long long i = blockIdx.y; i < m; i += gridDim.y)
    if (j < n) s += x[i * n + j];
  if (j < n) y[j] += s;
}
"""
arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
compiled = Program(CODE, "c++", options=ProgramOptions(name="kernel.cu", std="c++17", arch=arch)).compile("cubin")
column_sum = compiled.get_kernel("column_sum")


def stream():
    return Stream.from_handle(torch.cuda.current_stream().cuda_stream)


def kernel(x):
    x = x.contiguous()
    y = torch.zeros(x.shape[1], device=x.device)
    config = LaunchConfig(grid=(-(-x.shape[1] // 32), 8), block=32)
    launch(stream(), config, column_sum, x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
    return y
