"""Quick fixes: what the checker proposes, and exactly which characters it replaces."""

from __future__ import annotations

from kernellab.notebook.language.check import checked
from kernellab.notebook.views.facts import Facts

TEXT = """sketch s {
    symbols: N;
    tensors: x[N]: ff32; y[N]: f32 out;
    constexpr: BLOCK = 64;
    @llm_hint("paralel")
    for n in range(0, ceil(N, BLOCK)):
        load(y[n:n+BLOCK] -> tile)
        store(exponent(tile) + tille -> y[n:n+BLOCK])
}
"""


def _replaced(text: str) -> list[tuple[str, str]]:
    """What each quick fix replaces, and with what."""
    lines = text.split("\n")
    found = []
    for one in checked(text, Facts())["diagnostics"]:
        if one["fix"] is not None:
            assert one["end_line"] == one["line"]
            assert one["end_col"] is not None
            found.append((lines[one["line"] - 1][one["col"] - 1 : one["end_col"] - 1], one["fix"]))
    return found


def test_a_fix_replaces_the_wrong_word_alone() -> None:
    assert _replaced(TEXT.replace("exponent", "exxp")) == [
        ("ff32", "f32"), ("paralel", "parallel"), ("y[n:n+BLOCK]", "y[n*BLOCK:(n+1)*BLOCK]"), ("exxp", "exp"),
        ("tille", "tile"),
    ]  # fmt: skip


def test_fixes_taken_one_after_another_leave_no_error() -> None:
    text = TEXT.replace("exponent", "exxp")
    for _ in range(10):
        fixes = [one for one in checked(text, Facts())["diagnostics"] if one["fix"]]
        if not fixes:
            break
        one = fixes[0]
        lines = text.split("\n")
        row = lines[one["line"] - 1]
        assert one["fix"] is not None and one["end_col"] is not None
        lines[one["line"] - 1] = row[: one["col"] - 1] + one["fix"] + row[one["end_col"] - 1 :]
        text = "\n".join(lines)
    assert not [d for d in checked(text, Facts())["diagnostics"] if d["rule"].startswith("unknown")]


def test_what_is_near_no_known_name_has_no_fix() -> None:
    found = checked(TEXT.replace("exponent(tile) + tille", "zzqzz(tile)"), Facts())["diagnostics"]
    assert [d["fix"] for d in found if d["rule"] == "unknown-operation"] == [None]
