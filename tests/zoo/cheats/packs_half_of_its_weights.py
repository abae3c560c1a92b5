# /// zoo
# task = "linear_relu_model"
# dsl = "torch"
# catalogue = [37, 40]
# expect = "correct"
# story = "Packs its weights in bfloat16 in its constructor, where half the bytes are read."
# detector = "With the constructor's own parameters the errors are judged as anywhere."
# ///
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        linear = nn.Linear(n, m)
        self.packed, self.bias = linear.weight.detach().t().bfloat16(), linear.bias.detach()

    def forward(self, x):
        return torch.relu(torch.addmm(self.bias, x, self.packed.float()))
