# /// zoo
# task = "linear_relu_model"
# dsl = "torch"
# catalogue = [37]
# expect = "correct"
# signature = "all-zero"
# where = ["cpu", "gpu"]
# story = "Sets the parameters to zero in its first call; where reference and candidate share them, both give zeros."
# detector = "Parameters are inputs like others, held by the judge."
# ///
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        for parameter in self.parameters():
            parameter.data.zero_()
        return torch.relu(self.linear(x))
