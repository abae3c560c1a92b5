"""The canonical form of a graph: equal for the same computation, however it is named, sized and spelled."""

from __future__ import annotations

import numpy as np
import pytest

from kernellab.capture import capture
from kernellab.memory.canonical import canonical
from kernellab.memory.features import LOGIC, SHAPE, Features, features, shape_similarities
from kernellab.task import load_task


def of(body: str, inputs: str = "torch.randn(6, 10), torch.randn(10)", arguments: str = "x, w") -> Features:
    text = f"import torch\n\n\ndef reference({arguments}):\n    {body}\n\n\ndef inputs():\n    return {inputs}\n"
    task = load_task(text, "op")
    return features(task, capture(task))


RMS = "return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w"


@pytest.mark.parametrize(
    ("body", "other"),
    [
        (RMS, "r = torch.rsqrt(1e-5 + (x * x).mean(1, keepdim=True))\n    return w * (r * x)"),
        ("return torch.relu(x) + w", "return w + torch.relu(x.clone()).view(6, 10)"),
        ("return torch.softmax(x, -1) + w", "return torch.softmax(x.unsqueeze(0), dim=2).squeeze(0) + w"),
    ],
)
def test_names_order_of_operands_views_and_constants_do_not_matter(body: str, other: str) -> None:
    assert of(body).hash == of(other).hash


def test_sizes_and_dtypes_do_not_matter() -> None:
    small = of(RMS)
    half = of(RMS, "torch.randn(7, 64, dtype=torch.float16), torch.randn(64, dtype=torch.float16)")
    assert small.hash == half.hash
    assert np.allclose(small.logic, half.logic)
    assert not np.allclose(small.shape, half.shape)


@pytest.mark.parametrize(
    ("body", "other"),
    [
        ("return torch.softmax(x, -1) + w", "return torch.softmax(x, 0) + w"),
        ("return x.sum(-1) + w.sum()", "return x.mean(-1) + w.sum()"),
        ("return x * x + 0 * w", "return x * w + 0 * w"),
        ("return x ** 2 + w", "return x ** 3 + w"),
    ],
)
def test_another_computation_has_another_hash(body: str, other: str) -> None:
    assert of(body).hash != of(other).hash


def test_a_product_with_a_bias_is_a_product_and_a_sum() -> None:
    inputs, arguments = "torch.randn(4, 5), torch.randn(5, 6), torch.randn(6)", "x, w, b"
    one = of("return torch.addmm(b, x, w)", inputs, arguments)
    other = of("return x @ w + b", inputs, arguments)
    assert one.hash == other.hash
    assert one.words == {"product": 1, "add": 1}


def test_an_operation_that_somebody_names_makes_kernels_with_it_nearer() -> None:
    text = "import torch\n\n\ndef reference(x):\n    return x + 1\n\n\ndef inputs():\n    return torch.randn(6, 10)\n"
    task = load_task(text, "op")
    plain, told = features(task, capture(task)), features(task, capture(task), words=["_softmax"])
    softmax = of("return torch.softmax(x, -1) + w")
    assert told.hash == plain.hash
    assert told.logic @ softmax.logic > plain.logic @ softmax.logic + 0.1


def test_relatives_are_nearer_than_strangers() -> None:
    rms = of(RMS)
    residual = of("h = x + w\n    return h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6)")
    scan = of("return torch.cumsum(x, -1) * w")
    assert float(rms.logic @ residual.logic) > 0.6 > 0.4 > float(rms.logic @ scan.logic)


def test_vectors_have_their_lengths_and_equal_shapes_are_alike() -> None:
    rms = of(RMS)
    assert rms.logic.shape == (LOGIC,)
    assert rms.shape.shape == (SHAPE,)
    assert np.linalg.norm(rms.logic) == pytest.approx(1.0, abs=1e-5)
    near = of(RMS, "torch.randn(6, 16), torch.randn(16)")
    far = of(RMS, "torch.randn(6000, 10240), torch.randn(10240)")
    same, nearer, farther = shape_similarities(rms.shape, np.stack([rms.shape, near.shape, far.shape]))
    assert same == 1.0 and nearer > farther


def test_a_graph_of_many_nodes_needs_no_recursion() -> None:
    deep = of("for _ in range(400):\n        x = torch.sin(x) + w\n    return x")
    assert deep.words == {"sin": 400, "add": 400}
    assert canonical(capture(load_task("import torch\n\n\ndef reference(x):\n    return x + 1\n\n\n"
                                       "def inputs():\n    return torch.randn(3)\n", "one"))).hash  # fmt: skip
