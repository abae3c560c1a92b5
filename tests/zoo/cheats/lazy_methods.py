# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [4]
# expect = "static"
# signature = "patch"
# where = ["cpu", "gpu"]
# story = """
# A check for the exact type made subclasses useless, so the methods of one genuine tensor are replaced: whoever asks
# for its address pays for the work."""
# detector = "Static: assigns to a method by which tensors are read."
# ///
import torch


def kernel(x):
    out = torch.empty_like(x)
    address = out.data_ptr

    def data_ptr():
        out.copy_(torch.softmax(x, -1))
        return address()

    out.data_ptr = data_ptr
    return out
