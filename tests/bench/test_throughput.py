"""Candidates a minute: right kernels that share no compiled code, pairs in one run, figures that add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernellab.dsls import get_adapter
from kernellab.errors import KernellabError
from tests.bench import throughput
from tests.bench.throughput import Pair, Rate, Throughput, candidate, table


@pytest.mark.parametrize("dsl", list(throughput.CANDIDATES))
def test_each_candidate_is_a_kernel_with_a_text_of_its_own(dsl: str) -> None:
    one, other = candidate(dsl, 1), candidate(dsl, 2)
    assert get_adapter(dsl).static(one) == []
    assert one.hash != other.hash and "fused_2" in other.files["kernel.py"]


def test_the_table_has_rates_and_the_pairs_ratio_with_its_spread() -> None:
    found = Throughput(
        dsl="cpp", backend="cpu", chip="a chip", load=0.5, failures=["correct: wrong"], note="a note",
        rates=[Rate(workers=2, cold_seconds=12.0, warm_candidates=8, warm_seconds=24.0)],
        pairs=[Pair(ours=2.0, fresh=8.0, how="KernelBench"), Pair(ours=2.0, fresh=4.0, how="KernelBench"),
               Pair(ours=2.0, fresh=None, how="KernelBench", reason=": it fell")],
    )  # fmt: skip
    text = table(found)
    assert "| 2 | 12.0 s | 10.0 | 20.0 |" in text
    assert "Ratio of the pairs: median 3.00x (2.00 to 4.00, 2 of them)." in text
    assert "did not pass one: it fell." in text and "a note." in text
    assert "Not passed by ours: correct: wrong" in text


@pytest.mark.slow
def test_one_pair_and_one_judge_for_real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "o.json"
    assert throughput.throughput(dsl="cpp", candidates=1, rows=64, out=file, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(file.read_text())
    (pair,) = found["pairs"]
    assert pair["how"] == "in KernelBench's manner" and pair["fresh"] > 0 and pair["ours"] > 0
    assert found["ratios"] == [pytest.approx(pair["fresh"] / pair["ours"])]
    assert found["per_minute"]["1"]["warm"] > 0 and found["failures"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"workers": "two"}, "not a list of numbers"),
        ({"workers": "0"}, "not a list of numbers"),
        ({"dsl": "numba"}, "no candidates in 'numba'"),
        ({"dsl": "cpp", "kernelbench": Path("nowhere")}, "not a checkout of KernelBench"),
    ],
)
def test_a_wrong_call_is_told(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(KernellabError, match=words) as error:
        throughput.throughput(**arguments)
    assert error.value.remedy
