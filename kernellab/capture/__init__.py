"""Conversion of a reference to a graph: the operations that a Task computes."""

from __future__ import annotations

from kernellab.capture.capture import Graph, Input, Node, Ref, Sym, capture, run_graph

__all__ = ["Graph", "Input", "Node", "Ref", "Sym", "capture", "run_graph"]
