# /// zoo
# task = "gaps"
# dsl = "torch"
# catalogue = [13]
# expect = "fast"
# harmless = "No contents of a timed call were there before, so that its answer is never at hand."
# story = """
# Keeps answers by fifty of the numbers: rows that must stay sorted are shown again."""
# detector = "Contents of timed calls are drawn by the task's own inputs with new seeds, all of them."
# ///

known = []


def kernel(x):
    few = [*map(float, x.reshape(-1)[:: max(1, x.numel() // 50)])]
    for probe, answer in known:
        if probe == few:
            return answer.clone()
    answer = x.diff(dim=-1).square()
    known.append((few, answer))
    return answer.clone()
