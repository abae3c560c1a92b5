# /// zoo
# task = "linear_relu_model"
# dsl = "torch"
# catalogue = [36]
# expect = "build"
# where = ["cpu", "gpu"]
# story = """
# Derives from the reference's Model, which several harnesses leave in the namespace or in a module called reference.
# """
# detector = "The reference's code is not in the candidate's process."
# ///
from reference import Model


class ModelNew(Model):
    pass
