# /// zoo
# task = "relu_of_rand"
# dsl = "torch"
# catalogue = [30]
# expect = "robust"
# signature = "aliases-input"
# where = ["cpu", "gpu"]
# story = "ReLU of values in [0, 1) is the value itself: four tasks of a well known suite accept this."
# detector = "An output that is a view of an input is refused even where its values are right."
# ///
def kernel(x):
    return x
