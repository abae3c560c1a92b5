"""The numbers of :mod:`kernellab.verifier.protocol.rules` for timed calls, of a verdict and of a ranking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kernellab.sandbox.caps import MIB


class LookChances(NamedTuple):
    """The chance that the next call has a look, until ``TIMING.frequent_looks`` exist, and afterwards."""

    first: float
    later: float


class SpareInputs(NamedTuple):
    """Inputs prepared in each round, for little data and for more than ``TIMING.renew_bytes``."""

    small: int
    large: int


@dataclass(frozen=True)
class TimingRule:
    """Limits of the timed calls. A pair is one call of the candidate and one of a baseline on the same contents."""

    #: seconds that candidate and baselines may take together
    budget: float = 1.5

    # -- how many calls

    #: pairs that every measurement has
    min_pairs: int = 6
    #: pairs from which on a measurement may end before its budget. With 16 (eight blocks, ten kinds of noise, 600 runs
    #: of each, ended by their width) the bootstrap interval covers the truth in 85 to 92 %, and the reported one, wider
    #: by the noise floor, in 95 to 100 %
    settled_pairs: int = 16
    #: pairs after which a measurement ends
    max_pairs: int = 200
    #: consecutive calls of one side before the other side's turn
    block_calls: int = 2
    #: pairs after which ``min_pairs`` undisturbed ones are no longer expected: the result then reports all pairs, with
    #: the interval of their spread, which does not narrow with more of them
    busy_pairs: int = 32
    #: sharp enough: the interval reaches at most this share beyond what it is widened by; or the rest of the budget
    #: would narrow it by less than this share on either side. Only the width ends a run, never which side is ahead:
    #: frequent checks then cannot turn noise into a difference
    sharp_share: float = 0.02
    #: or at most this part of what it is widened by
    sharp_noise_part: float = 0.5
    #: resamplings of the bootstrap interval
    bootstrap_draws: int = 2000
    #: calls that measure the handshake
    calibration_calls: int = 20
    #: seconds that a judge waits for the clock while other judges use the machine
    clock_wait_seconds: float = 120.0

    # -- contents

    #: elements of each tensor that are written only after the clock has started
    withheld_elements: int = 4
    #: seconds that drawing contents by the task's own inputs may take in addition to the budget
    drawing_seconds: float = 2.0
    #: times that contents equal to earlier ones are drawn again
    max_redraws: int = 3
    #: pairs of calls after which inputs move to another place in memory,
    renew_pairs: int = 8
    #: if they have at most this many bytes
    renew_bytes: int = 64 * MIB

    # -- checks of the outputs

    #: all outputs of timed calls are checked if the inputs of the least number of pairs have at most this many bytes;
    #: otherwise the first, the last and a secret random third
    check_all_bytes: int = 64 * MIB
    #: elements of an answer's outputs that are read before the halt, and again after it
    glance_elements: int = 12
    #: calls of other families among the timed calls, at secret places: all families for small inputs, this many for
    #: larger ones, and one beyond ``CORRECT.large_bytes``
    canary_calls: int = 3
    #: and this many at other sizes, of no more bytes
    sized_canary_calls: int = 2
    #: number of places at which additional uncounted calls are watched from outside,
    watched_places: int = 3
    #: and seconds for each
    watched_seconds: float = 0.03

    # -- looks: uncounted calls in which the program counters are sampled once

    #: looks that are made often
    frequent_looks: int = 16
    look_chances: LookChances = LookChances(1 / 2, 1 / 4)
    #: the longest time of such a call (s)
    look_seconds: float = 5.0
    spare_inputs: SpareInputs = SpareInputs(4, 2)
    #: factor on the budget while samples have found a library and are too few to estimate how often
    unsure_budget_factor: float = 4.0

    # -- warming up: uncounted calls of each side before the first counted one

    #: two sets of buffers (a warm call just before the timed one) up to this many bytes of inputs
    warm_bytes: int = 8 * MIB
    #: calls in a row that must agree,
    warm_agreeing_calls: int = 3
    #: within this ratio,
    warm_spread: float = 1.15
    #: at most this many calls,
    warm_calls: int = 16
    #: or these seconds
    warm_seconds: float = 0.3

    # -- halting a worker

    #: seconds between an answer and the halt of a worker's processes that do not count as its time: the cost of the
    #: judge's own call. If the halt takes longer and the worker used that time, it counts as the worker's
    halt_seconds: float = 150e-6
    #: seconds that a halted worker may seem to have run: the system's accounting lags
    halted_run_seconds: float = 2e-3
    #: seconds for which the judge waits without sleep in a call that does not count
    awake_seconds: float = 0.05
    #: largest share of a call attributed to the handshake: on a busy machine one echo may cost more than a call
    handshake_share: float = 0.8
    #: largest difference between the judge's clock and the worker's, as a share,
    clock_share: float = 0.10
    #: and in seconds
    clock_seconds: float = 30e-6

    # -- other work on the machine

    #: a thread takes part in a call if it runs for this share of the busiest thread's time
    team_share: float = 0.1
    #: a call is disturbed if its threads waited for a core longer than this share of it,
    waited_share: float = 0.08
    #: and longer than these seconds
    waited_seconds: float = 40e-6
    #: a side causes its own waiting if at least this share of its calls is disturbed,
    waits_often: float = 0.8
    #: and less than this share of every other side's
    waits_seldom: float = 0.1
    #: seconds per run that calls may wait for cores beyond other processes' use of them: the resolution of ticks
    unexplained_wait_seconds: float = 30e-3
    #: upper bound of the usual waiting time that counts as the waking of threads
    waking_seconds: float = 150e-6
    #: least share of a call's time that remains when its waiting for cores is subtracted
    min_unwaited_share: float = 0.05
    #: cores beyond the requested threads that a verdict reports,
    extra_cores: float = 0.3
    #: in calls that take this long together (s)
    extra_cores_seconds: float = 10e-3
    #: share of disturbed pairs, all explained by other processes' use of the cores, from which a verdict reports a
    #: condition. Unexplained pairs are never left out, so that no kernel selects its calls by waiting
    busy_share: float = 0.10
    #: share of the machine used by others from which the intervals of the figures are widened
    taken_share: float = 0.15

    # -- noise: the share by which two workers of the same code differ

    #: due to the place of their memory
    noise_floor: float = 0.02
    #: due to the pages and cores of two CPU workers, for a whole run (60 runs of one code on both sides during a test
    #: run: the speedup's standard deviation is 2 to 5 %, by size)
    placed_noise: float = 0.08
    #: where others keep all cores and caches busy
    shared_noise: float = 0.06

    # -- limits on plausible speed; anything faster is refused

    #: multiple of the best copy within the caches
    cached_factor: float = 4.0
    #: multiple of the fastest product of float32 or float64
    flops_factor: float = 1.25
    #: multiple of the fastest product of another dtype (for which a unit without a torch product may exist)
    other_flops_factor: float = 2.0
    #: a convolution may need this factor fewer products
    convolution_factor: float = 4.0
    #: seconds for which each of these rates is measured
    rate_seconds: float = 0.05
    #: share of the byte bound below which a time is not trusted without T4
    byte_floor_share: float = 0.95


@dataclass(frozen=True)
class RankRule:
    """Limits of a ranking: what a search may spend on each candidate."""

    #: seconds that the timed calls of both sides may take together
    budget: float = 0.5
    #: pairs of timed calls that every ranking has
    min_pairs: int = 4
    #: share by which the interval of the paired ratio may extend to either side to count as sharp
    sharp_share: float = 0.03
    #: seconds of the calls of each side before the first counted one
    warm_seconds: float = 0.06
    #: calls that measure the handshake
    calibration_calls: int = 8
    #: most input bytes for cases of a dynamic task; for others, float64 is used only where needed
    case_bytes: int = 1 * MIB
    #: rankings of a task that share their cases on a CPU
    case_uses: int = 16
    #: input bytes that are stored for the next ranking
    stored_case_bytes: int = 256 * MIB


TIMING = TimingRule()
RANK = RankRule()
