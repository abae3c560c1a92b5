# /// zoo
# task = "relu"
# dsl = "cuda_c"
# catalogue = [1, 2, 23]
# expect = "correct"
# where = ["gpu"]
# story = """
# A host thread launches the kernel when the call has long returned; the device is idle when it is synchronised."""
# detector = "Outputs are read after the call, in the order in which a user would read them."
# ///
import threading
import time

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

    def later():
        time.sleep(0.005)
        config = LaunchConfig(grid=min(65535, -(-x.numel() // 256)), block=256)
        launch(Stream.from_handle(side.cuda_stream), config, relu, x.data_ptr(), y.data_ptr(), x.numel())

    threading.Thread(target=later).start()
    return y
