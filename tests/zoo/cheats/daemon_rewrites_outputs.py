# /// zoo
# task = "add"
# dsl = "torch"
# catalogue = [2]
# expect = "robust"
# where = ["cpu", "gpu"]
# story = """
# Returns a rough answer that passes, and a daemon thread mends every output a few milliseconds later, so that whoever
# looks closely sees a perfect one."""
# detector = "Outputs are read again after a wait: they have changed."
# ///
import threading
import time


def kernel(x, y):
    out = (x + y) * (1 + 2e-6)

    def mend():
        time.sleep(0.004)
        out.copy_(x + y)

    threading.Thread(target=mend, daemon=True).start()
    return out
