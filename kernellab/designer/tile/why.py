"""The sentences above a launch that describe how it runs."""

from __future__ import annotations

from kernellab.designer.ir.launch import Launch

POINTWISE = ("Pointwise: each element is read once and written once.",)
#: used if loads overlap, or a load does not vary along every axis
REREAD = ("Pointwise: each element is written once.",)
ONCE_FOR_ALL = ("What does not vary along the loop inside a tile is computed once for all of it.",)
WHOLE_ROW = ("A whole row is one tile: it is read once, and every pass finds it close by.",)
SIDE_BY_SIDE = ("Rows are shorter than a vector: neighbouring rows are reduced side by side.",)
COLUMNS = ("Columns side by side share each load; the reduction runs down them.",)
ONLINE = ("Each lane keeps what its elements come to so far: one read of the row gives two reductions.",)
#: a loop that begins before its row
FROM_VECTOR = "Rows are no whole number of vectors: each loop begins at the vector that holds its row's first element."
PASSES = ("One pass over the row for each reduction that needs the one before.",)
SORTED = ("A whole row is put in order on chip; equal elements keep theirs.",)
CARRIED = ("The scan carries from block to block; rows are independent.",)
ONE_BY_ONE = ("The scan runs element by element; rows are independent.",)
ONCE_EACH = ("Each element goes to the place that its index names; no place is named twice.",)
ROUTED = ("Each matrix is read once: its product with every row is stored where the row's index names the matrix.",)
GROUPED = ("A tile's rows lie at an offset, and have one matrix; rows past their group's end are not stored.",)
ANY_ORDER = ("Additions meet at one element in any order: its last bits may differ from run to run.",)
IN_ORDER = ("Columns are shared out and the indices come in order: the sums are the same in every run.",)
#: launches whose outputs have a special purpose
SUMS = ("Of a product only sums are asked: sums of the factors are multiplied, the product is never made.",)
PARTS = ("A factor as the sum of three bf16 parts, in rows of whole lines, for tensor cores to read.",)
HALVES = (
    "A factor as the sum of two f16 parts, each row scaled into their range by a power of two, for tensor cores.",
)
SCALES = ("The powers of two by which float16 takes each sample, or each channel's weights, and back.",)
#: launches that work on one piece of an axis each
CHUNK = ("One partial result a chunk, so that the whole chip works on one long reduction.",)
CHUNK_OF_KEYS = "Programs share out the keys of a head; the next launch joins what their pieces come to."
CHUNK_OF_SCAN = ("Each program scans a piece of the axis, from what the pieces before it come to.",)
COPIED = "What one position sums lies side by side in the copy: 16 bytes a lane, and rows that tensor cores take."
UNFOLDED = "Taps stand next to the channels, so that the products are not of a few elements."

_PRODUCT = "A tile of the product stays in registers while K streams past; the rest is done on the way out."
_PARTS = "Each factor is the sum of three bf16 parts; six products of parts make one of f32."
_EMULATED = {
    "tf32x3": "Three TF32 products make one of f32: closer to float64 than a chain of f32 additions.",
    "bf16x6": "Six bf16 products make one of f32: closer to float64 than a chain of f32 additions.",
}
#: windows whose factors are float16: with one product, or three
SCALED = "The factors are f16, which has TF32's bits of mantissa at twice its rate; the sums are scaled back."
TWO_HALVES = "Each factor is the sum of two f16 parts; three products of parts make one of f32, which is scaled back."
TWO_PARTS = ("Each factor is the sum of two TF32 parts; three products of parts make one of f32.",)
_ONLINE = "The softmax runs online: a larger score scales down what the rows have so far; no score is stored."
_BINARY = "Scores are in units of ln 2, so that exp2 does for exp."


def product(precision: str, parts: int) -> tuple[str, ...]:
    """Return the sentences for a product; ``parts``: the number of narrower floats that add up to a stored factor, or
    0."""
    return ({2: TWO_HALVES, 3: _PARTS}[parts],) if parts else (_PRODUCT, *split(precision))


def split(precision: str) -> tuple[str, ...]:
    """Return the sentence for float32 products computed from narrower ones; () for others."""
    return (_EMULATED[precision],) if precision in _EMULATED else ()


def attention(parts: bool, binary: bool, pieces: bool = False) -> tuple[str, ...]:
    """Return the sentences for an attention.

    ``binary``: the exponentials are powers of two; ``pieces``: programs share pieces of the keys.
    """
    words = ((_PARTS, parts), (_BINARY, binary), (CHUNK_OF_KEYS, pieces))
    return (_ONLINE, *(sentence for sentence, holds in words if holds))


DEEP = "Neighbouring taps and their channels are the depth of one product: a group has few channels."
_OVER_COPY = "A product for each tap that is left: rows of the copy under a tile of outputs, and rows of weights."
_IN_PLACE = "Each tap's channels are multiplied as matrices; the input is read in place, the edge rule pads it."
_JOINED = "The taps of a tile of outputs are joined one by one; neighbouring reads meet in the cache."
_STAY = "The weights stay on chip while a program's tiles of positions stream past."
_PHASES = "Outputs of one phase (position % stride) read the same taps: no work on the zeros between."


_ROUNDED = "What is read is rounded to the nearest TF32 first: tensor cores would cut it off."


def window(copied: bool, product: bool, stay: bool, phases: bool, rounded: bool) -> tuple[str, ...]:
    """Return the sentences for a window.

    ``copied``: over a copy, channels last; ``stay``: the weights stay on chip; ``phases``: outputs run by phase;
    ``rounded``: the input is rounded as it is read.
    """
    form = _OVER_COPY if copied else _IN_PLACE if product else _JOINED
    return (form, *([_ROUNDED] if rounded else []), *([_STAY] if stay else []), *([_PHASES] if phases else []))


GRADIENT = "At each tap a product over samples and positions: tiles of both factors are read where they lie."

CHAIN = (
    "Tiles of the scores are made again from what each row's softmax divides by, and multiplied at once.",
    "No two programs add to one element.",
)


def pointwise(k: Launch) -> tuple[str, ...]:
    """Return ``POINTWISE`` if no element is read twice, else ``REREAD``.

    An element may be read twice if a tensor is loaded at two places, if a load is constant along an axis, or if an
    index that is a value or a window selects an element repeatedly.
    """
    loads = k.loads
    distinct = len({e.tensor for e in loads}) == len(loads)
    once = distinct and all(
        all(ix.at is None and ix.win is None for ix in e.index) and k.par <= frozenset(e.opens) for e in loads
    )
    return POINTWISE if once else REREAD
