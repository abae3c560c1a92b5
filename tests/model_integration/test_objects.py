"""Models that give back an object which torch's trees do not know, as a decoder gives back its cache."""

from __future__ import annotations

import pytest
import torch

from kernellab.model_integration import install, profile, uninstall
from kernellab.model_integration.objects import Unopened, taken_apart, tensors_in

DECODER = """
import torch
import torch.nn as nn

class Layer:
    def __init__(self, values):
        self.values, self.seen, self.dtype = values, values.shape[1], values.dtype

class Cache:
    def __init__(self):
        self.layers, self.word = [], "cache"

    def update(self, values):
        self.layers.append(Layer(values))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.proj = nn.LayerNorm(64), nn.Linear(64, 64)

    def forward(self, x, cache=None):
        y = self.proj(self.norm(x))
        cache.update(y)
        return x + torch.tanh(y) * 0.5

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.kept = KEPT

    def forward(self, x):
        cache = self.kept or Cache()
        for block in self.blocks:
            x = block(x, cache=cache)
        return {"hidden": x, "cache": cache}

def inputs():
    return torch.randn(2, 32, 64)
"""


def test_a_model_that_gives_back_a_cache_is_captured_whole_and_gives_it_back_with_kernels() -> None:
    found = profile(DECODER.replace("KEPT", "None"), device="cpu")
    assert not found.captured.problems and found.coverage > 0.99
    (unit,) = found.captured.units
    assert unit.path == ""
    row = next(row for row in found.rows if "tanh" in row.words and len(row.places[0].inputs) == 2)
    args, _ = found.workload.draw(7)
    with torch.no_grad():
        before = found.workload.model(*args)
        install(found, row, lambda y, x: x + torch.tanh(y) * 0.5, measure=False)
        now, other = found.workload.model(*args), found.workload.model(*args)
    assert uninstall(found) == 1
    assert torch.allclose(now["hidden"], before["hidden"], atol=1e-5)
    cache, was = now["cache"], before["cache"]
    assert type(cache) is type(was) and cache.word == "cache" and cache is not other["cache"]
    assert [type(layer) for layer in cache.layers] == [type(layer) for layer in was.layers]
    for layer, own in zip(cache.layers, was.layers, strict=True):
        assert torch.allclose(layer.values, own.values, atol=1e-5)
        assert (layer.seen, layer.dtype) == (own.seen, own.dtype)


def test_what_is_in_a_cache_is_compared_on_hidden_inputs() -> None:
    found = profile(DECODER.replace("KEPT", "None"), device="cpu")
    args, _ = found.workload.draw(7)
    with torch.no_grad():
        assert len(tensors_in(found.workload.model(*args))) == 3


def test_an_object_that_outlives_the_call_is_not_made_again() -> None:
    """The model's own cache grows with each call: a graph of one call would not be that."""
    found = profile(DECODER.replace("KEPT", "Cache()").replace("or Cache()", ""), device="cpu")
    (problem,) = found.captured.problems
    assert problem.path == "" and "Cache" in problem.reason


class _Held:
    def __init__(self, value: object) -> None:
        self.value = value


def test_the_form_of_a_nest_with_objects() -> None:
    x = torch.ones(2)
    tensors, form = taken_apart([_Held({"a": x, "b": 3}), "word", (x + 1, None)])
    assert [t.tolist() for t in tensors] == [[1, 1], [2, 2]]
    first, word, (second, nothing) = form.made(iter([x * 5, x * 6]))
    assert first.value["a"].tolist() == [5, 5] and first.value["b"] == 3 and word == "word"
    assert second.tolist() == [6, 6] and nothing is None
    ring = _Held(x)
    ring.value = [ring, x]
    with pytest.raises(Unopened):
        taken_apart(ring)
    assert tensors_in([ring, x]) == [x]
    empty = _Held("nothing")
    assert taken_apart([empty])[1].made(iter(()))[0] is empty


class _Slots:
    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class _Words(dict):  # type: ignore[type-arg]
    def __init__(self, value: object) -> None:
        self.seen = value
        super().__init__(value=value)


@pytest.mark.parametrize("kind", [_Slots, _Words])
def test_tensors_that_no_attribute_names_leave_an_object_whole(kind: type) -> None:
    with pytest.raises(Unopened):
        taken_apart([_Held(torch.ones(2)), _Held(kind(torch.ones(2)))])


def test_a_cache_that_a_list_of_the_model_holds_is_not_made_again() -> None:
    kept = DECODER.replace("KEPT", "[Cache()]").replace("self.kept or Cache()", "self.kept[0]")
    (problem,) = profile(kept, device="cpu").captured.problems
    assert problem.path == "" and "Cache" in problem.reason


def test_an_object_without_tensors_may_be_met_twice() -> None:
    config = _Held("float32")
    tensors, form = taken_apart([config, _Held((config, torch.ones(2)))])
    first, second = form.made(iter(tensors))
    assert len(tensors) == 1 and first.value == second.value[0].value == "float32"
