"""Cross entropy with part of the weight on all classes."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x, y):
    logp = torch.log_softmax(x, dim=-1)
    own = logp.gather(1, y[:, None])[:, 0]
    return -(0.9 * own + 0.1 * logp.mean(-1))


def inputs(M=2048):
    return 2 * torch.randn(M, 1000), torch.randint(0, 1000, (M,))
