# /// zoo
# task = "row_sum"
# dsl = "torch"
# catalogue = [42]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "Adds the first 99 % of each row."
# detector = "Relative tolerance on inputs of mean zero; heavy tails."
# ///
def kernel(x):
    n = x.shape[1]
    return x[:, : n - n // 100].sum(-1)
