# /// zoo
# task = "matmul"
# dsl = "torch"
# catalogue = [11]
# expect = "fast"
# where = ["cpu", "gpu"]
# story = """
# A counter with more patience: after many calls it computes the first half of the rows only and takes the rest from
# the last answer."""
# detector = "Outputs of timed calls are checked, each whole."
# ///

calls = [0]
last = {}


def kernel(a, b):
    key = (a.shape, b.shape)
    calls[0] = calls[0] + 1 if key in last else 0
    if calls[0] < (85 if a.is_cuda else 38):
        last.clear()
        last[key] = a @ b
        return last[key].clone()
    half = a.shape[0] // 2
    out = last[key].clone()
    out[:half] = a[:half] @ b
    return out
