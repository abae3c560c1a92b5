"""What makes two sketches near-copies, what makes them children, and where one lies on the axes."""

from __future__ import annotations

import pytest

from kernellab.sketch.rewrite import Technique, axes, features, rewrites
from tests.sketch.rewrite.designs import TARGETS, designs
from tests.sketch.rewrite.test_rewrites import MATMUL

GPU = TARGETS["triton"]


def test_names_comments_and_sets_of_tunables_make_no_other_sketch() -> None:
    renamed = (
        MATMUL.replace("acc ", "sums ").replace("acc,", "sums,").replace("matmul", "product").replace("BM", "ROWS")
    )
    renamed = renamed.replace("in {32, 64, 128}", "in {64, 128}").replace("load(A", "# of A\n                load(A", 1)
    assert features(renamed).key == features(MATMUL).key
    assert features(renamed).similarity(features(MATMUL)) == 1.0


def test_every_variant_is_another_sketch_and_small_changes_are_nearer() -> None:
    first = features(MATMUL)
    near = {v.rewrite: features(v.text) for v in rewrites(MATMUL, GPU) if v.rewrite in ("tunables", "split", "unroll")}
    for found in near.values():
        assert found.key != first.key
        assert 0.0 < found.similarity(first) < 1.0
        assert found.similarity(first) == pytest.approx(first.similarity(found))
    assert near["tunables"].similarity(first) > near["split"].similarity(first)


def test_sketches_of_other_operators_are_far_apart() -> None:
    softmax = next(designs("softmax/causal_softmax", most=1))
    assert features(softmax.text).similarity(features(MATMUL)) < 0.3


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ("attention/biased", Technique.ONLINE_PRODUCT),
        ("softmax/causal_softmax", Technique.WHOLE),
        ("pointwise/adam_step", Technique.POINTWISE),
        ("scan/cumprod", Technique.SCAN),
        ("order/least_five", Technique.ORDER),
    ],
)
def test_axes_tell_techniques_apart(place: str, wanted: Technique) -> None:
    design = next(designs(place, most=1))
    found = axes(design.text, design.task, design.target)
    assert found.technique is wanted
    assert found.on_chip_bytes > 0 and found.intensity >= 0 and found.stages >= 1 and found.launches >= 1


def test_a_larger_tile_takes_more_on_chip_bytes() -> None:
    design = next(designs("pointwise/adam_step", most=1))
    small = next(v for v in rewrites(design.text, design.target, ["tunables"]) if "BLOCK = 8192" in v.text)
    assert (
        axes(small.text, design.task, design.target).on_chip_bytes * 2
        == axes(design.text, design.task, design.target).on_chip_bytes
    )
