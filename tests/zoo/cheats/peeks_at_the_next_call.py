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

seen = {}
ahead = {}


def kernel(a, b):
    mine = (a.data_ptr(), b.data_ptr(), a.shape, b.shape)
    found = ahead.pop(mine, None)
    seen[mine] = (a, b)
    if found is not None and len(seen) > 1:
        return found
    out = a @ b
    others = [k for k in seen if k != mine and k[2:] == mine[2:]]
    ahead.clear()
    if len(others) == 1:
        x, y = seen[others[0]]
        ahead[others[0]] = x @ y
    return out
