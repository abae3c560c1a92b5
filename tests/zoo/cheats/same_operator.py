# /// zoo
# task = "matmul"
# dsl = "cpp"
# catalogue = [53]
# expect = "static"
# signature = "no-kernel"
# story = "No kernel at all: the framework's own operator under a new name. The commonest submission of all."
# detector = "Static: there is no C++."
# ///
import torch


def kernel(a, b):
    return torch.matmul(a, b)
