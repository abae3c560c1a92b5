"""A judge of kernels that can be fooled. Read it, then attack it.

A kernel is a function `kernel(x, out)`: it writes the softmax of each row of x into out. The judge accepts one that is
right and at least twice as fast as the reference. Each of the ten functions in the middle has a hole.
"""

import math
import mmap
import time

import numpy as np

CALLS, ROWS, COLUMNS, FASTER = 6, 128, 512, 2.0
CLOCK = time.perf_counter  # the judge's clock
ARENA = mmap.mmap(-1, 2 * 8 * 4 * ROWS * COLUMNS)  # x and out lie here, side by side


def array(place, rows, columns):
    """A float64 array in the arena: x is at place 0, out at place 1."""
    return np.frombuffer(ARENA, np.float64, rows * columns, place * 8 * 4 * ROWS * COLUMNS).reshape(rows, columns)


def reference(x):
    """Softmax of each row, one number after another: slow on purpose."""
    answer = []
    for row in x.tolist():
        top = max(row)
        weights = [math.exp(value - top) for value in row]
        total = sum(weights)
        answer.append([weight / total for weight in weights])
    return np.array(answer)


def timed(kernel, x, out):
    """Calls the kernel, and tells how long that took."""
    start = time.perf_counter()
    kernel(x, out)
    return time.perf_counter() - start


# ---- ten functions, ten holes -------------------------------------------------------------------------------------


def shape():
    """Rows and columns of this test."""
    return ROWS, COLUMNS


def numbers(call, rows, columns):
    """The contents of x in this call."""
    return np.random.default_rng(1).random((rows, columns))


def clean(out):
    """What is done with the output's memory, in which the reference has worked, before the kernel gets it."""


def expected(x, before):
    """The right answer: x as it is after the kernel's call, and the reference's answer from before it."""
    return reference(x)


def limit(want):
    """How far an element may be off."""
    return 0.05


def right(error, most):
    """Is every element near enough?"""
    return not (error > most).any()


def excused(error):
    """A call that ended with an error: is it left out?"""
    return True


def compared(call):
    """Is the output of this call compared, or is the call only timed?"""
    return call == 0


def seconds(told, measured):
    """How long the call took: as the side of the kernel told it, or as the judge measured it."""
    return told


def start(source):
    """Runs the source, and gives a function of x and out that calls its kernel and returns the seconds it took."""
    names = {}
    exec(source, names)
    return lambda x, out: timed(names["kernel"], x, out)


# ---- the judge ----------------------------------------------------------------------------------------------------


def judge(source):
    """(accepted, why)"""
    call_kernel = start(source)
    rows, columns = shape()
    slow, fast = [], []
    for call in range(CALLS):
        x, out = array(0, rows, columns), array(1, rows, columns)
        x[:] = numbers(call, rows, columns)
        begin = CLOCK()
        out[:] = reference(x)
        slow.append(CLOCK() - begin)
        before = out.copy()
        clean(out)
        begin = CLOCK()
        try:
            told = call_kernel(x, out)
        except Exception as error:
            if not excused(error):
                return False, f"call {call} ended with {type(error).__name__}: {error}"
            fast.append(CLOCK() - begin)
            continue
        fast.append(seconds(told, CLOCK() - begin))
        got = out.copy()
        if compared(call):
            want = expected(x, before)
            if not right(abs(got - want), limit(want)):
                return False, f"call {call}: the output is wrong"
    times = min(slow) / max(min(fast), 1e-9)
    if times < FASTER:
        return False, f"it is {times:.1f} times as fast as the reference, and {FASTER:g} times is asked"
    return True, "it is right and fast enough"
