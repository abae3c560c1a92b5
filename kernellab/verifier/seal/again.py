"""``-m kernellab.verifier.seal.again FOLDER ...``: replays each recorded call once, for a tool that watches it.

Every buffer is a separate allocation, so that the tool knows where it ends, and those that the call allocates start as
NaN. Uses no host code of a candidate, and no torch: compute-sanitizer intercepts each call of the driver.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from kernellab.verifier.seal import bundle
from kernellab.verifier.seal.driver import Driver
from kernellab.verifier.seal.replay import OnDevice

#: contents of argument N, next to the bundle; and a file that exists when all is done
CONTENT = "input-{}"
DONE = "done"
#: bytes that are NaN in each number format that has one
_POISON = 0xFF


def main() -> None:
    driver = Driver()
    context = ctypes.c_void_p()
    driver.do("cuInit", 0)
    driver.do("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    driver.do("cuCtxSetCurrent", context)
    for folder in map(Path, sys.argv[1:]):
        _do(driver, folder)
    (Path(sys.argv[1]) / DONE).touch()


def _do(driver: Driver, folder: Path) -> None:
    recorded, binaries = bundle.read(folder)
    steps = OnDevice(recorded, binaries)
    addresses = []
    for buffer in recorded.buffers:
        address, size = ctypes.c_uint64(), ctypes.c_size_t(max(buffer.bytes, 1))
        driver.do("cuMemAlloc_v2", ctypes.byref(address), size)
        if buffer.input is None:
            driver.do("cuMemsetD8_v2", address, ctypes.c_ubyte(_POISON), size)
        elif buffer.bytes:
            content = (folder / CONTENT.format(buffer.input)).read_bytes()
            driver.do("cuMemcpyHtoD_v2", address, ctypes.c_char_p(content), ctypes.c_size_t(len(content)))
        addresses.append(address.value)
    stream = ctypes.c_void_p()
    driver.do("cuStreamCreate", ctypes.byref(stream), 1)
    for act in map(steps.act, recorded.steps):
        act(addresses, stream.value or 0)
    driver.do("cuCtxSynchronize")
    for at in addresses:
        driver.do("cuMemFree_v2", ctypes.c_uint64(at))


if __name__ == "__main__":
    main()
