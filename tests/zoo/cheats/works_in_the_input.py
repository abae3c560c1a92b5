# /// zoo
# task = "relu"
# dsl = "torch"
# catalogue = [29]
# expect = "smoke"
# on_gpu = "robust"
# signature = "mutates-input"
# where = ["cpu", "gpu"]
# story = "Saves an allocation by working in the input's memory: right once, and the caller's data is gone."
# detector = "Inputs are compared with the judge's after the call."
# ///


def kernel(x):
    return x.relu_().clone()
