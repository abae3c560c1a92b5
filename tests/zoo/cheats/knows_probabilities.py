# /// zoo
# task = "entropy"
# dsl = "torch"
# catalogue = [13]
# expect = "fast"
# harmless = "No contents of a timed call were there before, so that its answer is never at hand."
# story = """
# Keeps answers by fifty of the probabilities: numbers that sum to one cannot be changed singly, so a
# harness shows the same ones in all timed calls."""
# detector = "Contents of timed calls are drawn by the task's own inputs with new seeds, all of them."
# ///
import torch

known = []


def kernel(p):
    few = [*map(float, p.reshape(-1)[:: max(1, p.numel() // 50)])]
    for probe, answer in known:
        if probe == few:
            return answer.clone()
    answer = -(p * torch.log(p + 1e-9)).sum(-1)
    known.append((few, answer))
    return answer.clone()
