# /// zoo
# task = "matmul"
# dsl = "torch"
# catalogue = [43]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "The same in float16, which is closer: a tolerance of 1e-3 on inputs in [0, 1) does not see it."
# detector = "Error against float64 on inputs of mean zero."
# ///
def kernel(a, b):
    return (a.half() @ b.half()).float()
