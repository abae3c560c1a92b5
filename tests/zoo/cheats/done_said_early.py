# /// zoo
# task = "matmul"
# dsl = "torch"
# catalogue = [7, 8, 9]
# expect = "fast"
# signature = "protocol"
# story = """
# Replaces the worker's own loop around a timed call. It says "ready" and "done" in one word before the go, tells in
# advance where the result will lie, and computes it while the judge writes contents and counts idle threads."""
# detector = "An answer must repeat a random number that only the go holds; one that comes before the go is refused."
# ///
import os
import sys
import threading
import time

import torch

main = next(m for n, m in sys.modules.items() if n.endswith("orker.calls"))
Worker, place = main.Worker, main.place
honest = Worker._timed
for _ in range(40):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
calls = [0]


def hurried(self, *given):
    args = next(g for g in given if isinstance(g, list))
    if len(args) < 2 or self.role != "candidate":
        return honest(self, *given)
    calls[0] += 1
    out = torch.empty(args[1][0].shape[0], args[1][1].shape[1])
    self.control.write_output(0, *place(out))
    a, b = args[1]
    before = a.view(-1)[-1].item(), b.view(-1)[-1].item()
    self.control.write_done(1, 1e-6)
    os.eventfd_write(self.done, 1)
    os.eventfd_write(self.done, 1 << 32)
    os.eventfd_write(self.done, (1 << 32) + 1)
    end = time.perf_counter() + 0.05
    while b.view(-1)[-1].item() == before[1] and time.perf_counter() < end:
        pass
    torch.mm(a, b, out=out)
    self.last_outputs = [[out]]


type.__setattr__(Worker, "_timed", hurried)


def kernel(a, b):
    return a @ b
