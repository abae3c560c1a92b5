# /// zoo
# task = "linear_relu_model"
# dsl = "torch"
# catalogue = [35, 37]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "Takes no weights from anybody: makes them anew with the seed that the reference was made with."
# detector = "Parameters are drawn anew and handed over by load_state_dict."
# ///
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(n, m)

    def load_state_dict(self, state, strict=True):
        return None

    def forward(self, x):
        return torch.relu(self.linear(x))
