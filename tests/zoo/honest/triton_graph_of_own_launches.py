# /// zoo
# task = "relu"
# dsl = "triton"
# catalogue = [14]
# where = ["gpu"]
# story = "Replays a CUDA graph of its own launches, on buffers that it fills anew in every call."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.where(value < 0, 0.0, value), mask=at < n)


graphs = {}


def kernel(x):
    """One graph for each shape; the input is copied into its buffer, the output out of it, in every call."""
    key = tuple(x.shape)
    if key not in graphs:
        inside, outside = torch.empty(x.shape, device=x.device), torch.empty(x.shape, device=x.device)
        inside.copy_(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        relu_kernel[grid](inside, outside, x.numel(), BLOCK=1024)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            relu_kernel[grid](inside, outside, x.numel(), BLOCK=1024)
        graphs[key] = graph, inside, outside
    graph, inside, outside = graphs[key]
    inside.copy_(x)
    graph.replay()
    return outside.clone()
