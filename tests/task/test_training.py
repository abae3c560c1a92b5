"""A Model is taken as it is built: in training mode, unless that makes it random."""

from __future__ import annotations

import pytest
import torch

from kernellab.capture import capture
from kernellab.capture.capture import run_graph
from kernellab.task import load_task, quality

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}

    def forward(self, x):
        return torch.tanh(self.layer(x))

def get_inputs():
    return [3 * torch.randn(6, 8, 5, 5) + 1]
"""


def test_batch_norm_takes_the_batchs_statistics_and_leaves_its_buffers_to_itself() -> None:
    task = load_task(MODEL.format(layer="torch.nn.BatchNorm2d(8)"), "bn")
    module = task.module()
    args = module.sample(seed=1)
    (want,) = module.reference(args)
    x = args[0]
    mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
    assert torch.allclose(want, torch.tanh((x - mean) / (var + 1e-5).sqrt()), atol=1e-5)
    assert torch.equal(args[3], torch.zeros(8)), "the running mean that it is given stays as it is"
    assert not task.notes and not quality(task)
    graph = capture(task)
    assert len(graph.outputs) == 1 and torch.allclose(run_graph(graph, args)[0], want, atol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        "torch.nn.Dropout(0.4)",
        "torch.nn.RReLU()",
        "lambda x: torch.nn.functional.dropout(x, 0.4, self.training)",
        "lambda x: x * x.new_empty(6, 1, 1, 1).bernoulli_(0.6) / 0.6 if self.training else x",
    ],
)
def test_a_model_that_is_random_in_training_is_evaluated_and_that_is_said(layer: str) -> None:
    task = load_task(MODEL.format(layer=layer), "random")
    assert task.notes == ("eval mode: in training mode the reference is random",)
    args = task.module().sample()
    assert torch.equal(task.module().reference(args)[0], task.module().reference(args)[0])


def test_a_model_that_says_eval_itself_stays_so() -> None:
    task = load_task(MODEL.format(layer="torch.nn.BatchNorm2d(8).eval()"), "evaluated")
    args = task.module().sample()
    assert torch.allclose(task.module().reference(args)[0], torch.tanh(args[0] / (1 + 1e-5) ** 0.5), atol=1e-6)
    assert not task.notes


def test_a_path_that_could_be_dropped_and_is_not_leaves_the_model_in_training() -> None:
    layer = "lambda x: x * torch.rand(6, 1, 1, 1).round() if self.training and x.dim() < 4 else torch.nn.functional"
    task = load_task(MODEL.format(layer=f"{layer}.batch_norm(x, None, None, training=self.training)"), "not_random")
    assert not task.notes
