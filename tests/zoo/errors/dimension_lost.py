# /// zoo
# task = "row_max"
# dsl = "torch"
# expect = "smoke"
# signature = "shape"
# where = ["cpu", "gpu"]
# story = "keepdim where none was asked for."
# detector = "Shapes are exact."
# ///
def kernel(x):
    return x.amax(-1, keepdim=True)
