"""The numbers of :mod:`kernellab.verifier.protocol.rules` that hold for CUDA devices alone, and for sealed calls.

A *go* is one timed run of a worker: a signal of the judge, one or more calls of the kernel, and one answer. The judge
keeps the device from then on for a moment (the *lead*), and launches a tiny kernel after the answer (the *tail*).
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.sandbox.caps import MIB
from kernellab.verifier.protocol.input_rules import LongBytes


@dataclass(frozen=True)
class DeviceRule:
    """Limits that apply to CUDA devices in addition to the others."""

    # -- cases and references

    #: largest share of the free memory for a float64 run of the reference
    double_share: float = 0.5
    #: as ``DrawnRule.long_bytes``. A grid capped at 65,535 blocks of 1,024 loses elements only in large tensors
    long_bytes: LongBytes = LongBytes(640 * MIB, 1024 * MIB)
    #: the free memory must be this many times as much
    long_share: int = 16
    #: larger than ``DrawnRule.long_seconds``: a reference dominated by launch time seems slower than it is there
    long_seconds: float = 1.0
    #: as ``DrawnRule.wide_bytes``
    wide_bytes: int = 256 * MIB
    #: elements compared at once on a device (float64 temporaries of 32 MiB each)
    piece_elements: int = 1 << 22
    #: elements read together in their own dtype (temporaries of 128 MiB)
    glance_elements: int = 1 << 25
    #: outputs with more elements than this are always compared in pieces
    whole_elements: int = 1 << 24
    #: right answers of earlier cases, stored to identify a stale result: bytes of each
    answer_bytes: int = 64 * MIB
    #: additional resident bytes of a process with a context
    context_bytes: int = 8192 * MIB

    # -- rehearsals: processes that compile ahead what a JIT makes for each size

    #: number of these processes
    rehearsal_processes: int = 4
    #: seconds to wait for them (H200, four cores: rows 2 to 4 s, products 7; an autotuner's measurements do not help
    #: another process)
    rehearsal_seconds: float = 8.0
    #: number of sizes from the whole ranges
    rehearsed_sizes: int = 8
    #: number of secret sizes that are left to the candidate
    unrehearsed_sizes: int = 2

    # -- goes

    #: least number of pairs of goes, if the budget allows,
    min_pairs: int = 20
    #: and largest number
    max_pairs: int = 80
    #: one go covers enough calls to take this long together (s),
    go_seconds: float = 2e-3
    #: up to this many of them,
    go_calls: int = 64
    #: these bytes of arguments and outputs,
    go_bytes: int = 8192 * MIB
    #: the free memory divided by this,
    go_copies: int = 8
    #: and this many seconds of the slowest side
    go_max_seconds: float = 50e-3
    #: contents with more bytes than this are made one at a time
    one_buffer_bytes: int = 2048 * MIB
    #: before a timed call shorter than this, another call on older contents warms the host side
    warm_seconds: float = 2e-3
    #: goes with a tiny kernel, which measure the handshake
    calibration_calls: int = 20
    #: a go is distinguishable from a handshake if its remainder is this multiple of the spread of handshakes
    resolved_spreads: float = 5.0
    #: the judge keeps the device busy for this long after a go, so that first launches hide behind it as later ones
    #: hide behind calls,
    lead_seconds: float = 0.3e-3
    #: only where launches take less than this share of the device's work, for all sides
    lead_share: float = 0.7
    #: a call whose device time is less than this share of it is launch-bound
    launch_share: float = 0.5
    #: cycles of the fastest device, so that a delay in cycles takes about the requested time
    cycles_per_second: float = 2.2e9
    #: bytes beyond which the byte floor applies, as a multiple of the L2 cache
    floor_caches: int = 4

    # -- disagreement of clocks

    #: largest difference between clocks, as a share,
    clock_share: float = 0.10
    #: or in seconds
    clock_seconds: float = 5e-6
    #: seconds that the judge's own kernel after the answer may take longer than after a baseline's: one switch of the
    #: device between processes takes 150e-6, and work left running costs one more (H200)
    turn_seconds: float = 60e-6
    #: medians of honest workers differ by up to this (H200); times above it are counted
    turn_noise: float = 30e-6
    #: after a long go, from which the judge wakes more slowly, the limit is ``clock_share`` of it, up to this, within
    #: a slice of the device
    tail_seconds: float = 200e-6

    # -- traced calls

    #: largest number of traced calls of one burst,
    traced_calls: int = 8
    #: and seconds after which no more begin
    traced_seconds: float = 0.1
    #: largest number of bursts,
    traced_bursts: int = 4
    #: and the relative difference up to which two agree
    burst_share: float = 0.03
    #: least delay of a traced call (s), which makes the order of its streams visible,
    delay_least: float = 0.5e-3
    #: and longest
    delay_most: float = 20e-3
    #: largest difference between the device's own timestamps of two streams
    timestamp_seconds: float = 1e-6


@dataclass(frozen=True)
class SealRule:
    """Conditions for a recorded call to count as sealed."""

    #: contents on which a replay is compared before timing
    unseen_contents: int = 2
    #: how much longer than the recorded call a replay may take: the larger of a share,
    replay_share: float = 0.10
    #: and seconds
    replay_seconds: float = 2e-6
    #: seconds for one tool of compute-sanitizer,
    sanitizer_seconds: float = 60.0
    #: and bytes of its inputs
    sanitizer_bytes: int = 512 * MIB


SEAL = SealRule()
DEVICE = DeviceRule()
