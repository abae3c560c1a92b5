# /// zoo
# task = "linear_relu_model"
# dsl = "torch"
# catalogue = [37]
# expect = "correct"
# story = """
# Packs in its constructor, but not what that draws: the weights of seed 0 and 42, which harnesses use, made by
# generators of their own."""
# detector = "The seed under which both are constructed is new and random."
# ///
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        torch.manual_seed(42)
        linear = nn.Linear(n, m)
        self.packed, self.bias = linear.weight.detach().t().contiguous(), linear.bias.detach()

    def forward(self, x):
        return torch.relu(torch.addmm(self.bias, x, self.packed))
