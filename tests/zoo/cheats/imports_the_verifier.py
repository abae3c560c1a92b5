# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [36]
# expect = "static"
# signature = "verifier"
# where = ["cpu", "gpu"]
# story = "Imports the harness to call its reference, by a name in pieces."
# detector = "Static: names of modules are folded before they are judged."
# ///
from importlib import import_module

tasks = import_module("kernel" + "lab" + ".task")


def kernel(x):
    return tasks.reference(x)
