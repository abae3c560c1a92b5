"""What a revision by an agent may not change."""

from __future__ import annotations

import pytest

from kernellab.records import Author
from kernellab.sketch import check, check_pins

PARENT = """sketch s {
  symbols: M, N;
  tensors: X[M, N]: f32; Y[M, N]: f32 out;
  constexpr: T = 8 in {8, 16};
  require: T >= 8;
  @llm_hint("parallel", "grididx")
  for m in range(M):  #: pin
    for n in range(0, N, T):
      load(X[m, n:n+T] -> x, pad=0)  #: pin
      store(x * 2 -> Y[m, n:n+T])
}
"""


def rules(child: str, author: Author = Author.MODEL) -> list[str]:
    return [d.rule for d in check_pins(PARENT, child, author)]


def test_a_revision_elsewhere_is_free() -> None:
    assert rules(PARENT.replace("x * 2", "x + x")) == []


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        ("load(X[m, n:n+T] -> x, pad=0)", "load(X[m, n:n+T] -> x, pad=1)", 1),
        ("      load(X[m, n:n+T] -> x, pad=0)  #: pin\n", "", 1),
        ("pad=0)  #: pin", "pad=0)", 1),
        # the loop's header is part of where the load stands
        ("for n in range(0, N, T)", "for n in range(0, N, 2*T)", 1),
        ('"grididx"', '"coreidx"', 2),
    ],
)
def test_a_changed_pin_is_named(before: str, after: str, broken: int) -> None:
    found = check_pins(PARENT, PARENT.replace(before, after), Author.MODEL)
    assert [d.rule for d in found] == ["pin"] * broken
    assert all(d.line >= 1 for d in found)


def test_layout_of_a_pinned_line_is_free() -> None:
    assert rules(PARENT.replace("load(X[m, n:n+T] -> x, pad=0)", "load(X[ m, n : n + T ]->x, pad=0)")) == []


@pytest.mark.parametrize("child", [PARENT.replace("T >= 8", "T >= 4"), PARENT.replace("  require: T >= 8;\n", "")])
def test_only_a_person_changes_constraints(child: str) -> None:
    assert "require-author" in rules(child)
    assert rules(child, Author.HUMAN) == []


def test_check_holds_a_revision_to_its_parent() -> None:
    child = PARENT.replace("pad=0", "pad=1")
    assert check(child).ok
    result = check(child, parent=PARENT)
    assert result.program is None
    assert [d.rule for d in result.errors] == ["pin"]
