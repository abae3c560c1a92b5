# /// zoo
# task = "linear"
# dsl = "torch"
# catalogue = [15]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = """
# Transposes the weights in the first call and keeps the copy for good, though this task says nothing of weights that
# stay."""
# detector = "The weights' contents change between calls."
# ///

packed = {}


def kernel(x, w):
    key = (w.data_ptr(), w.shape)
    if key not in packed:
        packed[key] = w.t().contiguous()
    return x @ packed[key]
