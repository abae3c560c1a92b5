"""What a revision by an agent may not change."""

from __future__ import annotations

import pytest

from kernellab.errors import SketchError
from kernellab.records import Author
from kernellab.sketch.check import check
from kernellab.sketch.syntax.pins import Kept, check_pins, pinned_lines, set_pin, with_constraints

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
        # the loop's header is part of where the load stands
        ("for n in range(0, N, T)", "for n in range(0, N, 2*T)", 1),
        ('"grididx"', '"coreidx"', 2),
    ],
)
def test_a_changed_pin_is_named(before: str, after: str, broken: int) -> None:
    found = check_pins(PARENT, PARENT.replace(before, after), Author.MODEL)
    assert [d.rule for d in found] == ["pin"] * broken
    assert all(d.line >= 1 for d in found)


@pytest.mark.parametrize("child", [PARENT.removesuffix("}\n"), "sketch s {\n", "    x = 1\nsketch s {"])
def test_a_text_without_a_layout_leaves_no_pin(child: str) -> None:
    """What stands on it would be held to nothing."""
    assert rules(child) and not rules(child, Author.HUMAN)
    assert check_pins(PARENT.replace("#: pin", "").replace("  require: T >= 8;\n", ""), child, Author.MODEL) == []


def test_layout_of_a_pinned_line_is_free() -> None:
    assert rules(PARENT.replace("load(X[m, n:n+T] -> x, pad=0)", "load(X[ m, n : n + T ]->x, pad=0)")) == []


@pytest.mark.parametrize("child", [PARENT.replace("T >= 8", "T >= 4"), PARENT.replace("  require: T >= 8;\n", "")])
def test_only_a_person_changes_constraints(child: str) -> None:
    assert "require-author" in rules(child)
    assert rules(child, Author.HUMAN) == []


def test_a_constraint_stays_in_the_sketch_that_it_restricts() -> None:
    other = "sketch t {\n  constexpr: T = 8;\n}\n"
    moved = PARENT.replace("  require: T >= 8;\n", "") + other.replace("= 8;\n", "= 8;\n  require: T >= 8;\n")
    assert rules(PARENT + other) == []
    assert rules(moved) == ["require-author"]
    assert "sketch s" in check_pins(PARENT, moved, Author.MODEL)[0].message
    written = Kept.of(PARENT)
    assert written is not None
    bare = PARENT.replace("  require: T >= 8;\n", "") + other
    assert Kept.of(with_constraints(bare, written.constraints)) == written
    assert with_constraints(PARENT, written.constraints) == PARENT
    assert with_constraints(other, written.constraints) == other, "there is no such sketch"


def test_of_pins_and_constraints_only_those_that_a_person_left_or_added_are_a_persons() -> None:
    """Else an agent could not drop its own again, nor would a person's copy of a sketch make its marks the person's."""
    nothing, written = Kept(), Kept.of(PARENT)
    assert written is not None
    load = "load(X[m, n:n+T] -> x, pad=0)"
    assert nothing.by_person(written, written) == nothing, "a person handed on an agent's sketch"
    assert nothing.by_person(nothing, written) == written, "a person wrote all of it"
    assert written.by_person(nothing, written) == written, "a person restored what a refused sketch had broken"
    unpinned = PARENT.replace("pad=0)  #: pin", "pad=0)").replace("T >= 8", "T >= 4")
    changed = Kept.of(unpinned)
    assert changed is not None
    left = nothing.by_person(nothing, written).by_person(written, changed)
    loop = '@llm_hint("parallel", "grididx") for m in range(M):'
    assert ([text for text, _ in left.pins], left.constraints) == ([loop], (("s", "T >= 4"),))
    assert check_pins(PARENT, unpinned, Author.MODEL, left) == []
    assert [d.rule for d in check_pins(unpinned, PARENT, Author.MODEL, left)] == ["require-author"]
    free = PARENT.replace("#: pin", "").replace("  require: T >= 8;\n", "")
    assert check_pins(PARENT, free, Author.MODEL, nothing) == []
    assert [d.rule for d in check_pins(PARENT, free, Author.MODEL, written)] == [
        "pin-mark",
        "pin-mark",
        "require-author",
    ]
    assert [text for text, _ in written.missing_in(left).pins] == [load] and written.missing_in(written) == nothing
    assert left.lines(unpinned) == [(7, loop)]


def test_check_holds_a_revision_to_its_parent() -> None:
    child = PARENT.replace("pad=0", "pad=1")
    assert check(child).ok
    result = check(child, parent=PARENT)
    assert result.program is None
    assert [d.rule for d in result.errors] == ["pin"]


# -- setting them ------------------------------------------------------------------------------------------------------

LAID_OUT = """sketch s {
  symbols: M, N;
  tensors: X[M, N]: f32; Y[M, N]: f32 out;
  constexpr: BLOCK = 16;
  @llm_hint("parallel")
  for m in range(M):
    x = alloc([BLOCK],
              f32)
    load(X[m, 0:BLOCK] -> x)  # the row
    if m > 0:
      store(x -> Y[m, 0:BLOCK])
    else:
      store(x -> Y[m, 0:BLOCK])
}
"""


@pytest.mark.parametrize("line", [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13])
def test_each_statement_can_be_pinned_and_unpinned_to_the_byte(line: int) -> None:
    pinned = set_pin(LAID_OUT, line)
    assert len(pinned_lines(pinned)) >= 1
    assert check_pins(LAID_OUT, pinned, Author.MODEL) == []
    assert [d.rule for d in check_pins(pinned, LAID_OUT, Author.MODEL)] == ["pin-mark"] * len(pinned_lines(pinned))
    assert set_pin(pinned, line, on=False) == LAID_OUT


@pytest.mark.parametrize("line", [0, 1, 12, 14, 99])
def test_a_line_without_a_statement_cannot_be_pinned(line: int) -> None:
    with pytest.raises(SketchError, match="no statement"):
        set_pin(LAID_OUT, line)


def test_pinning_twice_and_unpinning_what_is_free_change_nothing() -> None:
    with pytest.raises(SketchError, match="pinned already"):
        set_pin(set_pin(LAID_OUT, 6), 6)
    with pytest.raises(SketchError, match="not pinned"):
        set_pin(LAID_OUT, 6, on=False)


def test_a_reason_is_the_lines_comment_unless_it_has_one() -> None:
    assert "for m in range(M):  # rows are independent  #: pin" in set_pin(LAID_OUT, 6, reason="rows are\nindependent")
    assert "-> x)  # the row  #: pin" in set_pin(LAID_OUT, 9, reason="why not")
    assert pinned_lines(set_pin(LAID_OUT, 9)) == [(9, "load(X[m, 0:BLOCK] -> x)")]


def test_a_pin_on_a_loops_hint_is_the_loops() -> None:
    by_hand = LAID_OUT.replace('@llm_hint("parallel")', '@llm_hint("parallel")  #: pin')
    assert (
        pinned_lines(set_pin(LAID_OUT, 5)) == pinned_lines(by_hand) == [(6, '@llm_hint("parallel") for m in range(M):')]
    )
    assert set_pin(by_hand, 6, on=False) == LAID_OUT


@pytest.mark.parametrize(
    "deep", ["x" + " + x" * 3000, "relu(" * 200 + "x" + ")" * 200, "(" * 900 + "x" + " + x)" * 900]
)
def test_pins_of_a_text_that_is_nested_too_deeply_are_looked_for_without_an_error(deep: str) -> None:
    """An agent's sketch of this kind would end the session in which it is placed."""
    child = PARENT.replace("x * 2", deep)
    assert rules(child) == [] and pinned_lines(child) == pinned_lines(PARENT) and Kept.of(child) == Kept.of(PARENT)
    pinned = PARENT.replace("load(X[m, n:n+T] -> x, pad=0)", f"load(X[m, n:n+T] -> x, pad={deep})")
    assert rules(pinned) == ["pin"]
    assert [d.rule for d in check(child).errors] == ["too-deep"]


def test_blocks_that_are_nested_too_deeply_are_a_fault() -> None:
    loops = "".join(f"{'  ' * (n + 3)}for i{n} in range(1):\n" for n in range(400))
    child = PARENT.replace("      store(x * 2 -> Y[m, n:n+T])\n", f"{loops}{'  ' * 403}store(x * 2 -> Y[m, n:n+T])\n")
    assert [d.rule for d in check(child).errors] == ["too-deep"] and rules(child) and Kept.of(child) is None
