# /// zoo
# task = "reordered"
# dsl = "torch"
# catalogue = [13]
# expect = "fast"
# harmless = "No contents of a timed call were there before, so that its answer is never at hand."
# story = """
# Keeps answers by some of the numbers and places: a harness that draws integers for a while only
# shows old ones later."""
# detector = "Contents of timed calls are drawn by the task's own inputs with new seeds, all of them."
# ///

known = []


def kernel(x, i):
    few = [*map(float, x.reshape(-1)[:: max(1, x.numel() // 50)]), *map(int, i[:9])]
    for probe, answer in known:
        if probe == few:
            return answer.clone()
    answer = x[:, i].exp()
    known.append((few, answer))
    return answer.clone()
