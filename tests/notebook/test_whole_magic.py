"""``%%kernel_profile``: the table, the sliders and what they say."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from kernellab.errors import ProfileError
from kernellab.notebook.magics.model import fastest, sentence, sliders

MODEL = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.LayerNorm(256), torch.nn.GELU())
def inputs():
    return torch.randn(512, 64)
"""


def test_a_model_in_a_cell_gets_a_profile_whose_sliders_predict(shell: InteractiveShell, capsys) -> None:
    shell.run_cell_magic("kernel_profile", "p --device cpu", MODEL)
    said = capsys.readouterr().out
    assert "joined to the captured graph" in said and "layer_norm + gelu" in said
    found = shell.user_ns["p"]
    box = sliders(found)
    *controls, told = box.children
    before = told.value
    assert before == sentence(found, {}) and before.endswith("1.00x.")
    rows = found.apart()
    if not rows:  # each row ran at its bound: there is nothing to slide
        assert not controls
        return
    row = rows[0]
    controls[0].value = fastest(row)
    assert told.value == sentence(found, {row.number: controls[0].value}) != before


def test_what_is_no_model_is_told_in_a_sentence(shell: InteractiveShell) -> None:
    with pytest.raises(ProfileError, match="neither `model` nor `Model`"):
        shell.run_cell_magic("kernel_profile", "p", "x = 1")
    with pytest.raises(UsageError, match="cannot name a variable"):
        shell.run_cell_magic("kernel_profile", "1p", MODEL)
