"""All numbers that a verdict depends on, in one place: one frozen record for each kind of check.

Readers use the records (``TIMING.min_pairs``), never a copied number: :mod:`kernellab.memory.stale` hashes all of them,
so that figures of another set of numbers are known as such. Names say the unit (``_bytes``, ``_seconds``) or the kind:
``_share`` is a fraction from 0 to 1, ``_factor`` multiplies a limit, a plain count has no ending. The numbers for
inputs are in :mod:`.input_rules`, those for CUDA devices in :mod:`.device_rules`.

The floors and tau of the error rule follow the AKG paper (eq. 2-3) and measurements on float64 references. Each limit
should separate an honest kernel from a dishonest one. A number without a stated measurement was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kernellab.sandbox.caps import MIB
from kernellab.verifier.protocol.device_rules import DEVICE as DEVICE
from kernellab.verifier.protocol.device_rules import SEAL as SEAL
from kernellab.verifier.protocol.input_rules import COMBINED as COMBINED
from kernellab.verifier.protocol.input_rules import DRAWN as DRAWN
from kernellab.verifier.protocol.input_rules import EDGES as EDGES


@dataclass(frozen=True)
class ErrorRule:
    """Limits of the comparison with the reference, by dtype."""

    #: eq. 2-3: at most a fraction tau of the elements may have a relative error above tau
    tau: Mapping[str, float] = field(
        default_factory=lambda: {"float64": 1e-3, "float32": 1e-3, "float16": 4e-3, "bfloat16": 3e-2, "float8": 1e-1}
    )
    #: relative Frobenius error against float64 that is always allowed
    floor: Mapping[str, float] = field(
        default_factory=lambda: {"float64": 1e-10, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2, "float8": 6e-2}
    )
    #: the floor of an output whose operations may run in TF32
    floor_tf32: float = 2e-3
    #: tau of such an output: in a TF32 product of normal numbers, 17 % of the elements are off by more than 1e-3 (some
    #: sums nearly cancel), and 0.9 % by more than 2e-2
    tau_tf32: float = 2e-2
    #: KernelBench's float32 check (torch.allclose with these two), on the task's own inputs where kernels are strict
    close_rtol: float = 1e-4
    close_atol: float = 1e-4
    #: multiple of the framework's own error against float64 that is allowed
    framework_factor: float = 8.0
    #: "not farther than eager": the same roundings in another summation order (H200: 0.92 to 1.002 times eager's error)
    eager_error_factor: float = 1.1
    #: largest share of elements for which a cut in the formula may explain a difference as rounding
    cut_share: float = 0.05
    #: elements that may be wrong: this multiple of those without a correct digit in the reference at the declared dtype
    chaos_factor: int = 4
    #: side of the square tiles in which errors are summed
    tile_size: int = 64
    #: a tile may be off by this many floors
    tile_factor: float = 10.0
    #: a tile's norm counts as at least this share of the whole output's rms
    tile_norm_share: float = 1e-3
    #: an element may be off by this many floors of |reference| + rms(reference)
    element_factor: float = 100.0
    #: upper bound of that error; neighbours in float8 differ by a quarter, and a missing element is wrong by all of it
    element_error_max: Mapping[str, float] = field(default_factory=lambda: {"float8": 0.5})
    #: floor on inputs whose mean is far larger than their spread: two passes of plain f32 sums are off by about 1e-3
    #: there, one pass (E[x^2] - E[x]^2) by more than 3e-2
    offset_floor: float = 8e-3
    #: tau on the same inputs
    offset_tau: float = 3e-2
    #: a sum of equal terms always rounds the same way, so errors accumulate: thousands of small terms after a large one
    #: are off by 1.6e-5
    structured_factor: float = 2.0
    #: for rows scaled by 1/1000 next to usual rows: smaller values count as this share of the output's rms
    small_share: float = 1e-2
    #: least length of a row whose mean and spread are meaningful
    min_row_length: int = 32
    #: standard deviations by which a small output may exceed the number of elements that tau allows
    tau_deviations: float = 3.0
    #: a 16-bit output's slope against the answer: off by at most this share of the floor (truncation: 0.28 % of 1 %)
    scale_share: float = 0.5
    #: and by this many of the dtype's roundings for one element (five times the likely error), fewer for a mean of many
    scale_roundings: float = 1.0
    #: eq. 2's epsilon, relative to the output's rms
    epsilon: float = 1e-8


@dataclass(frozen=True)
class Deadlines:
    """Seconds that a stage may take before the judge kills the worker."""

    #: until a worker reports that it is ready
    start: float = 30.0
    #: torch's load_inline compiles torch's headers: 90 seconds on a machine that is not idle
    build: float = 240.0
    smoke: float = 20.0
    #: one call of the candidate: this multiple of the reference's time,
    call_factor: float = 200.0
    #: and at least this
    call_least: float = 10.0
    #: factor on a call's deadline for Triton's interpreter, which is slow; a static task cannot shrink
    interpreted_factor: float = 10.0
    #: torch.compile's first call compiles
    compile: float = 180.0
    #: until a worker's first process answers, or has ended
    stop: float = 5.0
    #: until every thread of a worker has halted, on a busy machine
    halt: float = 10.0


@dataclass(frozen=True)
class StaticRule:
    """Limits of the static analysis of a source."""

    #: processor time, so that a busy machine does not reject a source
    processor_seconds: float = 3.0
    #: wall-clock time, after which the analysis ends without a result
    wall_seconds: float = 120.0
    #: bytes beyond the judge's own memory
    memory_bytes: int = 1024 * MIB
    #: files of a source
    max_files: int = 1000
    #: findings that are reported
    max_findings: int = 200


@dataclass(frozen=True)
class CorrectRule:
    """Limits of the stage that checks correctness."""

    #: one in this many checked calls gets its arguments in private memory,
    private_one_in: int = 3
    #: if they have at most this many bytes
    private_bytes: int = 4 * MIB
    #: largest bytes of a case that an ordinary process gets
    ordinary_bytes: int = 256 * MIB
    #: largest number of earlier calls of a small size there (at least half of it are made),
    earlier_calls: int = 16_000
    #: seconds for those,
    earlier_seconds: float = 0.4
    #: and calls at other small shapes before them
    earlier_shapes: int = 320
    #: all families run at sizes whose inputs and outputs are smaller than this
    family_bytes: int = 4 * MIB
    #: hidden sizes of the Dims, in addition to the task's own
    hidden_sizes: int = 4
    #: sizes from the whole ranges of the Dims
    range_sizes: int = 32
    #: seconds of the judge's thread for these,
    range_seconds: float = 0.1
    #: and wall-clock seconds
    range_wall_seconds: float = 0.5
    #: families tried at full size when the shapes are fixed and large, in addition to the task's own
    large_families: int = 5
    #: larger cases are compared at the declared dtype first,
    large_bytes: int = 32 * MIB
    #: and run with this many families
    huge_families: int = 3
    #: other numbers tried for each scalar argument,
    scalar_values: int = 8
    #: and in an interpreter
    scalar_values_interpreted: int = 3
    #: numbers of a source that are tried as values of integer arguments
    scalar_literals: int = 5
    #: values that the source compares with
    scalar_comparisons: int = 8
    #: longest time of the reference (s); after this it counts as infinite
    scalar_seconds: float = 0.5
    #: sizes at which a source may take another path
    path_sizes: int = 3
    #: threads of a team larger than a machine's loop expects
    large_team: int = 29
    #: teams of one more than a number in the source, up to which it may have allocated room for each thread
    team_literals: int = 2
    #: largest of these teams
    max_team: int = 256
    #: tasks over this many bytes have no metamorphic checks and no canaries
    single_family_bytes: int = 256 * MIB


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


@dataclass(frozen=True)
class HonestRule:
    """Limits of the checks that the work is the candidate's own."""

    #: bytes of outputs that are read again after the next call
    reread_bytes: int = 4 * MIB
    #: seconds before the judge reads outputs again for late writes
    late_write_seconds: float = 0.02
    #: least share of the call's time outside library operators
    own_share: float = 0.90

    # -- program counters sampled from the candidate's threads

    #: samples of one sampling,
    max_samples: int = 80
    #: and its seconds
    sample_seconds: float = 0.4
    #: fewer samples in code that computes are not conclusive
    min_samples: int = 12
    #: further samplings while the samples are fewer and all in a library
    more_samplings: int = 8
    #: seconds between two samples, from and to: random, so that no loop runs in step with them
    sample_spacing: tuple[float, float] = (2e-5, 4e-4)
    #: pieces of code that identify a copy of a library,
    sample_pieces: int = 3
    #: and bytes of each
    sample_bytes: int = 48
    #: standard errors by which the library's share must exceed the allowed one
    share_standard_errors: float = 2.6
    #: share of the looks in code that is neither the candidate's nor known, for a refusal,
    unknown_share: float = 0.03
    #: and their least number
    min_unknown_looks: int = 3
    #: this share of the interpreter's samples in a range of ``loop_bytes`` is a loop of one of its functions; for code
    #: that it interprets, the share is an eighth to a sixth
    loop_share: float = 0.25
    loop_bytes: int = 512

    # -- seconds of a call in libraries that are no computation

    #: the framework's own handling of tensors (allocation, views, dispatch)
    library_seconds: float = 40e-6
    #: the same with none of its code in the processor's caches: no range of ``handling_bytes`` takes longer
    handling_seconds: float = 250e-6
    handling_bytes: int = 4096
    #: the runtime of a DSL may find, pass and launch kernels (Taichi 1.7.4: 0.13 ms for two launches; 0.29 ms for one
    #: of five arrays); longer times mean computation
    launch_seconds: float = 300e-6
    #: the same in calls apart from each other on a busy machine (0.8 to 1.2 ms)
    slow_launch_seconds: float = 1.5e-3
    #: of these, this many may be in ``handling_bytes`` of its code (launches: 5 to 99 us, at most 0.30 of them, by
    #: thirty samples and more), but at most ``handling_seconds``: code that computes stays in its loop
    launch_loop_seconds: float = 150e-6
    #: or this share of them
    launch_loop_share: float = 0.4

    #: places of own code that a verdict stores,
    hot_spots: int = 64
    #: and characters of a function's name
    hot_name_characters: int = 400

    # -- launches left out one at a time

    #: own kernels that are left out separately,
    max_ghosts: int = 6
    #: and seconds for the worker to find where they are bound
    ghost_seconds: float = 20.0

    # -- kinds of wrong results

    #: relative error of a timed call below which it counts as rounding, not as another call's result
    rounding_error: float = 1e-3
    #: share of wrong elements below which a timed call's result is its own
    own_wrong_share: float = 0.01
    #: relative error from which a number has no correct digit, even in an ill-conditioned problem
    no_digit_error: float = 0.1
    #: scale of inputs that distinguishes f16 from TF32
    tiny_scale: float = 2.0**-20
    #: inputs whose elements are changed individually,
    changed_inputs: int = 3
    #: and elements of each: the last and some at random
    changed_elements: int = 4


#: baselines that torch.compile builds, with its mode
COMPILED: Mapping[str, str | None] = {"compile": None, "max-autotune": "max-autotune"}

ERROR = ErrorRule()
STATIC = StaticRule()
DEADLINES = Deadlines()
CORRECT = CorrectRule()
TIMING = TimingRule()
RANK = RankRule()
HONEST = HonestRule()
