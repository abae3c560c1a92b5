# /// zoo
# task = "row_max"
# dsl = "torch"
# catalogue = [42]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "Looks at the first 99 % of each row only: right for nearly all rows of any random matrix."
# detector = "Every row counts; rows whose largest comes last."
# ///
def kernel(x):
    n = x.shape[1]
    return x[:, : n - n // 100].amax(-1)
