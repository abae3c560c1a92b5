"""Features of an operator without a model: a vector of its computation, and one of its sizes.

The logic vector hashes the canonical labels of the captured graph (feature hashing, Weinberger et al. 2009); heavy
operations weigh more than pointwise ones. The shape vector contains base-2 logarithms of the extents, alignment, dtype
and layout. A model or a person may add words, which is optional (paper, Algorithm 2, step 1, without the model).
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

#: Dimensions of the two vectors; a change requires a new version of the store.
LOGIC = 256
#: Number of places to which a label is hashed: labels that share one place still differ in others.
_PLACES = 3
SHAPE = 32
#: Number of a tensor's last extents in the shape vector.
_EXTENTS = 4
#: Number of tensors in the shape vector: the first output, then the largest inputs.
_TENSORS = 4
_DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "int64")
#: Roles of operations that select or move elements, which count as one.
_MOVES = (Role.TURN, Role.PART, Role.MOVE)
#: Word -> family; kernels of one family have the same structure.
_FAMILY: Mapping[str, str] = {
    row.word: "move" if row.role in _MOVES else row.role.value for row in ATEN.values() if row.structural
}
#: Parts of an operation that the framework has as one, so that its written-out form is similar.
_PARTS: Mapping[str, tuple[str, ...]] = {row.word: row.parts for row in ATEN.values() if row.parts}
#: Weight of the whole graph's family: the written-out and the named form have the same.
_OF_TASK = 2.0
#: Weights of the kinds of labels: family, word, part, and by depth: with attributes, with operands, with theirs.
_OF_FAMILY, _OF_WORD, _OF_PART, _BY_DEPTH = 1.6, 1.2, 0.5, (0.6, 0.5, 0.4)
#: Weight of a word without a family: it is pointwise and less significant for a kernel's structure.
_POINTWISE = 0.45


@dataclass(frozen=True)
class Features:
    """An operator's features. ``hash`` identifies the computation without names, sizes and dtypes.

    ``logic`` has :data:`LOGIC` numbers and norm 1, ``shape`` has :data:`SHAPE`.
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
    """Return the features of ``task`` at ``sizes`` (its default sizes if None).

    ``words`` are operations from a person or a model in addition to the graph's (``softmax``, ``product``): kernels
    with them become nearer. The computation's hash remains that of the graph.
    """
    form = canonical(graph)
    sizes = task.module().default_sizes() if sizes is None else sizes
    floats = [a.dtype for a in task.tensors if a.is_float] or [a.dtype for a in task.tensors] or ["float32"]
    logic = logic_vector(form, family_of(graph).value, words)
    return Features(form.hash, form.labels, form.words, logic, shape_vector(task, sizes), floats[0])


def logic_vector(form: Canonical, family: str = "", words: Sequence[str] = ()) -> np.ndarray:
    """Families, words, parts and labels hashed into :data:`LOGIC` signed places, by log2(1 + count); of norm 1.

    ``words`` have the weight of the graph's operations.
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
    offset = _TENSORS * _EXTENTS
    total = sum(math.prod(s) for s in (*outputs, *inputs))
    vector[offset] = math.log2(max(total, 1)) / 32
    vector[offset + 1] = _alignment(shapes[0]) if shapes else 0
    vector[offset + 2] = _alignment(shapes[1]) if len(shapes) > 1 else 0
    vector[offset + 3] = float(bool(task.dims))
    vector[offset + 4] = min(len(task.tensors), 8) / 8
    dtypes = {a.dtype for a in task.tensors}
    for place, dtype in enumerate(_DTYPES):
        vector[offset + 5 + place] = 0.5 * float(dtype in dtypes)
    return vector


def shape_similarities(one: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The similarity of a shape vector ``one`` to each row of ``others``: 1 for equal ones, decreasing with their
    distance, 0.37 if every extent differs by a factor of 16."""
    difference = others - one
    return np.asarray(np.exp(-1.5 * np.sqrt(np.einsum("ij,ij->i", difference, difference, dtype=np.float64))))


def _alignment(shape: Sequence[int]) -> float:
    """The largest power of two, up to 256, that divides the innermost extent, as a share."""
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
