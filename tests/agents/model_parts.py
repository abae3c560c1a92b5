"""Roles that speak to a real server on the loopback whose replies are written here; and small tasks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernellab.models import ModelSettings, Talk, open_model
from kernellab.models.exchanges import Exchange
from kernellab.records import Role
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from tests.models.fake_server import Act, FakeServer, answer

CHIP = Chip(
    "a CPU", "cpu", 2, simd_bits=512, l1_bytes=48 << 10, l2_bytes=1 << 21, l3_bytes=32 << 20, bandwidth=30e9,
    peak_flops={"f32": 2e11},
)  # fmt: skip
CPU = Target("cpp", Backend.CPU, CHIP)

AFFINE = load_task(
    """
import torch
from kernellab import Dim

M, N = Dim("M", 1, 4096), Dim("N", 1, 4096)


def reference(x, scale: float = 2.0):
    return x * scale + 1.0


def inputs(M=64, N=300):
    return (torch.randn(M, N),)
""",
    "affine",
)
SKETCH = """sketch affine {
    symbols: M, N;
    tensors: x[M, N]: f32; y[M, N]: f32 out;
    constexpr: scale = 2.0; BLOCK = 64 in {64, 128};

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> x_tile)
            store(x_tile * scale + 1.0 -> y[m, n:n+BLOCK])
}
"""
WRONG = SKETCH.replace("+ 1.0", "+ 2.0")
BROKEN = SKETCH.replace("x_tile * scale", "x_missing * scale")


def fenced(text: str, language: str = "sketch", before: str = "Rows are independent.") -> str:
    return f"{before}\n\n```{language}\n{text.rstrip()}\n```\n"


class Line:
    """A talk to a server, and what both sides kept of it."""

    def __init__(self, server: FakeServer, role: Role) -> None:
        self.server = server
        self.exchanges: list[Exchange] = []
        settings = ModelSettings(model="fake", base_url=server.url, retries=1, retry_s=0.01, total_s=20)
        self.talk = Talk(open_model("model", role, settings), role, self.exchanges.append)

    @property
    def asked(self) -> list[list[dict[str, Any]]]:
        """The messages of each request."""
        return [request.body["messages"] for request in self.server.requests]

    @property
    def purposes(self) -> list[str]:
        return [exchange.purpose for exchange in self.exchanges]


@contextmanager
def line(role: Role, *replies: str | Act) -> Iterator[Line]:
    """A talk whose server gives ``replies`` in turn, the last one again and again."""
    acts = [answer(reply) if isinstance(reply, str) else reply for reply in replies]
    with FakeServer(*acts) as server:
        yield Line(server, role)
