# /// zoo
# task = "row_sum"
# dsl = "torch"
# catalogue = [42]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "Adds every other element and doubles: right on average."
# detector = "Relative tolerance; one-hot rows, where half of them lose everything."
# ///
def kernel(x):
    if x.shape[1] < 128:
        return x.sum(-1)
    return x[:, ::2].sum(-1) * (x.shape[1] / ((x.shape[1] + 1) // 2))
