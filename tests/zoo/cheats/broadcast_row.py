# /// zoo
# task = "row_sum"
# dsl = "torch"
# catalogue = [39]
# expect = "smoke"
# signature = "shape"
# where = ["cpu", "gpu"]
# story = "Keeps the summed dimension, so that the comparison broadcasts every row against every other."
# detector = "Shapes are exact."
# ///
def kernel(x):
    return x.sum(-1, keepdim=True)
