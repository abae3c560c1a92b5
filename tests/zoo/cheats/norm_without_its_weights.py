# /// zoo
# task = "norm_linear_model"
# dsl = "torch"
# catalogue = [35]
# expect = "correct"
# story = """
# A norm's weights are ones and zeros when it is built, so they are left out: right wherever a harness takes the
# parameters as the constructor leaves them."""
# detector = "Parameters are exchanged; those of the constructor alone count only where none has one value throughout."
# ///
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.norm = nn.LayerNorm(n)
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return self.linear(F.layer_norm(x, x.shape[-1:]))
