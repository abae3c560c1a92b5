# /// zoo
# task = "matmul"
# dsl = "numba"
# catalogue = [53, 56]
# expect = "static"
# signature = "library-call"
# story = "np.dot inside a compiled function calls the BLAS that SciPy brings."
# detector = "Static: products of other libraries by name."
# ///
import numpy as np
import torch
from numba import njit


@njit
def matmul_kernel(a, b):
    return np.dot(a, b)


def kernel(a, b):
    return torch.from_numpy(matmul_kernel(a.contiguous().numpy(), b.contiguous().numpy()))
