# /// zoo
# task = "log_softmax"
# dsl = "torch"
# catalogue = [52]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "softmax, then a logarithm: minus infinity as soon as one value underflows."
# detector = "Inputs of large scale."
# ///
import torch


def kernel(x):
    return torch.log(torch.softmax(x, -1))
