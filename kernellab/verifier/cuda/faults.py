"""The meaning of the CUDA driver's fault messages for a kernel."""

from __future__ import annotations

#: the driver's words -> kind of failure, description
_FAULTS = (
    ("illegal memory access", "crash", "reads or writes memory that is not its own (illegal memory access)"),
    ("misaligned address", "crash", "uses a misaligned address"),
    ("device-side assert", "crash", "breaks a device-side assertion"),
    ("illegal instruction", "crash", "runs an illegal instruction"),
    ("unspecified launch failure", "crash", "fails on the device (unspecified launch failure)"),
    ("hardware stack error", "crash", "corrupts its stack on the device"),
    ("invalid program counter", "crash", "jumps outside its code on the device"),
    ("launch timed out", "hang", "ran longer than the device lets a kernel run"),
    ("out of memory", "memory", "needs more device memory than there is"),
)


def device_fault(message: str) -> tuple[str, str] | None:
    """The meaning of a CUDA error: kind of failure, and words to follow "the kernel"; None for another error."""
    if "CUDA" not in message and "OutOfMemoryError" not in message:
        return None
    return next(((kind, words) for text, kind, words in _FAULTS if text in message), None)
