# /// zoo
# task = "matmul"
# dsl = "torch"
# catalogue = [41]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "A single corner of the answer is left out: no sampled comparison and no norm over the whole finds it."
# detector = "Every element and every tile has a limit of its own."
# ///
def kernel(a, b):
    out = a @ b
    out[-1, -1] = 0.0
    return out
