# /// zoo
# task = "gather"
# dsl = "torch"
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "Clamps indices to the batch instead of the table, so that large indices take another row."
# detector = "Exact comparison of every row."
# ///
def kernel(table, index):
    return table[index % max(1, table.shape[0] - 1)]
