"""Hidden sizes of a task's Dims: next to the declared ones, at the ends of the ranges, powers of two, primes, and the
numbers that appear in a source.

Each function draws some sizes in secret and keeps those that the task accepts and whose inputs have at most so many
bytes. ``full`` are the task's own sizes, ``numbers`` those of the source
(:mod:`kernellab.verifier.cases.source_numbers`); a number outside of a Dim's range is moved into it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, combinations_with_replacement, cycle, permutations
from math import exp, lcm, log, log2

from kernellab.task import Task
from kernellab.task.sample.sizes import input_bytes, runs_at
from kernellab.verifier.cases import device
from kernellab.verifier.protocol.rules import CORRECT, DEVICE, DRAWN

Sizes = dict[str, int]

#: Number of draws of a size until the task accepts one.
_TRIES = 12


def secret_sizes(task: Task, full: Mapping[str, int], size: int) -> list[Sizes]:
    """Return unpredictable sizes: one next to the full size, one up to half as large again, and two from the whole Dim
    ranges, log-uniform, one of which has a Dim uniform in its range. Only sizes that the task accepts, of at most twice
    the full size's bytes."""
    draw = random.SystemRandom()
    draw_size, most = _anywhere(task, draw), _most(size)
    wanted: list[Callable[[], Sizes]] = [
        lambda: {
            k: _inside(task, k, n + draw.choice((-1, 1)) * draw.choice((1, 1, 2, 3, 5, 7))) for k, n in full.items()
        },
        lambda: {k: _inside(task, k, n * draw.choice((1, 1.5))) for k, n in full.items()},
        lambda: {k: draw_size(k) for k in full},
        lambda: _evenly(task, full, most),
    ]
    return _taken(task, wanted, most, [dict(full)])


def more_sizes(task: Task, full: Mapping[str, int], size: int) -> Iterator[Sizes]:
    """Yield, without end, sizes in which each Dim in turn is uniform in its range: a kernel that is wrong at a tenth of
    all sizes would pass most verdicts that draw only one."""
    most = _most(size)
    for draw in cycle((_evenly, large)):
        yield from _taken(task, [partial(draw, task, full, most)], most, [], tries=3) or [dict(full)]


def large(task: Task, full: Mapping[str, int], most: int) -> Sizes:
    """Draw each Dim secretly from the upper three quarters of its range; shorten Dims one after another if the inputs
    exceed ``most`` bytes."""
    names = [d.name for d in task.dims]
    _SYSTEM.shuffle(names)
    ends = {d.name: max(d.max, 1) for d in task.dims}
    sizes = {k: _inside(task, k, _SYSTEM.randint(max(ends[k] // 4, 1), ends[k])) for k in names}
    for name in names:
        if input_bytes(task, sizes) <= most:
            break
        longest = _longest(task, sizes, (name,), most)[name]
        sizes[name] = _inside(task, name, _SYSTEM.randint(min(max(longest // 2, 1), longest), longest))
    return sizes


def _evenly(task: Task, full: Mapping[str, int], most: int) -> Sizes:
    draw = random.SystemRandom()
    draw_size, name = _anywhere(task, draw), draw.choice(list(full))
    sizes = {k: draw_size(k) for k in full}
    return {**sizes, name: draw.randint(_inside(task, name, 1), _longest(task, sizes, (name,), most)[name])}


def _most(size: int) -> int:
    return max(2 * size, CORRECT.family_bytes)


def asked(task: Task, full: Mapping[str, int], sizes: Sequence[Sizes]) -> list[Sizes]:
    """Return each of ``sizes`` with the other Dims as in ``full``, or short if that would exceed the memory limit."""
    short = {d.name: _inside(task, d.name, 3) for d in task.dims}
    most = max(2 * input_bytes(task, dict(full)), DRAWN.end_bytes)
    alternatives = [({**full, **requested}, {**short, **requested}) for requested in sizes]
    return [whole if input_bytes(task, whole) <= most else less for whole, less in alternatives]


def at_ends(task: Task, full: Mapping[str, int]) -> list[Sizes]:
    """Return sizes with each Dim as long as its range and memory allow, with the others short and with the others as
    declared; and one with all Dims large."""
    draw = random.SystemRandom()
    short = {d.name: _inside(task, d.name, draw.choice((1, 2, 3, 5))) for d in task.dims}
    most, bounds = DRAWN.end_bytes, {d.name: d for d in task.dims}
    wanted: list[Callable[[], Sizes]] = []
    for name in list(full)[: DRAWN.end_dims]:
        others = {k: n for k, n in short.items() if k != name}
        if _longest(task, others, (name,), most)[name] < bounds[name].max:
            others = {k: max(bounds[k].min, 1) for k in others}
        wanted.append(partial(_longest, task, others, (name,), most))
    if len(full) > 1:
        for name in list(full)[: DRAWN.end_dims]:
            others = {k: n for k, n in full.items() if k != name}
            wanted.append(partial(_longest, task, others, (name,), most))
        wanted.append(lambda: alike(task, most))
    return _taken(task, wanted, most, [dict(full)], tries=2)


def two_long(task: Task, full: Mapping[str, int], longest: int = 0) -> Sizes:
    """Return sizes with two secretly drawn Dims (or the only one) as long and as equal as a memory limit allows, at
    most ``longest`` bytes if not 0; the other Dims are as declared."""
    names = random.SystemRandom().sample(list(full), min(2, len(full)))
    least, most = DRAWN.long_bytes
    if device.current() != "cpu":
        least, most = (min(n, device.free() // DEVICE.long_share) for n in DEVICE.long_bytes)
    budget = min(most, max(least, 4 * input_bytes(task, full)))
    return _longest(task, full, names, min(budget, longest or budget))


def alike(task: Task, most: int) -> Sizes:
    """Return sizes with all Dims as long and as equal as their ranges and ``most`` bytes of inputs allow."""
    return _longest(task, {}, tuple(d.name for d in task.dims), most)


def of_numbers(task: Task, full: Mapping[str, int], numbers: Sequence[int]) -> list[Sizes]:
    """Return small sizes at powers of two and next to them, at a prime, at two and three, past 64 with each remainder
    of four, with each Dim a multiple of 64, empty and one, and past the ``numbers`` of a source and their multiples,
    where branches and tiles begin."""
    draw = random.SystemRandom()

    def power() -> Sizes:
        ends = {d.name: max(1, int(log2(max(d.max, 2)))) for d in task.dims}
        return {k: _inside(task, k, 1 << draw.randint(1, end)) for k, end in ends.items()}

    def near() -> Sizes:
        return {k: _inside(task, k, n + draw.choice((-1, 1))) for k, n in power().items()}

    def prime() -> Sizes:
        return {d.name: _inside(task, d.name, draw.choice(_PRIMES)) for d in task.dims}

    def all_of(size: int) -> Sizes:
        return {d.name: _inside(task, d.name, size) for d in task.dims}

    def unrolled(names: Sequence[str], rest: int) -> Sizes:
        sizes = {d.name: _inside(task, d.name, draw.choice((2, 3, 5))) for d in task.dims}
        first = 4 * draw.randint(17, 31)
        return sizes | {name: _inside(task, name, first + (rest + i) % 4) for i, name in enumerate(names)}

    names = list(full)
    wanted: list[Callable[[], Sizes]] = [power, near, prime, partial(all_of, 2), partial(all_of, 3)]
    # Loops are unrolled by two and four: use each remainder of each Dim, two Dims at a time.
    wanted += [partial(unrolled, names[i : i + 2], rest) for i in range(0, len(names), 2) for rest in range(4)]
    wanted += [partial(_named, task, name, 64 * draw.randint(1, 8)) for name in names[: DRAWN.end_dims]]
    # Each Dim empty, if allowed, and at one, with the others short and also longer than some tiles.
    smallest = [(d.name, n) for d in task.dims for n in dict.fromkeys((d.min, 1)) if d.min <= n < 2]
    wanted += [partial(_named, task, *named) for named in smallest]
    wanted += [partial(_named, task, *named, others=(draw.randint(65, 320),)) for named in smallest if len(names) > 1]
    least = len(wanted)
    for number in numbers:
        for dim in task.dims:
            if dim.min <= number <= dim.max and number != full[dim.name]:
                wanted += [partial(_named, task, dim.name, n) for n in (number + 1, number * draw.choice((2, 3)))]
    del wanted[least + 2 * DRAWN.equal_literals :]
    return _taken(task, wanted, DRAWN.literal_bytes, [dict(full)], tries=3)


def at_numbers(task: Task, full: Mapping[str, int], numbers: Sequence[int]) -> list[Sizes]:
    """Return sizes with each Dim at each of the ``numbers`` of a source, the others short, and with all Dims at one of
    them or at a power of two, since a kernel may be wrong only there."""
    inside = [(d.name, n) for n in numbers for d in task.dims if d.min <= n <= d.max and n != full[d.name]]
    common_multiples = multiples(numbers)
    inside = inside[: DRAWN.literal_sizes]
    for dim in task.dims:
        fitting = [m for m in common_multiples if dim.min <= m <= dim.max and m != full[dim.name]]
        inside += [(dim.name, m) for m in fitting[:_OF_TWO]]
    # A branch may begin at a whole number of blocks, such as the block length squared.
    blocks = [n for n in numbers if 8 <= n <= _LARGEST_TILE]
    products = sorted(m * n for m, n in combinations_with_replacement(blocks, 2))
    for dim in task.dims:
        inside += [(dim.name, n) for n in [m for m in products if dim.min <= m <= dim.max][:_OF_TWO]]
    wanted = [partial(_named, task, *named) for named in inside]
    sizes = _taken(task, wanted, DRAWN.literal_bytes, [dict(full)], tries=3)
    if len(task.dims) < 2:
        return sizes
    shared = [n for n in numbers if all(d.min <= n <= d.max for d in task.dims)][: DRAWN.equal_literals]
    shared += [64 << _SYSTEM.randrange(4)]
    equal_dims = [partial(lambda n: {d.name: _inside(task, d.name, n) for d in task.dims}, n) for n in shared]
    return sizes + _taken(task, [*equal_dims, *_past(task, numbers)], DRAWN.end_bytes, [dict(full), *sizes], tries=1)


def _past(task: Task, numbers: Sequence[int]) -> list[Callable[[], Sizes]]:
    """Return sizes with two secretly drawn Dims past the largest of the ``numbers`` that memory allows, each a multiple
    of 64 or not: a branch for large even sizes may omit the remainder of the other Dim."""
    pair = _SYSTEM.sample([d.name for d in task.dims], 2)
    short = {d.name: _inside(task, d.name, _SYSTEM.choice((2, 3, 5))) for d in task.dims}

    def sizes(number: int, rests: Sequence[int]) -> Sizes:
        first = number // 64 * 64 + 64
        return {**short, **{name: _inside(task, name, first + rest) for name, rest in zip(pair, rests, strict=True)}}

    ends = [d.max for d in task.dims if d.name in pair]
    fitting = [n for n in (64, *numbers) if n < min(ends) and input_bytes(task, sizes(n, (63, 63))) <= DRAWN.end_bytes]
    rest = _SYSTEM.randrange(1, 64)
    kinds = ((0, rest), (rest, 0), (0, 0), (rest, rest)) if fitting else ()
    return [partial(sizes, max(fitting), rests) for rests in kinds] + _one_ragged(task, numbers)


def _one_ragged(task: Task, numbers: Sequence[int]) -> list[Callable[[], Sizes]]:
    """Return sizes with each Dim past a number with a remainder, all others whole tiles; and the first one at its
    least, as where one row is decoded: a path for aligned Dims or for one row may leave out the remainder of
    another."""
    tiles = {d.name: _inside(task, d.name, 64) for d in task.dims}
    least = {d.name: max(d.min, 1) for d in task.dims[:1]}
    draws: list[Callable[[], Sizes]] = []
    for dim in task.dims if len(task.dims) > 1 else ():
        past = max((n for n in numbers if n < min(dim.max, _LARGEST_TILE)), default=64)
        rest = _SYSTEM.randrange(1, 16, 2)
        long = {dim.name: _inside(task, dim.name, max(past, 512) // 64 * 64 + 64 + rest)}
        near = {dim.name: _inside(task, dim.name, past // 64 * 64 + 64 + rest)}
        draws.append(partial(dict, {**tiles, **near}))
        if dim.name not in least:
            draws.append(partial(dict, {**tiles, **least, **long}))
    return draws


def multiples(numbers: Sequence[int]) -> list[int]:
    """Return the least common multiples of two of the ``numbers`` that are not among them, ordered by how many numbers
    divide them: an unrolled tile has no remainder there."""
    tile_numbers = [n for n in numbers if 1 < n <= _LARGEST_TILE]
    common = {lcm(a, b) for a, b in combinations(tile_numbers, 2)} - {*numbers}
    return sorted(common, key=lambda n: (-sum(n % m == 0 for m in tile_numbers), n))


def _named(task: Task, name: str, number: int, others: Sequence[int] = (2, 3, 5, 17)) -> Sizes:
    sizes = {d.name: _inside(task, d.name, _SYSTEM.choice(others)) for d in task.dims}
    return {**sizes, name: _inside(task, name, number)}


def beyond_tiles(task: Task, numbers: Sequence[int]) -> list[Sizes]:
    """Return sizes for an interpreter, whose other sizes are small: each Dim in turn slightly longer than two of the
    largest tiles in the source, the others short, to test transitions between tiles. Likewise past the largest number
    in it."""
    tile = max((n for n in numbers if n & (n - 1) == 0 and 8 <= n <= _LARGEST_TILE), default=0)
    short = {d.name: _inside(task, d.name, 3) for d in task.dims}
    longer = [{**short, d.name: _inside(task, d.name, 2 * tile + 1)} for d in task.dims if tile and d.max > tile]
    # One program per row takes a millisecond in the interpreter.
    far = {d.name: min(d.max - 2, 4 * _LARGEST_TILE) for d in task.dims}
    most = {d.name: max((n for n in numbers if 2 * tile < n < far[d.name]), default=0) for d in task.dims}
    longer += [{**short, name: number + 3} for name, number in most.items() if number]
    return _taken(task, [partial(dict, sizes) for sizes in longer], DRAWN.literal_bytes, [], tries=1)


_SYSTEM = random.SystemRandom()
_LARGEST_TILE = 2048
#: Number of common multiples, and of products, of two source numbers used for each Dim.
_OF_TWO = 4
_PRIMES = (7, 13, 31, 61, 127, 131, 257, 509, 997, 1009)


def at_pairs(task: Task, full: Mapping[str, int], pairs: Sequence[tuple[int, int]]) -> list[Sizes]:
    """Return sizes with two Dims at the numbers of one of the ``pairs``, in either order, the others short; a drawn
    few if there are many. The pairs of larger numbers come first: small ones are sizes of the other cases too."""
    dims = {d.name: d for d in task.dims}
    inside = [
        {one: a, other: b}
        for a, b in pairs for one, other in permutations(dims, 2)
        if dims[one].min <= a <= dims[one].max and dims[other].min <= b <= dims[other].max
    ]  # fmt: skip
    _SYSTEM.shuffle(inside)
    inside.sort(key=lambda sizes: min(sizes.values()) < _SMALL)
    short = {d.name: _inside(task, d.name, 3) for d in task.dims}
    # each is tried with the reference: a table of numbers has hundreds
    few = inside[: _TRIED * DRAWN.paired_literals]
    wanted: list[Callable[[], Sizes]] = [partial(dict, {**short, **sizes}) for sizes in few]
    return _taken(task, wanted, DRAWN.literal_bytes, [dict(full)], tries=1)[: DRAWN.paired_literals]


#: Numbers below this are often no sizes: axes, counts, factors.
_SMALL = 5
#: How many sizes at pairs are tried for each that is wanted: the task may refuse some.
_TRIED = 4


def of_paths(task: Task, numbers: Sequence[int]) -> list[Sizes]:
    """Return sizes at which a source may take another path than at small odd ones: each Dim a multiple of 64, and each
    Dim in turn past the largest of the ``numbers``, or long if there are none."""
    tiles = {d.name: _inside(task, d.name, 64) for d in task.dims}
    wanted: list[Callable[[], Sizes]] = [partial(dict, tiles)]
    for dim in sorted(task.dims, key=lambda d: (-d.max, random.random())):
        named = max((n for n in numbers if n < dim.max), default=0)
        beyond = max(named, _LONG) // 64 * 64 + 64
        short = {name: _inside(task, name, min(size, max(3, tiles[dim.name] // 8))) for name, size in tiles.items()}
        wanted.append(partial(dict, {**short, dim.name: _inside(task, dim.name, beyond)}))
    return _taken(task, wanted, DRAWN.literal_bytes, [], tries=1)[: CORRECT.path_sizes]


#: Row length from which a kernel may use another path than for short rows.
_LONG = 2048


def _longest(task: Task, others: Mapping[str, int], names: Sequence[str], most: int) -> Sizes:
    """Return sizes with the Dims ``names`` as long as ``most`` bytes allow, equal if there are several."""
    bounds = {d.name: d for d in task.dims}

    def at(extent: float) -> Sizes:
        return {k: _inside(task, k, extent) if k in names else others[k] for k in bounds}

    low, high = 1.0, float(max(bounds[k].max for k in names))
    if input_bytes(task, at(high)) <= most:
        return at(high)
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if input_bytes(task, at(middle)) <= most else (low, middle)
    return at(low)


def _anywhere(task: Task, draw: random.SystemRandom) -> Callable[[str], int]:
    dims = {d.name: d for d in task.dims}

    def drawn(name: str) -> int:
        low, high = max(dims[name].min, 1), max(dims[name].max, 1)
        return _inside(task, name, round(exp(draw.uniform(log(low), log(high)))))

    return drawn


def _inside(task: Task, name: str, n: float) -> int:
    dim = next(d for d in task.dims if d.name == name)
    return max(dim.min, min(dim.max, int(n)))


def _taken(
    task: Task, wanted: Sequence[Callable[[], Sizes]], most: int, known: list[Sizes], tries: int = _TRIES
) -> list[Sizes]:
    """Return one new size from each function in ``wanted`` that the task accepts and that has at most ``most``
    bytes."""
    accepted: list[Sizes] = []
    for make in wanted:
        for sizes in _shorter(task, make, most, tries):
            if sizes not in known and sizes not in accepted and runs_at(task, tuple(sizes.items())):
                accepted.append(sizes)
                break
    return accepted


def _shorter(task: Task, make: Callable[[], Sizes], most: int, tries: int) -> Iterator[Sizes]:
    for _ in range(tries):
        sizes = make()
        if input_bytes(task, sizes) <= most:
            yield sizes
