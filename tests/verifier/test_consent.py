"""Without a sandbox, code that the rules did not write runs only when a person has said so."""

from __future__ import annotations

import pytest

from kernellab import doctor
from kernellab.errors import VerifierError
from kernellab.records import Author
from kernellab.sandbox import consent

OPEN, HELD = ["pid+ipc+net+mnt+user", "seccomp", "nnp", "rlimits"], ["pid+ipc+net+mnt+user", "landlock-7", "rlimits"]


@pytest.mark.parametrize("origin", [Author.MODEL, Author.HUMAN])
def test_others_code_is_refused_with_the_word_that_allows_it(origin: Author) -> None:
    with pytest.raises(VerifierError) as refused:
        consent.without_sandbox(OPEN, origin, unsandboxed=False)
    assert "no sandbox" in refused.value.message and "--unsandboxed" in refused.value.remedy
    assert consent.without_sandbox(OPEN, origin, unsandboxed=True)


def test_what_the_rules_wrote_runs_with_a_label() -> None:
    assert consent.without_sandbox(["process"], Author.RULES, unsandboxed=False)


def test_a_sandbox_that_holds_needs_no_word() -> None:
    assert not consent.without_sandbox(HELD, Author.MODEL, unsandboxed=False)
    assert not consent.without_sandbox(HELD, Author.MODEL, unsandboxed=True)


def test_doctor_tells_each_gap_with_what_would_close_it() -> None:
    lines = doctor.sandbox_gaps(", ".join(OPEN))
    assert any(line.startswith("without landlock:") and "to have it:" in line for line in lines)
    assert any("consent" in line for line in lines)
    assert doctor.sandbox_gaps("pid+ipc+net+mnt, uid, user, landlock-7, seccomp, nnp, rlimits") == []
