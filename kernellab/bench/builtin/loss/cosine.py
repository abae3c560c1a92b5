"""One minus the mean cosine similarity of paired rows."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 65536), Dim("N", 2, 16384)


def reference(a, b):
    return torch.mean(1 - torch.nn.functional.cosine_similarity(a, b, dim=1))


def inputs(M=4096, N=2048):
    a = torch.randn(M, N)
    return a, a + 0.3 * torch.randn(M, N)
