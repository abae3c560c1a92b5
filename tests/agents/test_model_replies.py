"""Reading replies, cutting prompts, checking claims, task files from words, lifted kernels, and a person's answers."""

from __future__ import annotations

import pytest

from kernellab.agents.model.prompts.assembly import Part, PromptError, assemble, brief_text
from kernellab.agents.model.prompts.templates import blocks, render
from kernellab.agents.model.reply.answers import AnswerError, Edit
from kernellab.agents.model.reply.claims import check_claims
from kernellab.agents.model.reply.code import parse_code
from kernellab.agents.model.reply.edits import apply_edits, carry_lines
from kernellab.knowledge import Knowledge
from kernellab.models.tokens import estimate

# -- prompts -----------------------------------------------------------------------------------------------------------

PARTS = (
    Part("role", "a.j2", "You are it.", stable=True),
    Part("reference", "doc.md", "\n".join(f"row {n} of the reference" for n in range(200)), 1, stable=True, trims=True),
    Part("task", "task", "Do this."),
    Part("history", "journal", "long " * 300, 5, ("short " * 20,)),
    Part("hint", "doc.md", "word " * 100, 9),
)


def test_with_room_everything_stands_in_its_order() -> None:
    prompt = assemble(PARTS, 10_000, purpose="design")
    assert [m.role for m in prompt.messages] == ["system", "user"]
    assert [s.name for s in prompt.sections] == ["role", "reference", "task", "history", "hint"]
    assert not any(s.note for s in prompt.sections)
    assert prompt.tokens == sum(s.tokens for s in prompt.sections)


def test_who_gives_way_is_the_highest_rank_and_the_record_says_what_was_cut() -> None:
    whole = assemble(PARTS, 10_000, purpose="design").tokens
    notes = {}
    for budget in range(whole, 200, -60):
        prompt = assemble(PARTS, budget, purpose="design")
        assert prompt.tokens <= budget
        notes = {s.name: s.note for s in prompt.sections}
        order = [name for name in ("hint", "history", "reference") if notes[name]]
        assert order == ["hint", "history", "reference"][: len(order)]
    assert notes["hint"].startswith("left out")
    assert notes["reference"].startswith("cut from") and "(the rest is left out)" in prompt.messages[0].content
    assert not notes["role"] and not notes["task"]


def test_a_budget_that_the_task_alone_breaks_is_an_error_with_the_longest_part() -> None:
    with pytest.raises(PromptError, match="'task'"):
        assemble([Part("task", "t", "x y z " * 400)], 100, purpose="design")


def test_a_cut_inside_a_block_of_code_closes_it() -> None:
    text = "```sketch\n" + "for m in range(M):\n" * 100 + "```"
    cut = assemble([Part("code", "c", text, 1, trims=True)], 200, purpose="code")
    assert cut.messages[0].content.count("```") == 2


def test_a_person_reads_the_same_text() -> None:
    prompt = assemble(PARTS, 10_000, purpose="design")
    assert all(message.content in brief_text(prompt) for message in prompt.messages)


def test_estimates_grow_with_the_text_and_lie_in_the_usual_range() -> None:
    text = Knowledge.load().language().text
    assert 2.5 < len(text) / estimate(text) < 4.5  # a page full of code: fewer characters a token than prose has
    assert estimate("") == 0 and estimate(text + text) >= 2 * estimate(text) - 2


@pytest.mark.parametrize("file", ["designer", "coder", "conductor", "analyst", "task", "lift", "language"])
def test_prompt_files_are_whole(file: str) -> None:
    assert {"role", "answer"} <= set(blocks(file)) or file == "language"
    assert render(file, blocks(file)[0], **_ANY).strip()


_ANY = {
    "dsl": "cpp", "sketched": True, "gated": True, "entry": "kernel", "entry_file": "kernel.py", "lowered": False,
    "library": False, "operations": (), "dtypes": (), "loop_hints": (), "axes": (), "memory_hints": (),
    "symbols": "", "kind": "cpu", "on_cores": True,
}  # fmt: skip


# -- edits -------------------------------------------------------------------------------------------------------------

FILES = {"k.cpp": "int a = 1;\nfor (;;) {\n    b += a;\n    c += a;\n}\n", "k.py": "x = 1\n"}


def test_edits_are_made_to_the_shown_text_whatever_their_order() -> None:
    edits = [
        Edit("k.cpp", "    c += a;\n", "    c -= a;\n", 1),
        Edit("k.cpp", "int a = 1;\n", "int a = 2;\nint d;\n", 2),
    ]
    assert apply_edits(FILES, edits)["k.cpp"] == "int a = 2;\nint d;\nfor (;;) {\n    b += a;\n    c -= a;\n}\n"


def test_of_a_file_that_was_not_shown_no_lines_are_quoted() -> None:
    wrong = [Edit("k.cpp", "int z = 1;\n", "int z = 2;\n", 1)]
    for unseen, told in (((), "The nearest lines"), (("k.cpp",), "k.cpp was not shown to you")):
        with pytest.raises(AnswerError) as refused:
            apply_edits(FILES, wrong, unseen)
        assert told in refused.value.findings[0]
    assert "nearest" not in refused.value.findings[0]
    right = [Edit("k.cpp", "int a = 1;\n", "int a = 2;\n", 1)]
    assert apply_edits(FILES, right, ("k.cpp",)) == apply_edits(FILES, right)


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([("k.cpp", "nothing like it\n", "x")], "does not occur"),
        ([("k.cpp", "int a = 1;\n", "int a = 2;\n"), ("k.cpp", "int z;\n", "x")], "Edit 2"),
        ([("k.cpp", "    b += a;\n    c += a;\n", "x\n"), ("k.cpp", "    c += a;\n", "y\n")], "overlap"),
        ([("k.cpp", "  \n", "x")], "empty"),
        ([("k.py", "x = 1\n", "x = 1\n")], "change nothing"),
        ([("no.py", "x = 1\n", "x = 2\n")], "no file no.py"),
    ],
)
def test_one_bad_edit_and_none_is_made(edits: list[tuple[str, str, str]], told: str) -> None:
    before = dict(FILES)
    with pytest.raises(AnswerError) as refused:
        apply_edits(FILES, [Edit(*e, n) for n, e in enumerate(edits, 1)])
    assert before == FILES
    assert told in " ".join([str(refused.value), *refused.value.findings])


def test_tabs_blanks_and_indentation_do_not_matter_and_the_new_lines_are_moved() -> None:
    got = apply_edits(FILES, [Edit("k.cpp", "b  +=\ta;\nc += a;\n", "b -= a;\nif (c) {\n  c -= a;\n}\n", 1)])["k.cpp"]
    assert got == "int a = 1;\nfor (;;) {\n    b -= a;\n    if (c) {\n      c -= a;\n    }\n}\n"


def test_exactly_is_tried_before_loosely() -> None:
    files = {"k": "a = 1\n  a = 1\n"}
    assert apply_edits(files, [Edit("k", "  a = 1\n", "  a = 2\n", 1)])["k"] == "a = 1\n  a = 2\n"
    with pytest.raises(AnswerError) as refused:
        apply_edits(files, [Edit("k", "\ta = 1\n", "a = 2\n", 1)])
    assert "occurs 2 times in k (lines 1, 2)" in refused.value.findings[0]


def test_a_piece_of_a_line_that_stands_once_is_replaced() -> None:
    assert apply_edits(FILES, [Edit("k.cpp", "c += a\n", "c -= a\n", 1)])["k.cpp"] == FILES["k.cpp"].replace(
        "c +=", "c -="
    )
    with pytest.raises(AnswerError, match="could not be made"):
        apply_edits(FILES, [Edit("k.cpp", "+= a\n", "-= a\n", 1)])


def test_a_line_map_follows_its_lines() -> None:
    assert carry_lines("a\nb\nc\n", "new\na\nc\n", {1: 10, 2: 11, 3: 12}) == {2: 10, 3: 12}


@pytest.mark.parametrize(
    "reply",
    [
        "FILE: kernel.cpp\n```cpp\nint x;\n```",
        "**FILE: `kernel.cpp`**\n\n```cpp\nint x;\n```",
        "### kernel.cpp\n```cpp\nint x;\n```",
        "```cpp kernel.cpp\nint x;\n```",
        "```cpp:kernel.cpp\nint x;\n```",
        "Some words.\n```cpp\nint x;\n```\nMore words.",
        "~~~~cpp\nint x;\n~~~~",
        "Run it with\n```bash\nmake\n```\n```cpp\nint x;\n```",
    ],
)
def test_the_ways_in_which_models_name_files(reply: str) -> None:
    assert parse_code(reply, "kernel.cpp", ["kernel.cpp", "kernel.py"]).files == {"kernel.cpp": "int x;\n"}


# -- claims ------------------------------------------------------------------------------------------------------------

FACTS = {
    "speedup against eager": "2.94x (95 %: 2.8x to 3.05x)", "speedup against compile": "1.12x",
    "time": "3.514 ms (quartiles 3.4 ms to 3.6 ms)", "share of the bound": "62 %", "rounds": 4, "bytes": 67_108_864,
}  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        ("It is 2.9x as fast as eager.", True),
        ("It is 2.94 times as fast as eager PyTorch.", True),
        ("It is 2.9x faster than torch.compile.", False),
        ("It is 3.9x as fast as eager.", False),
        ("It takes 3.5 ms.", True),
        ("It takes 3514 us.", True),
        ("It takes 35 ms.", False),
        ("It reaches 62 % of the bound.", True),
        ("It reaches 80 % of the bound.", False),
        ("It moves 67.1 MB.", True),
        ("It moves 64 MiB.", True),
        ("It moves 134 MB.", False),
        ("It took 4 rounds.", True),
        ("It took 7 rounds.", False),
        ("48 independent programs run at once.", None),
        ("It cost $0.20.", False),
        ("It keeps the row in cache.", None),
    ],
)
def test_a_number_is_believed_when_the_record_has_it(claim: str, holds: bool | None) -> None:
    ((said, found, why),) = check_claims([claim], FACTS)
    assert said == claim and found is holds and why.endswith(".")


def test_a_critique_that_a_file_follows_at_once_is_said_once() -> None:
    edit = "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n"
    answer = parse_code(f"CRITIQUE: atomic adds.\nEDIT: kernel.cpp\n{edit}", "kernel.cpp", {"kernel.cpp": "a\n"})
    assert (answer.critique, answer.rationale) == ("atomic adds.", "")
