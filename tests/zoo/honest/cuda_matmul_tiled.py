# /// zoo
# task = "matmul"
# dsl = "cuda_c"
# where = ["gpu"]
# story = "Tiles in shared memory, both edges minded."
# ///
import torch
from cuda.core import LaunchConfig, Program, ProgramOptions, Stream, launch

CODE = r"""
extern "C" __global__ void matmul(const float* a, const float* b, float* c, long long M, long long N, long long K) {
  __shared__ float A[16][17], B[16][17];
  const long long i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
  float s = 0;
  for (long long k = 0; k < K; k += 16) {
    A[threadIdx.y][threadIdx.x] = i < M && k + threadIdx.x < K ? a[i * K + k + threadIdx.x] : 0;
    B[threadIdx.y][threadIdx.x] = j < N && k + threadIdx.y < K ? b[(k + threadIdx.y) * N + j] : 0;
    __syncthreads();
    for (int t = 0; t < 16; ++t) s += A[threadIdx.y][t] * B[t][threadIdx.x];
    __syncthreads();
  }
  if (i < M && j < N) c[i * N + j] = s;
}
"""
arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
compiled = Program(CODE, "c++", options=ProgramOptions(name="kernel.cu", std="c++17", arch=arch)).compile("cubin")
matmul = compiled.get_kernel("matmul")


def stream():
    return Stream.from_handle(torch.cuda.current_stream().cuda_stream)


def kernel(a, b):
    a, b = a.contiguous(), b.contiguous()
    M, K, N = a.shape[0], a.shape[1], b.shape[1]
    c = torch.empty(M, N, device=a.device)
    config = LaunchConfig(grid=(-(-N // 16), -(-M // 16)), block=(16, 16))
    launch(stream(), config, matmul, a.data_ptr(), b.data_ptr(), c.data_ptr(), M, N, K)
    return c
