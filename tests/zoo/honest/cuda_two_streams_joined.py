# /// zoo
# task = "relu"
# dsl = "cuda_c"
# catalogue = [1]
# where = ["gpu"]
# story = "Two halves on two streams, joined before it returns."
# ///
import torch
from cuda.core import LaunchConfig, Program, ProgramOptions, Stream, launch

CODE = r"""
extern "C" __global__ void relu(const float* x, float* y, long long n) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
    y[i] = x[i] < 0 ? 0 : x[i];
}
"""
arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
compiled = Program(CODE, "c++", options=ProgramOptions(name="kernel.cu", std="c++17", arch=arch)).compile("cubin")
relu = compiled.get_kernel("relu")
side = torch.cuda.Stream()


def stream():
    return Stream.from_handle(torch.cuda.current_stream().cuda_stream)


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    half = x.numel() // 2
    current = torch.cuda.current_stream()
    side.wait_stream(current)
    config = LaunchConfig(grid=max(1, min(65535, -(-x.numel() // 512))), block=256)
    launch(Stream.from_handle(side.cuda_stream), config, relu, x.data_ptr(), y.data_ptr(), half)
    launch(stream(), config, relu, x.data_ptr() + 4 * half, y.data_ptr() + 4 * half, x.numel() - half)
    current.wait_stream(side)
    return y
