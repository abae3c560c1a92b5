"""A signature and a sentence for each word of the language: for completion, hover help and prompts.

Those of a pointwise operation are in its row of :mod:`kernellab.operations.sketch`; those of structural operations and
of the grammar's words are here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kernellab.operations.sketch import OPS, Op, OpKind
from kernellab.sketch.program.library import LIBRARY, PREFIX


# ruff: noqa: E501 - one entry a line reads as a table
class Entry(NamedTuple):
    """What is said of one operation."""

    signature: str
    sentence: str


#: operations whose arguments are more than operands
_STRUCTURAL: Mapping[str, tuple[str, str]] = {
    "alloc": ("alloc(shape, dtype?, llm_hint=[...])", 'A new tile, undefined unless "init_zero" is among its hints.'),
    "load": ("load(T[slice] -> tile, pad=0)", "Copies a part of a tensor into a tile; past the tensor's edge it reads pad."),
    "store": ("store(value -> T[slice])", "Writes a tile into a part of a tensor; past the tensor's edge it writes nothing."),
    "atomic_add": ("atomic_add(value -> T[slice])", "Adds to a part of a tensor; parallel iterations may meet there."),
    "gather": ("gather(T[ids, a:b] -> tile, pad=0)", "Reads the elements that integer tiles name; an index outside reads pad."),
    "scatter": ("scatter(value -> T[ids, a:b], unique=true, whole=?)", "Writes the elements that integer tiles name, none twice, with whole=true each; outside it writes nothing."),
    "cast": ("cast(x, dtype)", "The same values in another dtype, rounded to it."),
    "bitcast": ("bitcast(x, dtype)", "The bits of each element read as another dtype of as many bytes."),
    "round_tf32": ("round_tf32(x)", "The f32 values with TF32's 10 bits of mantissa, rounded to the nearest as cuDNN does."),
    "dot": ("c = dot(a, b, precision=?)", "The matrix product, in a new tile."),
    "gemm": ("gemm(a, b, acc, precision=?)", "Adds the matrix product a @ b to acc; it gives no value."),
    "transpose": ("transpose(x)", "The tile with its last two axes exchanged."),
    "reshape": ("reshape(x, [a, b])", "The same elements in order, in another shape."),
    "broadcast": ("broadcast(x, [a, b])", "The tile repeated along axes of extent 1, by NumPy's rule."),
    "concat": ("concat(a, b, axis=0)", "Two tiles one behind the other along an axis."),
    "arange": ("arange(n)", "The i64 tile 0, 1, ... n-1; it makes masks."),
    "full": ("full([n], value, dtype?)", "A tile with one value everywhere."),
    "reduce_sum": ("reduce_sum(x, axis=?, keepdims=false)", "The sum along an axis; padding counts unless it is 0."),
    "reduce_prod": ("reduce_prod(x, axis=?, keepdims=false)", "The product along an axis; load with pad=1."),
    "reduce_max": ("reduce_max(x, axis=?, keepdims=false)", "The largest along an axis, NaN wins; load with pad=-inf."),
    "reduce_min": ("reduce_min(x, axis=?, keepdims=false)", "The smallest along an axis, NaN wins; load with pad=inf."),
    "reduce_mean": ("reduce_mean(x, axis=?, keepdims=false)", "The mean along an axis of a tile that is never padded."),
    "reduce_any": ("reduce_any(x, axis=?, keepdims=false)", "Is any element true along an axis?"),
    "argmax": ("argmax(x, axis=?)", "The i64 index of the first largest element; NaN wins."),
    "argmin": ("argmin(x, axis=?)", "The i64 index of the first smallest element; NaN wins."),
    "welford": ("mean, var = welford(x, axis=?)", "Mean and biased variance in one stable pass, of a tile never padded."),
    "sort": ("values, order = sort(x, axis=?, descending=false)", "The elements in stable order and where they were; NaN is the greatest."),
    "topk": ("values, order = topk(x, K, axis=?, largest=true)", "The first K of the stable order, largest first, and where they were."),
    "cumsum": ("cumsum(x, axis=?, reverse=false)", "Running sums along an axis; reverse runs from its end."),
    "cumprod": ("cumprod(x, axis=?, reverse=false)", "Running products along an axis."),
    "cummax": ("cummax(x, axis=?, reverse=false)", "Running maxima along an axis."),
    "cummin": ("cummin(x, axis=?, reverse=false)", "Running minima along an axis."),
    "associative_scan": (
        'associative_scan("add|mul|max|min", x, axis=?, reverse=false)',
        "A scan by add, mul, max, min, or linear with two tiles: h[i] = a[i] * h[i-1] + b[i].",
    ),
    "softmax": ("softmax(x, axis=-1)", "exp(x - max) over its sum along an axis; keeps the shape."),
}  # fmt: skip
STRUCTURAL: Mapping[str, Entry] = {name: Entry(*texts) for name, texts in _STRUCTURAL.items()}

#: operations that are written only as a symbol or as ``x[:, None]``
HIDDEN = frozenset(("newaxis",))

HINTS: Mapping[str, str] = {
    "parallel": "Iterations are independent and may run at once, in any order.",
    "grididx": "Where a parallel loop goes: programs of the grid, or cores.",
    "grididx.x": "The grid's first axis.",
    "grididx.y": "The grid's second axis.",
    "grididx.z": "The grid's third axis.",
    "coreidx": "Where a parallel loop goes: cores.",
    "threadidx": "Where a parallel loop goes: threads of a block.",
    "threadidx.x": "The block's first axis.",
    "threadidx.y": "The block's second axis.",
    "threadidx.z": "The block's third axis.",
    "warp": "Where a parallel loop goes: warps of a block.",
    "vectorize": "One iteration a lane of a vector.",
    "simd": "One iteration a lane of a vector.",
    "unroll": "Repeat the body: as many times as the number after it.",
    "pipeline": "Overlap the loads of later iterations with this one's work, in that many stages.",
    "persistent": "One program a core, walking over many tiles.",
    "swizzle": "Visit the tiles of a grid in groups, so that neighbours share cache.",
    "split": "Divide a reduction loop among programs; only for values carried by +, *, min, max, gemm or welford.",
    "copy_engine": "The chip's copy engine fills the buffers of a pipeline loop, and threads wait for barriers.",
    "warp_roles": "One warp loads, the others multiply: in so many groups, each with a share of the tile's rows.",
    "in_turn": "Groups of warps compute whole tiles in turn: one stores while the next multiplies.",
    "registers": "How many registers each thread of a group that multiplies has.",
    "ahead": "Products are issued before earlier work is done, and awaited where their result is read.",
    "async_store": "Results leave through the copy engine while the next tile is computed, in so many parts.",
    "cluster": "So many blocks that follow each other along this loop share what they all load.",
    "team": "Programs of one tile share out the iterations, and wait for each other after the loop.",
    "fastest": "Keep the tile in registers.",
    "fast": "Keep the tile in shared memory, or L1.",
    "medium": "Keep the tile in L2.",
    "slow": "Keep the tile in global memory.",
    "accumulator": "The tile gathers sums: f32 for narrower dtypes.",
    "input_cache": "The tile holds what was loaded.",
    "output_buffer": "The tile holds what will be stored.",
    "temp_workspace": "The tile holds what lies between.",
    "shared_between_threads": "Threads of a block share the tile.",
    "init_zero": "The tile starts at zero.",
    "no_init": "The tile starts undefined, which is the default.",
}

DTYPES: Mapping[str, str] = {
    "f64": "64-bit float", "f32": "32-bit float", "f16": "16-bit float", "bf16": "bfloat16: f32's range, 8 bits",
    "f8e4m3": "8-bit float, 3 bits of mantissa", "f8e5m2": "8-bit float, 2 bits of mantissa",
    "i64": "64-bit integer", "i32": "32-bit integer", "i16": "16-bit integer", "i8": "8-bit integer",
    "u8": "8-bit unsigned integer", "bool": "true or false",
}  # fmt: skip

KEYWORDS: Mapping[str, str] = {
    "sketch": "sketch name { ... }: one launch.",
    "symbols": "symbols: M, N = 4096; sizes that the call's tensors give; one with a value is that size in this task.",
    "tensors": "tensors: X[M, N]: f32; Y[M]: f32 out; what is read and written; in is the default.",
    "constexpr": "constexpr: BLOCK = 64 in {32, 64}; numbers known when the code is built; a set makes one tunable.",
    "require": "require: BLOCK >= 128; a constraint on constexprs; a person's is kept by every revision.",
    "opaque": "opaque: fft(x[N]: f32) -> [N]: f32; an operation that only a model or a person can write.",
    "for": "for i in range(a, b, step): a loop; @llm_hint before it says how it runs.",
    "in": "for i in range(...); in a declaration, a set of choices or the role of a tensor.",
    "range": "range(n), range(a, b) or range(a, b, step), in elements.",
    "if": "if condition: of indices and constexprs only; for tiles write where(...).",
    "elif": "another condition.",
    "else": "where no condition held.",
    "llm_hint": '@llm_hint("parallel", "coreidx") before a loop; llm_hint=[...] in alloc.',
    "out": "The tensor is written, fully, and not read.",
    "inout": "The tensor starts with the caller's contents and is written.",
    "temp": "The tensor lives in global memory between the sketches of a file.",
    "ceil": "ceil(a, b): ceiling division of indices.",
}

PRECISIONS: Mapping[str, str] = {
    "ieee": "full f32 products", "tf32": "10 bits of mantissa", "tf32x3": "three tf32 products, near f32",
    "bf16x3": "three bf16 products", "bf16x6": "six bf16 products, near f32", "bf16": "one bf16 product",
}  # fmt: skip


def operations() -> list[str]:
    """Return every operation that is written by name."""
    library = (f"{PREFIX}{name}" for name in LIBRARY)
    return [name for name in dict.fromkeys([*STRUCTURAL, *OPS, *library]) if name not in HIDDEN]


def signature(name: str) -> str:
    """Return an operation's signature. Raises KeyError for an unknown one."""
    if name in STRUCTURAL:
        return STRUCTURAL[name].signature
    if name.startswith(PREFIX):
        return LIBRARY[name.removeprefix(PREFIX)].signature
    return f"{name}({', '.join('abc'[: OPS[name].arity])})"


def sentence(name: str) -> str:
    """Return a sentence on what an operation does. Raises KeyError for an unknown one."""
    if name in STRUCTURAL:
        return STRUCTURAL[name].sentence
    if name.startswith(PREFIX):
        return f"{LIBRARY[name.removeprefix(PREFIX)].doc} A call of the framework, alone in its sketch."
    op = OPS[name]
    spelling = f"a {op.symbol} b" if op.arity > 1 else f"{op.symbol}x"
    written = f", also written {spelling}" if op.symbol else ""
    return f"Elementwise {_meaning(op)}{written}."


def _meaning(op: Op) -> str:
    words = op.torch.replace("torch.nn.functional.", "").replace("torch.", "")
    return f"{words} (a comparison: bool)" if op.kind is OpKind.COMPARE else words
