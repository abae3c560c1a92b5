"""Kernels that train: the backward of a task as a separate task, and the two verified as a pair."""

from __future__ import annotations

import ast

from kernellab import python_tree


def said_true(text: str, name: str) -> bool:
    """Does a task's text say ``name = True`` last, without being run? Not where it is no Python."""
    try:
        body = python_tree.parse(text).body
    except SyntaxError:
        return False
    stated = [
        node.value for node in body
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == [name]
    ]  # fmt: skip
    # a backward's text holds its forward's, and takes the word back
    return bool(stated) and isinstance(stated[-1], ast.Constant) and stated[-1].value is True
