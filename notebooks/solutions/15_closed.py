"""Each hole of judge.py closed: a function of the same name, in the place of the one there."""

import os
import random
import struct

_rows, _columns = random.randint(ROWS + 1, ROWS + 40), random.randint(COLUMNS - 90, COLUMNS + 90)


def shape():
    return _rows, _columns


def numbers(call, rows, columns):
    return np.random.default_rng().random((rows, columns))


def clean(out):
    out.fill(7.0)  # no softmax has it


def expected(x, before):
    return before


def limit(want):
    return 1e-5 * abs(want)


def right(error, most):
    return bool((error <= most).all())


def excused(error):
    return False


def compared(call):
    return True


def seconds(told, measured):
    return measured


def start(source):
    (ask, go), (told, tell) = os.pipe(), os.pipe()
    if os.fork() == 0:
        # the kernel's process keeps its two pipes and nothing else of the judge's
        os.closerange(0, ask)
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in (ask, tell):
                try:
                    os.close(int(name))
                except OSError:
                    pass
        try:
            names = {}
            exec(source, names)
            while len(size := os.read(ask, 8)) == 8:
                rows, columns = struct.unpack("ii", size)
                try:
                    took = timed(names["kernel"], array(0, rows, columns), array(1, rows, columns))
                except Exception:
                    took = math.nan
                # a number of eight bytes: what could hold a program (a pickle) is never read from a candidate
                os.write(tell, struct.pack("d", took))
        finally:
            os._exit(1)
    os.close(ask), os.close(tell)

    def call(x, out):
        os.write(go, struct.pack("ii", *x.shape))
        answer = os.read(told, 8)
        if len(answer) < 8:
            raise RuntimeError("the kernel's process ended")
        (took,) = struct.unpack("d", answer)
        if math.isnan(took):
            raise RuntimeError("the kernel raised an error")
        return took

    return call
