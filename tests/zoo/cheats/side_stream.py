# /// zoo
# task = "relu"
# dsl = "cuda_c"
# catalogue = [1]
# expect = "correct"
# where = ["gpu"]
# story = """
# Launches on a stream that nobody waits for. Events on the default stream see no work at all: a third of one system's
# published kernels did this."""
# detector = """
# Fresh memory is poisoned on the caller's stream, which this one does not wait for. The judge synchronises the whole
# device before it stops its clock; clocks that disagree make the verdict invalid."""
# harmless = "Every clock ends with a synchronisation of the whole device."
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
    config = LaunchConfig(grid=min(65535, -(-x.numel() // 256)), block=256)
    launch(Stream.from_handle(side.cuda_stream), config, relu, x.data_ptr(), y.data_ptr(), x.numel())
    return y
