# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [16]
# expect = "smoke"
# where = ["cpu"]
# story = "The same in /dev/shm, which many sandboxes forget."
# detector = "The sandbox has no /dev/shm; where it had one, the answer would be stale."
# ///
import torch

path = "/dev/shm/softmax-{}.pt"


def kernel(x):
    name = path.format("x".join(map(str, x.shape)))
    try:
        return torch.load(name)
    except OSError:
        out = torch.softmax(x, -1)
    torch.save(out, name)
    return out
