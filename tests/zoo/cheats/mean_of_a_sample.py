# /// zoo
# task = "mse"
# dsl = "torch"
# catalogue = [33, 42]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "Looks at every thirtieth row: close enough for a loose tolerance on uniform numbers."
# detector = "Relative tolerance; heavy tails, where what was left out decides."
# ///


def kernel(x, y):
    return ((x[::30] - y[::30]) ** 2).mean()
