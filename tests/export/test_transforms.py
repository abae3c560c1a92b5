"""An exported operator under torch.func's transforms: right by the reference, or a sentence."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from kernellab.export.runtime.torch_op import Operator

_REFERENCE = """
import torch

def prepare():
    pass

def call(x, w):
    return torch.sin(x) * w
"""
#: the reference's values, by an operation that torch's transforms do not see
_KERNEL = """
import numpy
import torch

def kernel(x, w):
    return torch.from_numpy(numpy.sin(x.detach().numpy()) * w.detach().numpy())
"""


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    folder = tmp_path_factory.mktemp("waves")
    tensor = {"kind": "tensor", "dtype": "float32", "shape": ["N"]}
    facts = {
        "name": "waves", "namespace": "waves_of_transforms", "outputs": [{"shape": ["N"], "dtype": "float32"}],
        "classes": [{
            "folder": "k", "entry_file": "kernel.py", "entry": "kernel", "dsl": "cpp", "device": "cpu",
            "parameters": [{"name": n, "default": None, **tensor} for n in ("x", "w")], "dims": {"N": [1, 4096]},
        }],
    }  # fmt: skip
    (folder / "k").mkdir()
    (folder / "operator.json").write_text(json.dumps(facts))
    (folder / "reference.py").write_text(_REFERENCE)
    (folder / "k" / "kernel.py").write_text(_KERNEL)
    return Operator(folder)


def _dual(f: Callable[..., Any], x: torch.Tensor, w: torch.Tensor) -> Any:
    with forward_ad.dual_level():
        result = forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x)), w))
        return result.primal, result.tangent


def _second(f: Callable[..., Any], x: torch.Tensor, w: torch.Tensor) -> Any:
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(x, w).sum(), x, create_graph=True)
    return torch.autograd.grad((first * first).sum(), (x, w))


TRANSFORMS: dict[str, Callable[[Callable[..., Any], torch.Tensor, torch.Tensor], Any]] = {
    "jvp": lambda f, x, w: jvp(f, (x, w), (torch.ones_like(x), w)),
    "vjp": lambda f, x, w: vjp(f, x, w)[1](torch.ones_like(x)),
    "grad": lambda f, x, w: grad(lambda *a: f(*a).sum(), (0, 1))(x, w),
    "grad of grad": lambda f, x, w: grad(lambda x: grad(lambda x: f(x, w).sum())(x).square().sum())(x),
    "vmap": lambda f, x, w: vmap(f, (0, None))(torch.stack((x, 2 * x, -x)), w),
    "vmap of grad": lambda f, x, w: vmap(grad(lambda x: f(x, w).sum()))(torch.stack((x, -x))),
    "jacrev": lambda f, x, w: jacrev(f)(x, w),
    "jacfwd": lambda f, x, w: jacfwd(f)(x, w),
    "hessian": lambda f, x, w: hessian(lambda x: f(x, w).sum())(x),
    "forward_ad": _dual,
    "gradient": lambda f, x, w: torch.autograd.grad(f(x.requires_grad_(), w).sum(), x),
    "double backward": _second,
    "torch.autograd.functional.jacobian": lambda f, x, w: torch.autograd.functional.jacobian(lambda x: f(x, w), x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("way", ["call", "op"])
def test_a_transform_gives_what_the_reference_gives(operator: Operator, name: str, way: str) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(7), torch.randn(7)
    transform = TRANSFORMS[name]
    want = transform(lambda x, w: torch.sin(x) * w, x.clone(), w.clone())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = transform(getattr(operator, way), x.clone(), w.clone())
    torch.testing.assert_close(got, want)
    leaves = got if isinstance(got, tuple) else (got,)
    assert all(leaf.abs().max() > 0 for leaf in leaves)


def test_a_warning_stands_at_the_callers_line(operator: Operator) -> None:
    with pytest.warns(RuntimeWarning, match="not verified for") as told:
        operator.call(torch.randn(5000), torch.randn(5000))
    assert Path(told[0].filename) == Path(__file__)
