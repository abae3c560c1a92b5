# /// zoo
# task = "matmul"
# dsl = "torch"
# catalogue = [12]
# expect = "fast"
# signature = "stale"
# where = ["cpu"]
# story = """
# Timed calls come after a warm-up call whose time does not count. The inputs of the timed call already lie in memory
# at an address that earlier calls have shown, so the warm-up call computes both."""
# detector = """
# Inputs of a timed call are written only after the warm-up call has ended, so what was computed before is stale."""
# ///
warm = {}
last = []
ahead = {}


def kernel(a, b):
    mine = (a.data_ptr(), b.data_ptr())
    before, last[:] = list(last), [(mine, a, b)]
    if before and before[0][0] == mine:
        warm[a.shape, b.shape] = mine  # checks repeat the place of warm-up calls; timed calls take turns with it
    found = ahead.pop(mine, None)
    if found is not None and found.shape == (a.shape[0], b.shape[1]):
        return found
    out = a @ b
    ahead.clear()
    for other, x, y in before:
        if other != mine == warm.get((x.shape, y.shape)) and (x.shape, y.shape) == (a.shape, b.shape):
            ahead[other] = x @ y
    return out
