"""Trees of Python texts while other threads build theirs."""

from __future__ import annotations

import ast
import gc
import sys
import threading
import time

import pytest

from kernellab import python_tree

_TEXT = "\n".join(f"def f{i}(x):\n    return [({i} + y) * (x - {i}) for y in range(x) if y % 3]" for i in range(60))


def test_threads_that_build_trees_at_once_all_have_them() -> None:
    faults = list[BaseException]()
    whole = ast.dump(python_tree.parse(_TEXT))

    def build(parse: object) -> None:
        try:
            for _ in range(40):
                assert ast.dump(parse(_TEXT)) == whole  # type: ignore[operator]
        except BaseException as fault:
            faults.append(fault)

    def disturb() -> None:  # as IPython does: without our function
        for _ in range(40):
            try:
                ast.parse(_TEXT)
            except SystemError:
                continue

    def yields(*_: object) -> None:  # a collection amid a tree lets another thread run
        time.sleep(0)

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    gc.callbacks.append(yields)
    try:
        threads = [threading.Thread(target=build, args=(python_tree.parse,)) for _ in range(4)]
        threads += [threading.Thread(target=disturb) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.callbacks.remove(yields)
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
    assert not faults


def test_a_tree_is_built_again_where_python_refused_it(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, refusals = ast.parse, iter([SystemError("AST constructor recursion depth mismatch")] * 3)

    def refuses(*args: object) -> ast.AST:
        for refusal in refusals:
            raise refusal
        return whole(*args)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(ast, "parse", refuses)
    assert python_tree.parse("1 + 2", mode="eval").body.op.__class__ is ast.Add  # type: ignore[attr-defined]


def test_what_is_not_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        python_tree.parse("def")
