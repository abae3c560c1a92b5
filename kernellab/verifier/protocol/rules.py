"""Every number that a verdict rests on, in one place.

The error rule's floors and tau follow the AKG paper (eq. 2-3) and measurements on float64 references; each limit is
meant to have an honest and a dishonest kernel on either side of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1 << 20


@dataclass(frozen=True)
class ErrorRule:
    """Limits of the comparison with the reference, by dtype."""

    #: eq. 2-3: at most a fraction tau of the elements may be off by more than tau, relatively
    tau: Mapping[str, float] = field(
        default_factory=lambda: {"float64": 1e-3, "float32": 1e-3, "float16": 4e-3, "bfloat16": 3e-2, "float8": 1e-1}
    )
    #: relative Frobenius error against float64 that is always allowed
    floor: Mapping[str, float] = field(
        default_factory=lambda: {"float64": 1e-10, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2, "float8": 6e-2}
    )
    #: the floor of an output whose operations may run in TF32
    floor_tf32: float = 2e-3
    #: and its tau: of a product of normal numbers in TF32, 17 % of the elements are off by more than 1e-3, since some
    #: sums nearly cancel, and 0.9 % by more than 2e-2
    tau_tf32: float = 2e-2
    #: KernelBench's own check of float32, torch.allclose with these, on the task's own inputs where kernels are strict
    close_rtol: float = 1e-4
    close_atol: float = 1e-4
    #: times the framework's own error against float64
    framework_factor: float = 8.0
    #: "no farther than eager": the same roundings in another order of the sum (H200: 0.92 to 1.002 times eager's error)
    as_eager: float = 1.1
    #: elements of which a cut in the formula may have decided otherwise: of more, it is no matter of rounding
    cut_share: float = 0.05
    #: times the elements of which the reference at the declared dtype has no digit that a kernel may have, too
    chaos_times: int = 4
    tile: int = 64
    #: a tile may be off by this many floors
    tile_factor: float = 10.0
    #: a tile's norm counts as at least this share of the whole output's rms
    tile_norm_share: float = 1e-3
    #: an element may be off by this many floors of |reference| + rms(reference)
    element_factor: float = 100.0
    #: and by so much at most: neighbours in float8 differ by a quarter, an element that is left out by all
    element_most: Mapping[str, float] = field(default_factory=lambda: {"float8": 0.5})
    #: floor and tau on inputs whose mean is far larger than their spread: two passes of plain f32 sums are off by some
    #: 1e-3 there, one pass (E[x^2] - E[x]^2) by more than 3e-2
    offset_floor: float = 8e-3
    offset_tau: float = 3e-2
    #: a sum of equal terms is rounded the same way each time, so that errors add up: thousands of small ones after a
    #: large one are off by 1.6e-5
    structured_factor: float = 2.0
    #: rows of a thousandth next to usual ones: what is smaller than this share of the output's rms counts as that large
    small_share: float = 1e-2
    #: rows from this length on say something of mean and spread
    row: int = 32
    #: standard deviations by which the number of elements that tau allows may be exceeded in a small output
    tau_deviations: float = 3.0
    #: a 16-bit output's slope on the answer: off by this share of the floor (truncation: 0.28 % of bfloat16's 1 %),
    scale_share: float = 0.5
    #: and by so many of the dtype's roundings for one element (five times what is likely), fewer for the mean of many
    scale_roundings: float = 1.0
    #: eq. 2's epsilon, relative to the output's rms
    epsilon: float = 1e-8


@dataclass(frozen=True)
class Deadlines:
    """Seconds that a stage may take before the worker is killed."""

    start: float = 30.0
    #: torch's own load_inline compiles torch's headers: a minute and a half on a machine that is not idle
    build: float = 240.0
    smoke: float = 20.0
    #: one call of the candidate: this many times the reference's own time, and at least ``call_least``
    call_factor: float = 200.0
    call_least: float = 10.0
    #: Triton's interpreter is so many times slower, and a static task cannot shrink
    interpreted: float = 10.0
    #: torch.compile's first call compiles
    compile: float = 180.0
    stop: float = 5.0
    #: until every thread of a worker has come to its halt, on a machine that others keep busy
    halt: float = 10.0


@dataclass(frozen=True)
class Caps:
    """What a worker may use. Breaking one of them ends it, with the reason."""

    #: bytes of one control message
    message: int = 256 * 1024
    #: bytes kept of stdout and stderr together
    log: int = 256 * 1024
    #: bytes written to stdout and stderr before the worker is ended
    printed: int = 64 * MIB
    #: resident bytes: this plus ``memory_factor`` times the bytes of inputs and outputs
    memory: int = 4096 * MIB
    memory_factor: int = 8
    processes: int = 64
    #: threads of all its processes together: so many, and so many for each core
    threads: int = 64
    core_threads: int = 4
    #: processes and threads of one user, where the system counts them for itself
    tasks: int = 4096
    #: open files of one process; four times as many where a GPU's driver works
    descriptors: int = 1024
    file_bytes: int = 2048 * MIB
    #: bytes and number of files in the scratch folder, or open without a name
    disk: int = 4096 * MIB
    files: int = 20_000
    #: bytes of a worker's own /dev/shm
    shared_memory: int = 256 * MIB
    outputs: int = 16
    rank: int = 12
    #: poisoned bytes on both sides of every input, and of every output of a call that is not timed
    guard: int = 256 * 1024
    output_guard: int = 1 * MIB
    #: elements of one tensor, and of all calls' programs, under an interpreter
    interpreter_elements: int = 1_000_000
    interpreter_dim: int = 128


@dataclass(frozen=True)
class StaticRule:
    """What reading a source's text may take."""

    #: of the processor's time, so that a busy machine refuses no text
    seconds: float = 3.0
    #: of the clock, after which nothing is said of the text
    patience: float = 120.0
    #: bytes beyond what the judge itself has
    memory: int = 1024 * MIB
    files: int = 1000
    #: findings that are reported
    findings: int = 200


@dataclass(frozen=True)
class CorrectRule:
    #: one in so many checked calls, of up to so many bytes, finds its arguments in its process's private memory
    private_one_in: int = 3
    #: bytes of a case that an ordinary process is given at most; earlier calls of a small size there at most, at least
    #: half of them, and seconds for those
    ordinary_bytes: int = 256 * MIB
    earlier_calls: int = 16_000
    earlier_seconds: float = 0.4
    private_bytes: int = 4 * MIB
    #: all families run at sizes whose inputs and outputs stay under this
    family_bytes: int = 4 * MIB
    #: hidden sizes of the Dims that are tried in addition to the task's own
    hidden_sizes: int = 4
    #: sizes from all over the ranges: at most, seconds of the judge's thread, and of the clock
    all_over: int = 32
    all_over_seconds: float = 0.1
    all_over_wall: float = 0.5
    #: families tried at full size when the shapes are fixed and large, in addition to the task's own
    large_families: int = 5
    #: so many beyond this size, compared at the declared dtype first
    large_bytes: int = 32 * MIB
    huge_families: int = 3
    #: other numbers that each scalar argument is tried with, and in an interpreter
    scalar_values: int = 8
    scalar_interpreted: int = 3
    #: numbers of a source that are tried as values of integer arguments
    scalar_named: int = 5
    #: sizes at which a source may have another path
    paths: int = 3
    #: other values of an integer whose paths are tried in other layouts, sizes and contents
    path_values: int = 6
    #: those that the source compares with; draws of two scalar arguments that are changed together, and of more
    scalar_compared: int = 8
    scalar_pairs: int = 16
    scalar_draws: int = 24
    #: seconds that the reference may take for an infinite one
    scalar_seconds: float = 0.5
    #: threads of a team that is larger than any machine's loop expects
    team: int = 29
    #: teams of one more than a number that the source names, up to which it may have room for each thread
    team_named: int = 2
    team_most: int = 256
    #: tasks over this many bytes have no metamorphic checks
    single_family_bytes: int = 256 * MIB


@dataclass(frozen=True)
class TimingRule:
    #: seconds that candidate and baselines may take together
    budget: float = 1.5
    #: pairs of timed calls: at least, at least while the budget lasts, and at most. Of 16 (eight blocks, ten kinds of
    #: noise, 600 runs of each, ended by their width) a bootstrap's own interval holds the truth in 85 to 92 %, the one
    #: that is reported, wider by the noise floor, in 95 to 100 %
    least: int = 6
    few: int = 16
    most: int = 200
    #: calls of one side before the other has its turn
    block: int = 2
    #: all outputs of timed calls are checked where the least number of pairs has this many bytes of inputs, else the
    #: first, the last and a secret random third
    check_all_bytes: int = 64 * MIB
    #: elements of each tensor that are put in place only after the clock has started
    withheld: int = 4
    #: seconds between an answer and the halt of all that a worker runs which are no part of its time: what the judge's
    #: own call for it takes. Where it takes longer, and the worker used them, they are the worker's
    halting: float = 150e-6
    #: elements of an answer's outputs that are looked at before the halt, and again after it
    glanced: int = 12
    #: for so long the judge waits without sleep in a call that does not count
    awake_seconds: float = 0.05
    #: a worker that is halted may seem to have run for so long (s): a system's accounts are behind by some
    halted_seconds: float = 2e-3
    #: calls of other families among the timed ones, at secret places: all families of small inputs, so many of larger
    #: ones, and one of those beyond ``CORRECT.large_bytes``
    canaries: int = 3
    #: and so many at other sizes, of no more bytes
    sized_canaries: int = 2
    #: places at which more calls that do not count are watched from outside, and seconds for each
    watched: int = 3
    watched_seconds: float = 0.03
    #: seconds that drawing contents by the task's own inputs may take in addition to the budget
    drawing: float = 2.0
    #: contents that are equal to earlier ones are drawn again so many times
    redrawn: int = 3
    #: the chance that a call which comes next does not count and has a single look at its program counters: until
    #: there are so many looks, and from then on; seconds that one may take; and inputs that lie ready for them in a
    #: round, of little data and of more than ``renew_bytes``
    looks: int = 16
    look_chances: tuple[float, float] = (1 / 2, 1 / 4)
    look_seconds: float = 5.0
    spares: tuple[int, int] = (4, 2)
    #: times the budget that calls go on for, while looks have found a library and are too few to say how often
    unsure: float = 4.0
    #: pairs of calls after which inputs up to so many bytes are given another place in memory
    renew: int = 8
    renew_bytes: int = 64 * MIB
    #: seconds that a judge waits for the clock of a machine that other judges use
    clock_wait: float = 120.0
    #: two sets of buffers (a warm call just before the timed one) up to this many bytes of inputs
    warm_bytes: int = 8 * MIB
    #: calls of each side before the first that counts: until this many in a row agree within ``warm_spread``, at most
    #: ``warm_calls`` or ``warm_seconds``
    warm_agree: int = 3
    warm_spread: float = 1.15
    warm_calls: int = 16
    warm_seconds: float = 0.3
    #: a thread works in a call when it runs for this share of what the busiest runs
    team_share: float = 0.1
    #: a call whose threads waited for a core longer than this share of it, and these seconds, was disturbed
    waited_share: float = 0.08
    waited_seconds: float = 40e-6
    #: shares of the disturbed calls of one side and of all others from which the one waits for itself
    waits_often: float = 0.8
    waits_seldom: float = 0.1
    #: seconds in a run that calls may wait for cores beyond what other processes used of them: what ticks leave open
    unexplained: float = 30e-3
    #: cores beyond the threads that were asked for which a verdict tells of, in calls that take so long together (s)
    cores_beyond: float = 0.3
    cores_seconds: float = 10e-3
    #: at most so much of what calls usually wait is taken for the waking of threads
    waking_seconds: float = 150e-6
    #: pairs after which it shows that ``least`` of them which nothing disturbed will not be found: all pairs are
    #: reported then, with the interval of their spread, which does not narrow with more of them
    busy_pairs: int = 32
    #: sharp enough: the interval reaches this share beyond what it is widened by, or this part of that; or the rest of
    #: the budget would narrow it by less than this share on either side. Only its width ends a run, never which side is
    #: ahead: looking often then makes no difference out of noise
    sharp: float = 0.02
    sharp_part: float = 0.5
    #: share of disturbed pairs, all of them explained by other processes' use of the cores, from which a verdict tells
    #: of it as a condition: what nothing explains is never left out, so that no kernel chooses its calls by waiting
    busy_share: float = 0.10
    #: share of the machine that others had, from which the figures' intervals are widened
    taken_share: float = 0.15
    #: two workers of the same code differ by up to this share where others keep all cores and caches busy
    shared_noise: float = 0.06
    #: two CPU workers of the same code differ by up to this share for the pages and cores that they got, all run long
    #: (60 runs of one code on both sides during a test run: the speedup's standard deviation is 2 to 5 %, by size)
    placed_noise: float = 0.08
    #: what is left at least of a call's time when what it waited for cores is taken off
    least_alone: float = 0.05
    #: two workers of the same code differ by this share for where their memory happens to lie
    noise_floor: float = 0.02
    bootstrap: int = 2000
    calibration_calls: int = 20
    #: judge's clock and worker's clock may differ by this share and by this many seconds
    clock_share: float = 0.10
    clock_seconds: float = 30e-6
    #: times faster than the best copy within the caches, than the fastest product of float32 or float64, and than that
    #: of another dtype (for which a unit may be here that torch has no product for), no kernel is: what seems so is
    #: refused. So many times fewer products a convolution may take
    cached_factor: float = 4.0
    flops_factor: float = 1.25
    other_flops_factor: float = 2.0
    convolution_factor: float = 4.0
    #: seconds for which one of these rates is measured
    rate_seconds: float = 0.05
    #: share of the byte bound under which a time is not believed without T4
    byte_floor: float = 0.95
    #: at most this share of a call is taken for the handshake: on a busy machine one echo may cost more than a call
    handshake_share: float = 0.8


@dataclass(frozen=True)
class RankRule:
    """A ranking: what a search may spend on each candidate."""

    #: seconds that the timed calls of both sides may take together
    budget: float = 0.5
    #: pairs of timed calls, at least
    least: int = 4
    #: the interval of the paired ratio reaches this share to either side: sharp enough
    sharp: float = 0.03
    #: seconds of the calls of each side before the first that counts
    warm_seconds: float = 0.06
    #: calls by which the handshake is measured
    calibration_calls: int = 8
    #: cases of a dynamic task have at most so many bytes of inputs; of others float64 is asked only where needed
    case_bytes: int = 1 * MIB
    #: rankings of a task that share their cases on a CPU, and bytes of inputs that are kept for the next
    uses: int = 16
    kept_bytes: int = 256 * MIB


@dataclass(frozen=True)
class HonestRule:
    #: bytes of outputs that are read once more behind the next call
    kept_bytes: int = 4 * MIB
    #: least share of the call's time outside library operators
    own_share: float = 0.90
    #: program counters that are sampled of the candidate's threads, and seconds for it; fewer than ``samples_least``
    #: found in code that computes say nothing
    samples: int = 80
    samples_least: int = 12
    sample_seconds: float = 0.4
    #: and so many times that, while those are fewer and all in a library
    sample_times: int = 8
    #: seconds between two looks: at random, so that no loop is in step with them
    sample_spacing: tuple[float, float] = (2e-5, 4e-4)
    #: pieces of code, and bytes of each, by which a library's copy is known again
    sample_pieces: int = 3
    sample_bytes: int = 48
    #: share of the samples in code that is neither the candidate's nor known, and their least number, from which it is
    #: refused
    unknown_share: float = 0.03
    unknown_least: int = 3
    #: so large a share of the interpreter's samples in so many bytes of it is a loop of one of its functions; of code
    #: that it interprets, an eighth to a sixth are
    loop_share: float = 0.25
    loop_bytes: int = 512
    #: standard errors by which the library's share must lie above what is allowed, and seconds of a call that the
    #: framework's own handling of tensors (allocation, views, dispatch) may take
    sample_errors: float = 2.6
    library_seconds: float = 40e-6
    #: and where the processor's caches hold none of its code: no so many bytes of it take longer than that then
    handling_seconds: float = 250e-6
    handling_bytes: int = 4096
    #: and seconds of a call in which the runtime that a DSL names may find, hand over and launch kernels (Taichi 1.7.4:
    #: 0.13 ms for two launches; 0.29 ms for one of five arrays), and in calls apart from each other on a busy machine
    #: (0.8 to 1.2 ms); what takes longer computes
    launch_seconds: float = 300e-6
    slow_launch_seconds: float = 1.5e-3
    #: of which so many, or this share, may be in ``handling_bytes`` of its code (launches: 5 to 99 us, at most 0.30
    #: of them, by thirty looks and more), but never more than ``handling_seconds``: what computes stays in its loop
    launch_loop_seconds: float = 150e-6
    launch_loop_share: float = 0.4
    #: places of own code that a verdict keeps, and characters of a function's name
    hot_spots: int = 64
    hot_name: int = 400
    #: seconds the judge waits before it reads outputs again for late writes
    late_wait: float = 0.02
    #: own kernels that are left out one by one, and seconds for the worker to find where they are bound
    ghosts: int = 6
    ghost_seconds: float = 20.0
    #: a relative error of a timed call below which it is taken for rounding, and not for another call's result
    rounding: float = 1e-3
    #: and the share of wrong elements below which a timed call's result is its own
    few: float = 0.01
    #: a relative error from which a result without its kernels is wrong, however ill-conditioned the problem
    nowhere: float = 0.1
    #: inputs are made so small to tell f16 from TF32
    tiny: float = 2.0**-20
    #: inputs whose elements are changed one by one, and elements of each: the last and some at random
    changed_inputs: int = 3
    changed_elements: int = 4


#: baselines that torch.compile makes, with its mode
COMPILED: Mapping[str, str | None] = {"compile": None, "max-autotune": "max-autotune"}


@dataclass(frozen=True)
class DeviceRule:
    """What holds on CUDA devices in addition to the rest."""

    #: share of the free memory that a run of the reference in float64 may need
    double_share: float = 0.5
    #: as ``DrawnRule.long_bytes``, of which the free memory must be so many times as much: a grid that is capped at
    #: 65,535 blocks of 1,024 loses elements in large tensors alone; and so long, for a reference that a launch takes
    #: longest for seems slower than it is there
    long_bytes: tuple[int, int] = (640 * MIB, 1024 * MIB)
    long_share: int = 16
    long_seconds: float = 1.0
    #: as ``DrawnRule.wide_bytes``
    wide_bytes: int = 256 * MIB
    #: elements compared at once on a device (float64 temporaries of 32 MiB each)
    piece: int = 1 << 22
    #: elements looked at together in their own dtype (temporaries of 128 MiB)
    glance: int = 1 << 25
    #: outputs of more elements than this are compared in pieces throughout
    whole: int = 1 << 24
    #: right answers of earlier cases that are kept for telling a stale result: bytes of each
    answer_bytes: int = 64 * MIB
    #: processes at most, and seconds that are waited for them, in which what a JIT makes for each size is compiled
    #: ahead (H200, four cores: rows 2 to 4 s, products 7; an autotuner's own measurements are of no use to another
    #: process); and of the sizes from all over the ranges so many; of all, secret ones that are left to the candidate
    rehearsals: int = 4
    rehearsal_seconds: float = 8.0
    rehearsed_sizes: int = 8
    unrehearsed: int = 2
    #: pairs of timed calls at least, where the budget allows, and at most
    least: int = 20
    most: int = 80
    #: clocks may differ by this share, or by so many seconds
    clock_share: float = 0.10
    clock_seconds: float = 5e-6
    #: one go covers so many calls that they take this long together (s), at most ``calls`` of them, this many bytes of
    #: arguments and outputs, the free memory divided by ``go_copies``, and ``go_most`` seconds of the slowest side
    go_seconds: float = 2e-3
    calls: int = 64
    go_bytes: int = 8192 * MIB
    go_copies: int = 8
    go_most: float = 50e-3
    #: the judge keeps the device busy for so long from a go on, so that first launches hide behind it as later ones
    #: hide behind calls; where launching takes less than ``lead_share`` of what the device works, for all sides
    lead_seconds: float = 0.3e-3
    lead_share: float = 0.7
    #: cycles of the fastest device in a second, so that a delay of cycles takes about as long as is asked
    cycles: float = 2.2e9
    #: a go is distinguished from a handshake when what is left of it is this many times what handshakes differ by
    resolve: float = 5.0
    calibration_calls: int = 20
    #: traced calls at most, and seconds after which no more begin
    traced: int = 8
    traced_seconds: float = 0.1
    #: bursts of traced calls at most, and the share by which two may differ that agree
    bursts: int = 4
    burst_share: float = 0.03
    #: a traced call is held back for at least this long, and at most (s), so that the order of its streams shows; and
    #: by how much the device's own stamps of two streams may differ
    delay_least: float = 0.5e-3
    delay_most: float = 20e-3
    stamps: float = 1e-6
    #: the judge's own kernel after the answer may take longer than after a baseline's by so many seconds: one turn of
    #: the device from process to process takes 150e-6, work left running costs one more, and medians of honest workers
    #: differ by up to ``turn_noise`` (H200). After a long go, from which the judge wakes more slowly, it may be
    #: ``clock_share`` of that, up to ``tail_seconds``, within a slice of the device. Over ``turn_noise`` it is counted
    turn_seconds: float = 60e-6
    turn_noise: float = 30e-6
    tail_seconds: float = 200e-6
    #: before a timed call of less than this, another on older contents warms the host's side
    warm_seconds: float = 2e-3
    #: a call whose device time is less than this share of it is bound by its launch
    launch_share: float = 0.5
    #: contents of more bytes are made one at a time
    one_buffer_bytes: int = 2048 * MIB
    #: bytes beyond which the byte floor holds, as a multiple of the L2 cache
    floor_caches: int = 4
    #: resident bytes that a process with a context has beyond another
    context_bytes: int = 8192 * MIB


@dataclass(frozen=True)
class SealRule:
    """When a recorded call counts as sealed."""

    #: contents on which a replay is compared before it is timed
    unseen: int = 2
    #: a replay may take this much longer than the call that it was recorded from, the larger of a share and seconds
    share: float = 0.10
    seconds: float = 2e-6
    #: seconds that one tool of compute-sanitizer may take, and bytes of inputs that it is given
    sanitizer_seconds: float = 60.0
    sanitizer_bytes: int = 512 * MIB


@dataclass(frozen=True)
class EdgeRule:
    """What is tried at the edges of a number format."""

    #: normal float32 numbers times this are denormal
    denormal: float = 2.0**-132
    #: share of elements that are -0 where signs of zeros are looked at
    zeros: float = 0.25
    #: outputs in memory that is so many times what the reference's lie in, and so many bytes more
    oversized: float = 8.0
    oversized_bytes: int = 256 * 1024
    #: share of denormal answers that come as zeros from which they are said to be flushed
    flushed: float = 0.5


@dataclass(frozen=True)
class DrawnRule:
    """Inputs drawn from what a task declares (:mod:`kernellab.verifier.cases.survey`)."""

    #: cases of a verification and of a ranking, those of the solver in addition, and seconds of the judge's own
    #: thread in which they are found; the share of these that is spent before the solver begins
    cases: int = 36
    rank_cases: int = 10
    solved: int = 6
    #: pairs of arguments that get special values at one place
    pairs: int = 3
    #: samples of probabilities and the like that come so near to 0 may be 0
    near_zero: float = 0.02
    seconds: float = 0.8
    rank_seconds: float = 0.3
    #: cases at a size at which a source may have another path, and seconds of this thread for making them
    path_cases: int = 12
    path_seconds: float = 0.25
    #: arguments whose rows are in order at a long size, and seconds of this thread for making these cases
    ordered: int = 2
    ordered_seconds: float = 0.6
    #: the longest rows that are tried far from zero: of more terms plain sums lose too much themselves
    shifted: int = 1 << 14
    #: numbers of a source from here on may be a block's, and places about their multiples that are looked at
    block: int = 16
    seams: int = 4096
    #: seconds of calls in Triton's interpreter, of which each takes ten milliseconds or more
    interpreted: float = 0.4
    #: and of one call with a Dim as long as that allows
    interpreted_long: float = 0.5
    drawing: float = 0.7
    #: of large inputs as many cases as about so many seconds allow, and at least so many: each takes about ``runs``
    #: times what the reference takes, and passes over its data at ``bytes_a_second``
    call_seconds: float = 1.2
    least: int = 8
    runs: float = 6.0
    bytes_a_second: float = 4e8
    #: Dims that are tried at their ends, and bytes of inputs there; sizes at a source's numbers that are tried, those
    #: next to which others are, and bytes there
    ends: int = 3
    end_bytes: int = 4 * MIB
    #: bytes of inputs of which two Dims are long at once, up to the second where the declared sizes have a quarter of
    #: that, where the reference is expected to take at most so long
    long_bytes: tuple[int, int] = (40 * MIB, 64 * MIB)
    long_seconds: float = 0.25
    #: sizes with each Dim in the most of its range, bytes of their inputs, and seconds of the reference
    wide: int = 2
    wide_seconds: float = 0.5
    wide_bytes: int = 128 * MIB
    numbers: int = 16
    named: int = 6
    named_bytes: int = 512 * 1024
    #: magnitudes from this share of an argument's root mean square on are usual ones, which the families have too
    usual: float = 1e-3
    #: how far the solver may go for an edge, and patterns in which it is looked whether equal elements decide
    far: float = 1e6
    ties: int = 6
    #: comparisons of which exact ties are looked for, and the share of the seconds by which that ends
    exact_edges: int = 12
    exact_first: int = 3
    exact_share: float = 1.4
    #: share of an output's root mean square by which the two answers for equal elements must differ then
    apart: float = 0.02
    #: bytes of inputs at which cases are drawn, where the Dims' ranges allow
    case_bytes: int = 256 * 1024
    #: contents of the task's own of one small size that a call each has: at most, seconds of the judge's thread that
    #: draw them, and bytes of one where the Dims allow, and of all
    contents: int = 1024
    contents_seconds: float = 0.2
    contents_call_seconds: float = 1.0
    content_bytes: int = 8 * 1024
    contents_bytes: int = 16 * MIB
    #: relative difference of the reference from its own float64 from which an answer is noise
    noise: float = 0.05


ERROR = ErrorRule()
DRAWN = DrawnRule()
EDGES = EdgeRule()
STATIC = StaticRule()
DEADLINES = Deadlines()
CAPS = Caps()
CORRECT = CorrectRule()
TIMING = TimingRule()
RANK = RankRule()
HONEST = HonestRule()
SEAL = SealRule()
DEVICE = DeviceRule()
