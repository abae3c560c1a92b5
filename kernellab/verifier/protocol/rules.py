"""All numbers that a verdict depends on, in one place.

The floors and tau of the error rule follow the AKG paper (eq. 2-3) and measurements on float64 references. Each limit
should separate an honest kernel from a dishonest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernellab.sandbox.caps import MIB
from kernellab.verifier.protocol.device_rules import DEVICE as DEVICE
from kernellab.verifier.protocol.device_rules import SEAL as SEAL


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
    #: KernelBench's float32 check (torch.allclose with these), on the task's own inputs where kernels are strict
    close_rtol: float = 1e-4
    close_atol: float = 1e-4
    #: multiple of the framework's own error against float64 that is allowed
    framework_factor: float = 8.0
    #: "not farther than eager": the same roundings in another summation order (H200: 0.92 to 1.002 times eager's error)
    as_eager: float = 1.1
    #: largest share of elements for which a cut in the formula may explain a difference as rounding
    cut_share: float = 0.05
    #: elements that may be wrong: this multiple of those without a correct digit in the reference at the declared dtype
    chaos_times: int = 4
    tile: int = 64
    #: a tile may be off by this many floors
    tile_factor: float = 10.0
    #: a tile's norm counts as at least this share of the whole output's rms
    tile_norm_share: float = 1e-3
    #: an element may be off by this many floors of |reference| + rms(reference)
    element_factor: float = 100.0
    #: upper bound of that error; neighbours in float8 differ by a quarter, and a missing element is wrong by all of it
    element_most: Mapping[str, float] = field(default_factory=lambda: {"float8": 0.5})
    #: floor and tau on inputs whose mean is far larger than their spread: two passes of plain f32 sums are off by about
    #: 1e-3 there, one pass (E[x^2] - E[x]^2) by more than 3e-2
    offset_floor: float = 8e-3
    offset_tau: float = 3e-2
    #: a sum of equal terms always rounds the same way, so errors accumulate: thousands of small terms after a large one
    #: are off by 1.6e-5
    structured_factor: float = 2.0
    #: for rows scaled by 1/1000 next to usual rows: smaller values count as this share of the output's rms
    small_share: float = 1e-2
    #: least length of a row whose mean and spread are meaningful
    row: int = 32
    #: standard deviations by which a small output may exceed the number of elements that tau allows
    tau_deviations: float = 3.0
    #: a 16-bit output's slope against the answer: off by at most this share of the floor (truncation: 0.28 % of 1 %),
    scale_share: float = 0.5
    #: and by this many of the dtype's roundings for one element (five times the likely error), fewer for a mean of many
    scale_roundings: float = 1.0
    #: eq. 2's epsilon, relative to the output's rms
    epsilon: float = 1e-8


@dataclass(frozen=True)
class Deadlines:
    """Seconds that a stage may take before the judge kills the worker."""

    start: float = 30.0
    #: torch's load_inline compiles torch's headers: 90 seconds on a machine that is not idle
    build: float = 240.0
    smoke: float = 20.0
    #: one call of the candidate: this multiple of the reference's time, and at least ``call_least``
    call_factor: float = 200.0
    call_least: float = 10.0
    #: factor for Triton's interpreter, which is slow; a static task cannot shrink
    interpreted: float = 10.0
    #: torch.compile's first call compiles
    compile: float = 180.0
    stop: float = 5.0
    #: until every thread of a worker has halted, on a busy machine
    halt: float = 10.0


@dataclass(frozen=True)
class StaticRule:
    """Limits of the static analysis of a source."""

    #: processor time, so that a busy machine does not reject a source
    seconds: float = 3.0
    #: wall-clock time, after which the analysis ends without a result
    patience: float = 120.0
    #: bytes beyond the judge's own memory
    memory: int = 1024 * MIB
    files: int = 1000
    #: findings that are reported
    findings: int = 200


@dataclass(frozen=True)
class CorrectRule:
    """Limits of the stage that checks correctness."""

    #: one in this many checked calls, of up to ``private_bytes``, gets its arguments in private memory
    private_one_in: int = 3
    #: largest bytes of a case that an ordinary process gets
    ordinary_bytes: int = 256 * MIB
    #: largest number of earlier calls of a small size there (at least half of it are made), and seconds for those
    earlier_calls: int = 16_000
    earlier_seconds: float = 0.4
    #: and calls at other small shapes before these
    earlier_shapes: int = 320
    private_bytes: int = 4 * MIB
    #: all families run at sizes whose inputs and outputs are smaller than this
    family_bytes: int = 4 * MIB
    #: hidden sizes of the Dims, in addition to the task's own
    hidden_sizes: int = 4
    #: sizes from the whole ranges: maximum number, seconds of the judge's thread, and wall-clock seconds
    all_over: int = 32
    all_over_seconds: float = 0.1
    all_over_wall: float = 0.5
    #: families tried at full size when the shapes are fixed and large, in addition to the task's own
    large_families: int = 5
    #: number of families for larger cases, compared at the declared dtype first
    large_bytes: int = 32 * MIB
    huge_families: int = 3
    #: other numbers tried for each scalar argument, and in an interpreter
    scalar_values: int = 8
    scalar_interpreted: int = 3
    #: numbers of a source that are tried as values of integer arguments
    scalar_named: int = 5
    #: sizes at which a source may take another path
    paths: int = 3
    #: values that the source compares with
    scalar_compared: int = 8
    #: longest time of the reference (s); after this it counts as infinite
    scalar_seconds: float = 0.5
    #: threads of a team larger than a machine's loop expects
    team: int = 29
    #: teams of one more than a number in the source, up to which it may have allocated room for each thread
    team_named: int = 2
    team_most: int = 256
    #: tasks over this many bytes have no metamorphic checks
    single_family_bytes: int = 256 * MIB


@dataclass(frozen=True)
class TimingRule:
    """Limits of the timed calls."""

    #: seconds that candidate and baselines may take together
    budget: float = 1.5
    #: pairs of timed calls: least, least while the budget lasts, and most. With 16 (eight blocks, ten kinds of noise,
    #: 600 runs of each, ended by their width) the bootstrap interval covers the truth in 85 to 92 %, and the reported
    #: one, wider by the noise floor, in 95 to 100 %
    least: int = 6
    few: int = 16
    most: int = 200
    #: consecutive calls of one side before the other side's turn
    block: int = 2
    #: all outputs of timed calls are checked if the inputs of the least number of pairs have at most this many bytes;
    #: otherwise the first, the last and a secret random third
    check_all_bytes: int = 64 * MIB
    #: elements of each tensor that are written only after the clock has started
    withheld: int = 4
    #: seconds between an answer and the halt of a worker's processes that do not count as its time: the cost of the
    #: judge's own call. If the halt takes longer and the worker used that time, it counts as the worker's
    halting: float = 150e-6
    #: elements of an answer's outputs that are read before the halt, and again after it
    glanced: int = 12
    #: seconds for which the judge waits without sleep in a call that does not count
    awake_seconds: float = 0.05
    #: seconds that a halted worker may seem to have run: the system's accounting lags
    halted_seconds: float = 2e-3
    #: calls of other families among the timed calls, at secret places: all families for small inputs, this many for
    #: larger ones, and one beyond ``CORRECT.large_bytes``
    canaries: int = 3
    #: and this many at other sizes, of no more bytes
    sized_canaries: int = 2
    #: number of places at which additional uncounted calls are watched from outside, and seconds for each
    watched: int = 3
    watched_seconds: float = 0.03
    #: seconds that drawing contents by the task's own inputs may take in addition to the budget
    drawing: float = 2.0
    #: times that contents equal to earlier ones are drawn again
    redrawn: int = 3
    #: the chance that the next call does not count and has its program counters sampled once (a look): until ``looks``
    #: samples exist, and afterwards
    looks: int = 16
    look_chances: tuple[float, float] = (1 / 2, 1 / 4)
    #: the longest time of such a call (s)
    look_seconds: float = 5.0
    #: inputs prepared for these calls in each round, for little data and for more than ``renew_bytes``
    spares: tuple[int, int] = (4, 2)
    #: factor on the budget while samples have found a library and are too few to estimate how often
    unsure: float = 4.0
    #: pairs of calls after which inputs up to ``renew_bytes`` move to another place in memory
    renew: int = 8
    renew_bytes: int = 64 * MIB
    #: seconds that a judge waits for the clock while other judges use the machine
    clock_wait: float = 120.0
    #: two sets of buffers (a warm call just before the timed one) up to this many bytes of inputs
    warm_bytes: int = 8 * MIB
    #: uncounted calls of each side before the first counted one: until this many in a row agree within ``warm_spread``,
    #: at most ``warm_calls`` or ``warm_seconds``
    warm_agree: int = 3
    warm_spread: float = 1.15
    warm_calls: int = 16
    warm_seconds: float = 0.3
    #: a thread takes part in a call if it runs for this share of the busiest thread's time
    team_share: float = 0.1
    #: a call is disturbed if its threads waited for a core longer than this share of it, and longer than these seconds
    waited_share: float = 0.08
    waited_seconds: float = 40e-6
    #: shares of the disturbed calls of one side, and of all others, from which the side causes its own waiting
    waits_often: float = 0.8
    waits_seldom: float = 0.1
    #: seconds per run that calls may wait for cores beyond other processes' use of them: the resolution of ticks
    unexplained: float = 30e-3
    #: cores beyond the requested threads that a verdict reports, in calls that take this long together (s)
    cores_beyond: float = 0.3
    cores_seconds: float = 10e-3
    #: upper bound of the usual waiting time that counts as the waking of threads
    waking_seconds: float = 150e-6
    #: pairs after which ``least`` undisturbed ones are no longer expected: the result then reports all pairs, with the
    #: interval of their spread, which does not narrow with more of them
    busy_pairs: int = 32
    #: sharp enough: the interval reaches this share beyond what it is widened by, or this part of that; or the rest of
    #: the budget would narrow it by less than this share on either side. Only the width ends a run, never which side is
    #: ahead: frequent checks then cannot turn noise into a difference
    sharp: float = 0.02
    sharp_part: float = 0.5
    #: share of disturbed pairs, all explained by other processes' use of the cores, from which a verdict reports a
    #: condition. Unexplained pairs are never left out, so that no kernel selects its calls by waiting
    busy_share: float = 0.10
    #: share of the machine used by others from which the intervals of the figures are widened
    taken_share: float = 0.15
    #: difference between two workers of the same code where others keep all cores and caches busy
    shared_noise: float = 0.06
    #: difference between two CPU workers of the same code due to their pages and cores, for a whole run
    #: (60 runs of one code on both sides during a test run: the speedup's standard deviation is 2 to 5 %, by size)
    placed_noise: float = 0.08
    #: least share of a call's time that remains when its waiting for cores is subtracted
    least_alone: float = 0.05
    #: difference between two workers of the same code due to the place of their memory
    noise_floor: float = 0.02
    bootstrap: int = 2000
    calibration_calls: int = 20
    #: largest difference between the judge's clock and the worker's, as a share and in seconds
    clock_share: float = 0.10
    clock_seconds: float = 30e-6
    #: limits on plausible speed; anything faster is refused: multiples of the best copy within the caches,
    cached_factor: float = 4.0
    #: of the fastest product of float32 or float64,
    flops_factor: float = 1.25
    #: and of that of another dtype (for which a unit without a torch product may exist)
    other_flops_factor: float = 2.0
    #: a convolution may need this factor fewer products
    convolution_factor: float = 4.0
    #: seconds for which each of these rates is measured
    rate_seconds: float = 0.05
    #: share of the byte bound below which a time is not trusted without T4
    byte_floor: float = 0.95
    #: largest share of a call attributed to the handshake: on a busy machine one echo may cost more than a call
    handshake_share: float = 0.8


@dataclass(frozen=True)
class RankRule:
    """Limits of a ranking: what a search may spend on each candidate."""

    #: seconds that the timed calls of both sides may take together
    budget: float = 0.5
    #: pairs of timed calls, at least
    least: int = 4
    #: share by which the interval of the paired ratio may extend to either side to count as sharp
    sharp: float = 0.03
    #: seconds of the calls of each side before the first counted one
    warm_seconds: float = 0.06
    #: calls that measure the handshake
    calibration_calls: int = 8
    #: most input bytes for cases of a dynamic task; for others, float64 is used only where needed
    case_bytes: int = 1 * MIB
    #: rankings of a task that share their cases on a CPU, and input bytes that are stored for the next ranking
    uses: int = 16
    kept_bytes: int = 256 * MIB


@dataclass(frozen=True)
class HonestRule:
    """Limits of the checks that the work is the candidate's own."""

    #: bytes of outputs that are read again after the next call
    kept_bytes: int = 4 * MIB
    #: least share of the call's time outside library operators
    own_share: float = 0.90
    #: program counters sampled from the candidate's threads, and seconds for it; fewer than ``samples_least`` in code
    #: that computes are not conclusive
    samples: int = 80
    samples_least: int = 12
    sample_seconds: float = 0.4
    #: factor on these while the samples are fewer and all in a library
    sample_times: int = 8
    #: seconds between two samples: random, so that no loop runs in step with them
    sample_spacing: tuple[float, float] = (2e-5, 4e-4)
    #: pieces of code, and bytes of each, that identify a copy of a library
    sample_pieces: int = 3
    sample_bytes: int = 48
    #: share of the samples in code that is neither the candidate's nor known, and their least number, for a refusal
    unknown_share: float = 0.03
    unknown_least: int = 3
    #: this share of the interpreter's samples within this many bytes of it is a loop of one of its functions; for code
    #: that it interprets, the share is an eighth to a sixth
    loop_share: float = 0.25
    loop_bytes: int = 512
    #: standard errors by which the library's share must exceed the allowed one
    sample_errors: float = 2.6
    #: seconds of a call for the framework's own handling of tensors (allocation, views, dispatch)
    library_seconds: float = 40e-6
    #: the same with none of its code in the processor's caches: no range of this many bytes takes longer
    handling_seconds: float = 250e-6
    handling_bytes: int = 4096
    #: seconds of a call in which the runtime of a DSL may find, pass and launch kernels (Taichi 1.7.4: 0.13 ms for two
    #: launches; 0.29 ms for one of five arrays), and in calls apart from each other on a busy machine (0.8 to 1.2 ms);
    #: longer times mean computation
    launch_seconds: float = 300e-6
    slow_launch_seconds: float = 1.5e-3
    #: of these, this many, or this share, may be in ``handling_bytes`` of its code (launches: 5 to 99 us, at most 0.30
    #: of them, by thirty samples and more), but at most ``handling_seconds``: code that computes stays in its loop
    launch_loop_seconds: float = 150e-6
    launch_loop_share: float = 0.4
    #: places of own code that a verdict stores, and characters of a function's name
    hot_spots: int = 64
    hot_name: int = 400
    #: seconds before the judge reads outputs again for late writes
    late_wait: float = 0.02
    #: own kernels that are left out separately, and seconds for the worker to find where they are bound
    ghosts: int = 6
    ghost_seconds: float = 20.0
    #: relative error of a timed call below which it counts as rounding, not as another call's result
    rounding: float = 1e-3
    #: share of wrong elements below which a timed call's result is its own
    few: float = 0.01
    #: relative error from which a result without its kernels is wrong, even for an ill-conditioned problem
    nowhere: float = 0.1
    #: scale of inputs that distinguishes f16 from TF32
    tiny: float = 2.0**-20
    #: inputs whose elements are changed individually, and elements of each: the last and some at random
    changed_inputs: int = 3
    changed_elements: int = 4


#: baselines that torch.compile builds, with its mode
COMPILED: Mapping[str, str | None] = {"compile": None, "max-autotune": "max-autotune"}


@dataclass(frozen=True)
class EdgeRule:
    """Limits of the checks at the edges of a number format."""

    #: normal float32 numbers multiplied by this are denormal
    denormal: float = 2.0**-132
    #: share of elements that are -0 in checks of the signs of zeros
    zeros: float = 0.25
    #: outputs in memory that is this multiple of the reference's, plus this many bytes
    oversized: float = 8.0
    oversized_bytes: int = 256 * 1024
    #: share of denormal answers returned as zeros from which they count as flushed
    flushed: float = 0.5
    #: next to zeros of a result: relative error that is allowed,
    near_zeros_relative: float = 1e-3
    #: and multiples of what a rounding of the arguments changes, and of the reference's own error;
    near_zeros_roundings: float = 16.0
    #: elements there that are needed, and the share of them that may be off;
    near_zeros_least: int = 16
    near_zeros: float = 0.1
    #: seconds of the judge's own thread
    near_zeros_seconds: float = 0.3
    #: small numbers of the reference and the source whose size arguments get, and seconds for these cases
    small_literals: int = 4
    small_seconds: float = 0.4


@dataclass(frozen=True)
class DrawnRule:
    """Inputs drawn from what a task declares (:mod:`kernellab.verifier.survey.survey`)."""

    #: cases of a verification, and of a ranking
    cases: int = 36
    rank_cases: int = 10
    #: additional cases of the solver, in either
    solved: int = 6
    #: pairs of arguments that get special values at one position
    pairs: int = 3
    #: samples of probabilities and the like this close to 0 may be 0
    near_zero: float = 0.02
    #: seconds of the judge's own thread to find the cases of a verification, and of a ranking
    seconds: float = 0.8
    rank_seconds: float = 0.3
    #: cases at a size at which a source may take another path, and seconds of this thread to make them
    path_cases: int = 12
    path_seconds: float = 0.25
    #: arguments whose rows are sorted at a long size, and seconds of this thread to make these cases
    ordered: int = 2
    ordered_seconds: float = 0.6
    #: numbers of the source's comparisons next to which elements of each argument lie, and seconds of this thread
    compared: int = 6
    compared_seconds: float = 0.15
    #: seconds of this thread for special values late in long rows
    late_seconds: float = 0.3
    #: longest rows tried far from zero: with more terms plain sums lose too much accuracy
    shifted: int = 1 << 14
    #: numbers of a source from here on may be a block size
    block: int = 16
    #: positions around their multiples that are inspected
    seams: int = 4096
    #: seconds of calls in Triton's interpreter, each of which takes ten milliseconds or more
    interpreted: float = 0.4
    #: seconds of one call with a Dim as long as that allows
    interpreted_long: float = 0.5
    #: share of ``seconds`` (``rank_seconds``) after which no case is drawn any more: the rest is the solver's
    drawing: float = 0.7
    #: for large inputs, as many cases as fit in about this many seconds,
    call_seconds: float = 1.2
    #: and at least this many:
    least: int = 8
    #: a case takes about this many times as long as the reference, and passes over its data at ``bytes_a_second``
    runs: float = 6.0
    bytes_a_second: float = 4e8
    #: Dims that are tried at their ends, and input bytes there
    ends: int = 3
    end_bytes: int = 4 * MIB
    #: input bytes for which two Dims are long at once: up to the second value if the declared sizes have a quarter of
    #: that, and if the reference is expected to take at most ``long_seconds``
    long_bytes: tuple[int, int] = (40 * MIB, 64 * MIB)
    long_seconds: float = 0.25
    #: sizes with each Dim in the upper three quarters of its range, their input bytes, and seconds of the reference
    wide: int = 2
    wide_seconds: float = 0.5
    wide_bytes: int = 128 * MIB
    #: sizes that are tried at numbers of the source, one Dim at each
    numbers: int = 16
    #: numbers of the source at which all Dims are equal, and about which sizes nearby are tried
    named: int = 6
    #: sizes of two Dims at numbers that stand together in the source
    together: int = 8
    #: input bytes of each of these
    named_bytes: int = 512 * 1024
    #: magnitudes from this share of an argument's rms on are usual, and occur in the families too
    usual: float = 1e-3
    #: largest magnitude of an element with which the solver searches for an edge
    far: float = 1e6
    #: patterns that test whether equal elements decide
    ties: int = 6
    #: comparisons for which exact ties are searched
    exact_edges: int = 12
    #: cases of exact ties that go before all others in an interpreter, which runs only a few
    exact_first: int = 3
    #: share of ``seconds`` (``rank_seconds``) at which the search for exact ties ends
    exact_share: float = 1.4
    #: share of an output's rms by which the two answers for equal elements must then differ
    apart: float = 0.02
    #: input bytes at which cases are drawn, if the Dims' ranges allow
    case_bytes: int = 256 * 1024
    #: own contents of the task at one small size, each of which one call gets: largest number
    contents: int = 1024
    #: seconds of the judge's thread that draws them
    contents_seconds: float = 0.2
    #: seconds of the calls with them
    contents_call_seconds: float = 1.0
    #: bytes of one (if the Dims allow), and of all
    content_bytes: int = 8 * 1024
    contents_bytes: int = 16 * MIB
    #: relative difference between the reference and its float64 run from which an answer is noise
    noise: float = 0.05


@dataclass(frozen=True)
class CombinedRule:
    """Cases in which several things differ at once (:mod:`kernellab.verifier.boundary_checks.combined`)."""

    #: sizes of a Dim: the usual one,
    small: int = 7
    #: the ranges of middle and of long ones, of which one each is drawn,
    middle: tuple[int, int] = (33, 255)
    long: tuple[int, int] = (320, 900)
    #: whole tiles,
    whole: tuple[int, ...] = (64, 128, 192, 256)
    #: and numbers of the source up to this one
    longest: int = 1 << 14
    #: bytes of a combination
    bytes: int = 2 * MIB
    #: contents of an argument, and those that are always among them
    contents: int = 6
    contents_first: tuple[str, ...] = ("NaN", "inf", "zero", "low", "high", "scaled")
    #: arguments that get another layout, and pairs of arguments that are one tensor
    arguments: int = 4
    pairs: int = 1
    #: teams of threads
    teams: tuple[int, ...] = (2, 3, 4, 8)
    #: a scalar is large from here on
    large: float = 64.0
    #: numbers of the source that part the values of a scalar
    compared: int = 3
    #: combinations that are tried although they take the judge's thread longer than ``seconds``,
    least: int = 48
    #: and in an interpreter although they take longer than ``DRAWN.interpreted`` on the clock
    interpreted: int = 4
    #: seconds of the judge's thread, and of the clock
    seconds: float = 0.8
    wall: float = 12.0
    #: causes of wrong answers that are searched for
    causes: int = 4


ERROR = ErrorRule()
COMBINED = CombinedRule()
DRAWN = DrawnRule()
EDGES = EdgeRule()
STATIC = StaticRule()
DEADLINES = Deadlines()
CORRECT = CorrectRule()
TIMING = TimingRule()
RANK = RankRule()
HONEST = HonestRule()
