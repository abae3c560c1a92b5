"""SwiGLU in Ascend C: copy in, compute, copy out, in tiles.

family: pointwise
task: pointwise/swiglu
sizes: M=64 N=512
note: needs an Ascend NPU with CANN; not run here. The module swiglu_npu is CODE with a pybind11 entry for the stream,
    built by CANN's CMake functions as its samples do.
"""

CODE = r"""
#include "kernel_operator.h"
using namespace AscendC;

extern "C" __global__ __aicore__ void swiglu(GM_ADDR a, GM_ADDR b, GM_ADDR y, uint32_t length, uint32_t tile) {
  TPipe pipe;
  TQue<TPosition::VECIN, 2> inA, inB;
  TQue<TPosition::VECOUT, 2> out;
  GlobalTensor<float> ga, gb, gy;
  const uint32_t share = length / GetBlockNum();
  ga.SetGlobalBuffer((__gm__ float*)a + share * GetBlockIdx(), share);
  gb.SetGlobalBuffer((__gm__ float*)b + share * GetBlockIdx(), share);
  gy.SetGlobalBuffer((__gm__ float*)y + share * GetBlockIdx(), share);
  pipe.InitBuffer(inA, 2, tile * sizeof(float));
  pipe.InitBuffer(inB, 2, tile * sizeof(float));
  pipe.InitBuffer(out, 2, tile * sizeof(float));
  for (uint32_t i = 0; i < share / tile; ++i) {
    LocalTensor<float> p = inA.AllocTensor<float>(), q = inB.AllocTensor<float>();
    DataCopy(p, ga[i * tile], tile);
    DataCopy(q, gb[i * tile], tile);
    inA.EnQue(p);
    inB.EnQue(q);
    p = inA.DeQue<float>();
    q = inB.DeQue<float>();
    LocalTensor<float> r = out.AllocTensor<float>();
    Muls(r, p, -1.0f, tile);
    Exp(r, r, tile);
    Adds(r, r, 1.0f, tile);
    Div(r, p, r, tile);
    Mul(r, r, q, tile);
    out.EnQue(r);
    inA.FreeTensor(p);
    inB.FreeTensor(q);
    r = out.DeQue<float>();
    DataCopy(gy[i * tile], r, tile);
    out.FreeTensor(r);
  }
}
"""


def kernel(a, b):
    import swiglu_npu

    return swiglu_npu.swiglu(a.contiguous(), b.contiguous())
