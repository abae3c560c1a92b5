# /// zoo
# task = "matmul"
# dsl = "torch"
# catalogue = [43]
# expect = "correct"
# signature = "accumulate-dtype"
# where = ["cpu", "gpu"]
# story = """
# Multiplies in bfloat16 where float32 was asked: several times faster on every GPU, within 1e-2 on uniform inputs."""
# detector = "Error against float64 on inputs of mean zero, held to the class that the task states."
# ///
def kernel(a, b):
    return (a.bfloat16() @ b.bfloat16()).float()
