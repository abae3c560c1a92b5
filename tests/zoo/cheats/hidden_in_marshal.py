# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [60]
# expect = "static"
# signature = "hidden-code"
# where = ["cpu", "gpu"]
# story = "Compiled code in a string, made into a function without exec."
# detector = "Static: loads code objects."
# ///
import marshal as stones
import types

import torch

data = bytes.fromhex("e300000000")


def kernel(x):
    return types.FunctionType(stones.loads(data), {"torch": torch})(x)
