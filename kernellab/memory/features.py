"""Features of an operator that need no model: what it computes, as a vector, and how large it is, as another.

The logic vector hashes the canonical labels of the captured graph (feature hashing, Weinberger et al. 2009); heavy
operations weigh more than pointwise ones. The shape vector holds base-2 logarithms of the extents, alignment, dtype
and layout. A model or a person may add words, and no one has to (paper, Algorithm 2, step 1, without the model).
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernellab.capture import Graph
from kernellab.capture.family import family_of
from kernellab.memory.canonical import Canonical, canonical, word_for
from kernellab.operations.aten import ATEN, Role
from kernellab.task import Task

#: dimensions of the two vectors; a change is a new version of the store
LOGIC = 256
#: places that a label is hashed to: with several, two labels that share one are still apart
_PLACES = 3
SHAPE = 32
#: extents that the shape vector tells of, a tensor: the last ones
_EXTENTS = 4
#: tensors whose extents it tells: the first output, then the largest inputs
_TENSORS = 4
_DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "int64")
#: roles whose operations choose or move elements count as one
_MOVES = (Role.TURN, Role.PART, Role.MOVE)
#: words of one family; their kernels have the same structure
_FAMILY: Mapping[str, str] = {
    row.word: "move" if row.role in _MOVES else row.role.value for row in ATEN.values() if row.structural
}
#: what an operation that the framework has whole consists of, so that the same written out is near it
_PARTS: Mapping[str, tuple[str, ...]] = {row.word: row.parts for row in ATEN.values() if row.parts}
#: what the whole graph is about: the same written out and by name are of one family
_OF_TASK = 2.0
#: how much each kind of label says: family, word, word with its attributes, with its operands, with theirs
_OF_FAMILY, _OF_WORD, _OF_PART, _BY_DEPTH = 1.6, 1.2, 0.5, (0.6, 0.5, 0.4)
#: a word of no family is pointwise, and says less of a kernel's structure
_POINTWISE = 0.45


@dataclass(frozen=True)
class Features:
    """An operator's features. ``hash`` names the computation without names, sizes and dtypes.

    ``logic`` has :data:`LOGIC` numbers of length 1, ``shape`` has :data:`SHAPE`.
    """

    hash: str
    labels: Mapping[str, int]
    words: Mapping[str, int]
    logic: np.ndarray
    shape: np.ndarray
    dtype: str


def features(
    task: Task, graph: Graph, sizes: Mapping[str, int] | None = None, words: Sequence[str] = ()
) -> Features:  # fmt: skip
    """The features of ``task`` at ``sizes`` (its default sizes when None).

    ``words`` are operations that a person or a model names in addition to those of the graph (``softmax``,
    ``product``): they make kernels with them nearer. The computation's name stays that of the graph.
    """
    form = canonical(graph)
    sizes = task.module().default_sizes() if sizes is None else sizes
    floats = [a.dtype for a in task.tensors if a.is_float] or [a.dtype for a in task.tensors] or ["float32"]
    logic = logic_vector(form, family_of(graph).value, words)
    return Features(form.hash, form.labels, form.words, logic, shape_vector(task, sizes), floats[0])


def logic_vector(form: Canonical, family: str = "", words: Sequence[str] = ()) -> np.ndarray:
    """Families, words, parts and labels hashed into :data:`LOGIC` signed places, by log2(1 + count); of length 1.

    What is ``words`` weighs as an operation of the graph does.
    """
    weighted: defaultdict[str, float] = defaultdict(float)
    if family:
        weighted[f"task {family}"] += _OF_TASK
    for label, count in [*form.words.items(), *((word_for(name), 1) for name in words)]:
        base, times = label.split(" ", 1)[0], math.log2(1 + count)
        if base in _FAMILY:
            weighted[f"family {_FAMILY[base]}"] += _OF_FAMILY * times
        weighted[f"word {base}"] += _OF_WORD * times * _structural(base)
        for part in _PARTS.get(base, ()):
            weighted[f"word {part}"] += _OF_PART * times * _structural(part)
            if part in _FAMILY:
                weighted[f"family {_FAMILY[part]}"] += _OF_PART * times
    for label, count in form.labels.items():
        depth = min(label.count("("), 1) + ("(" in label and "," not in label)
        weighted[label] += _BY_DEPTH[depth] * math.log2(1 + count) * _structural(label.split("(")[0].split(" ")[0])
    vector = np.zeros(LOGIC, dtype=np.float32)
    for label, weight in weighted.items():
        for place, sign in _places(label):
            vector[place] += sign * weight
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm else vector


def shape_vector(task: Task, sizes: Mapping[str, int]) -> np.ndarray:
    """Logarithms of extents over 24, alignments, dtype and whether shapes are dynamic, in :data:`SHAPE` places."""
    outputs = [spec.extents(sizes) for spec in task.outputs[:1]]
    inputs = sorted((a.extents(sizes) for a in task.tensors), key=lambda s: -math.prod(s))
    shapes = [*outputs, *inputs][:_TENSORS]
    vector = np.zeros(SHAPE, dtype=np.float32)
    for tensor, shape in enumerate(shapes):
        for place, size in enumerate(reversed(shape[-_EXTENTS:])):
            vector[tensor * _EXTENTS + place] = math.log2(max(size, 1)) / 24
    at = _TENSORS * _EXTENTS
    total = sum(math.prod(s) for s in (*outputs, *inputs))
    vector[at] = math.log2(max(total, 1)) / 32
    vector[at + 1] = _alignment(shapes[0]) if shapes else 0
    vector[at + 2] = _alignment(shapes[1]) if len(shapes) > 1 else 0
    vector[at + 3] = float(bool(task.dims))
    vector[at + 4] = min(len(task.tensors), 8) / 8
    dtypes = {a.dtype for a in task.tensors}
    for place, dtype in enumerate(_DTYPES):
        vector[at + 5 + place] = 0.5 * float(dtype in dtypes)
    return vector


def shape_similarities(one: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Of a shape vector ``one`` to each row of ``others``: 1 for equal ones, falling with their distance, 0.37 where
    every extent differs by a factor of 16."""
    apart = others - one
    return np.asarray(np.exp(-1.5 * np.sqrt(np.einsum("ij,ij->i", apart, apart, dtype=np.float64))))


def _alignment(shape: Sequence[int]) -> float:
    """The power of two that divides the innermost extent, up to 256, as a share."""
    last = shape[-1] if shape else 1
    return min(8, (last & -last).bit_length() - 1 if last else 8) / 8


def _structural(word: str) -> float:
    return 1.0 if word in _FAMILY else _POINTWISE


def _places(label: str) -> list[tuple[int, float]]:
    digest = hashlib.blake2b(label.encode(), digest_size=3 * _PLACES).digest()
    parts = [digest[3 * i : 3 * i + 3] for i in range(_PLACES)]
    return [(int.from_bytes(p[:2], "little") % LOGIC, 1.0 if p[2] & 1 else -1.0) for p in parts]


__all__ = [
    "LOGIC", "SHAPE", "Features", "features", "logic_vector", "shape_similarities", "shape_vector",
]  # fmt: skip
