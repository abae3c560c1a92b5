"""RMS norm by NVRTC: a block a row, shuffles within a warp, shared memory between warps.

family: normalisation
task: normalisation/rms_norm
sizes: M=3 N=50; M=70 N=1000
note: needs an NVIDIA GPU
"""

import numpy as np
import torch
from cuda.core import LaunchConfig, Program, ProgramOptions, Stream, launch

CODE = r"""
extern "C" __global__ void rms_norm(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y,
                                    long long n, float eps) {
  __shared__ float part[32];
  const float* row = x + blockIdx.x * n;
  float squares = 0.0f;
  for (long long i = threadIdx.x; i < n; i += blockDim.x) squares += row[i] * row[i];
  for (int step = 16; step > 0; step /= 2) squares += __shfl_down_sync(0xffffffffu, squares, step);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = squares;
  __syncthreads();
  if (threadIdx.x < 32) {
    squares = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;
    for (int step = 16; step > 0; step /= 2) squares += __shfl_down_sync(0xffffffffu, squares, step);
    if (threadIdx.x == 0) part[0] = rsqrtf(squares / n + eps);
  }
  __syncthreads();
  const float scale = part[0];
  for (long long i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = row[i] * scale * w[i];
}
"""

_arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
_program = Program(CODE, "c++", options=ProgramOptions(name="kernel.cu", std="c++17", arch=_arch))
_rms_norm = _program.compile("cubin").get_kernel("rms_norm")


def kernel(x, w, eps=1e-6):
    x, w = x.contiguous(), w.contiguous()
    y = torch.empty_like(x)
    rows, n = x.shape
    if rows and n:
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        arguments = (x.data_ptr(), w.data_ptr(), y.data_ptr(), n, np.float32(eps))
        launch(stream, LaunchConfig(grid=rows, block=256), _rms_norm, *arguments)
    return y
