# /// zoo
# task = "matmul"
# dsl = "torch"
# catalogue = [7, 12]
# expect = "fast"
# story = """
# Replaces the worker's own loop around a timed call: as soon as the last number of the next call's inputs has changed,
# their product is made, and the go is awaited only then. The answer proves the go, and has cost nothing after it."""
# detector = "The worker is halted while contents are written, and some of their elements follow the go."
# harmless = "What it computes early is computed while the clock runs."
# ///
import os
import sys
import time

main = next(m for n, m in sys.modules.items() if n.endswith("orker.calls"))
Worker, place = main.Worker, main.place
honest = Worker._timed


def eager(self, *given):
    args = next(g for g in given if isinstance(g, list))
    if len(args) < 2 or self.role != "candidate":
        return honest(self, *given)
    words = self.control.words
    for a, b in args:
        before, go = b.view(-1)[-1].item(), words[0]
        os.eventfd_write(self.done, 1)
        end = time.perf_counter() + 0.05
        while b.view(-1)[-1].item() == before and time.perf_counter() < end:
            pass
        out = a @ b
        while words[0] == go:
            pass
        self.control.write_output(0, *place(out))
        self.control.write_done(1, 1e-6)
        words[1] = words[0]
        os.eventfd_write(self.done, 1 << 32)
        self.last_outputs = [[out]]


type.__setattr__(Worker, "_timed", eager)


def kernel(a, b):
    return a @ b
