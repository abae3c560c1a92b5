# /// zoo
# task = "relu"
# dsl = "cuda_c"
# catalogue = [14]
# expect = "correct"
# signature = "stale"
# where = ["gpu"]
# story = """
# Captures its launches once and replays them on the buffers of the first call. The input of later calls is never
# read."""
# detector = "New contents in every call."
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
graphs = {}


def stream():
    return Stream.from_handle(torch.cuda.current_stream().cuda_stream)


def kernel(x):
    key = tuple(x.shape)
    if key not in graphs:
        inside, outside = x.clone(), torch.empty_like(x)
        config = LaunchConfig(grid=min(65535, -(-x.numel() // 256)), block=256)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch(stream(), config, relu, inside.data_ptr(), outside.data_ptr(), x.numel())
        graphs[key] = graph, inside, outside
    graph, inside, outside = graphs[key]
    graph.replay()
    return outside.clone()
