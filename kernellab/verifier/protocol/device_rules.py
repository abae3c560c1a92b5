"""The numbers of :mod:`kernellab.verifier.protocol.rules` that hold for CUDA devices alone, and for sealed calls."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.sandbox.caps import MIB


@dataclass(frozen=True)
class DeviceRule:
    """Limits that apply to CUDA devices in addition to the others."""

    #: largest share of the free memory for a float64 run of the reference
    double_share: float = 0.5
    #: as ``DrawnRule.long_bytes``; the free memory must be ``long_share`` times as much. A grid capped at 65,535 blocks
    #: of 1,024 loses elements only in large tensors. ``long_seconds`` is larger, because a reference dominated by
    #: launch time seems slower than it is there
    long_bytes: tuple[int, int] = (640 * MIB, 1024 * MIB)
    long_share: int = 16
    long_seconds: float = 1.0
    #: as ``DrawnRule.wide_bytes``
    wide_bytes: int = 256 * MIB
    #: elements compared at once on a device (float64 temporaries of 32 MiB each)
    piece: int = 1 << 22
    #: elements read together in their own dtype (temporaries of 128 MiB)
    glance: int = 1 << 25
    #: outputs with more elements than this are always compared in pieces
    whole: int = 1 << 24
    #: right answers of earlier cases, stored to identify a stale result: bytes of each
    answer_bytes: int = 64 * MIB
    #: processes, and seconds to wait for them, that compile ahead what a JIT makes for each size (H200, four cores:
    #: rows 2 to 4 s, products 7; an autotuner's measurements do not help another process); number of sizes from the
    #: whole ranges; and number of secret sizes that are left to the candidate
    rehearsals: int = 4
    rehearsal_seconds: float = 8.0
    rehearsed_sizes: int = 8
    unrehearsed: int = 2
    #: least number of pairs of timed calls, if the budget allows, and largest number
    least: int = 20
    most: int = 80
    #: largest difference between clocks, as a share or in seconds
    clock_share: float = 0.10
    clock_seconds: float = 5e-6
    #: one go covers enough calls to take this long together (s), up to ``calls`` of them, these bytes of arguments and
    #: outputs, the free memory divided by ``go_copies``, and ``go_most`` seconds of the slowest side
    go_seconds: float = 2e-3
    calls: int = 64
    go_bytes: int = 8192 * MIB
    go_copies: int = 8
    go_most: float = 50e-3
    #: the judge keeps the device busy for this long after a go, so that first launches hide behind it as later ones
    #: hide behind calls; only where launches take less than ``lead_share`` of the device's work, for all sides
    lead_seconds: float = 0.3e-3
    lead_share: float = 0.7
    #: cycles per second of the fastest device, so that a delay in cycles takes about the requested time
    cycles: float = 2.2e9
    #: a go is distinguishable from a handshake if its remainder is this multiple of the spread of handshakes
    resolve: float = 5.0
    calibration_calls: int = 20
    #: largest number of traced calls, and seconds after which no more begin
    traced: int = 8
    traced_seconds: float = 0.1
    #: largest number of bursts of traced calls, and the relative difference up to which two agree
    bursts: int = 4
    burst_share: float = 0.03
    #: least and longest delay of a traced call (s), which makes the order of its streams visible; and the largest
    #: difference between the device's own timestamps of two streams
    delay_least: float = 0.5e-3
    delay_most: float = 20e-3
    stamps: float = 1e-6
    #: seconds that the judge's own kernel after the answer may take longer than after a baseline's: one switch of the
    #: device between processes takes 150e-6, work left running costs one more, and medians of honest workers differ by
    #: up to ``turn_noise`` (H200). After a long go, from which the judge wakes more slowly, the limit is
    #: ``clock_share`` of it, up to ``tail_seconds``, within a slice of the device. Times above ``turn_noise`` are
    #: counted
    turn_seconds: float = 60e-6
    turn_noise: float = 30e-6
    tail_seconds: float = 200e-6
    #: before a timed call shorter than this, another call on older contents warms the host side
    warm_seconds: float = 2e-3
    #: a call whose device time is less than this share of it is launch-bound
    launch_share: float = 0.5
    #: contents with more bytes than this are made one at a time
    one_buffer_bytes: int = 2048 * MIB
    #: bytes beyond which the byte floor applies, as a multiple of the L2 cache
    floor_caches: int = 4
    #: additional resident bytes of a process with a context
    context_bytes: int = 8192 * MIB


@dataclass(frozen=True)
class SealRule:
    """Conditions for a recorded call to count as sealed."""

    #: contents on which a replay is compared before timing
    unseen: int = 2
    #: how much longer than the recorded call a replay may take: the larger of a share and seconds
    share: float = 0.10
    seconds: float = 2e-6
    #: seconds for one tool of compute-sanitizer, and bytes of its inputs
    sanitizer_seconds: float = 60.0
    sanitizer_bytes: int = 512 * MIB


SEAL = SealRule()
DEVICE = DeviceRule()
