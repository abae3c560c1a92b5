"""What the roles ask of the documents: cut to need, with the source of each answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError
from kernellab.knowledge import Knowledge
from kernellab.knowledge.cut import cut
from kernellab.knowledge.pages import parse_page
from kernellab.knowledge.rank import scores
from kernellab.knowledge.toolchain import dotted, missing_names


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def test_loading_imports_no_toolchain() -> None:
    code = (
        "import sys; from kernellab.knowledge import Knowledge;"
        "k = Knowledge.load(); k.language(['gemm']); k.dsl('triton');"
        "assert not {'torch', 'triton', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_language_is_cut_to_operations_and_errors(knowledge: Knowledge) -> None:
    whole, part = knowledge.language(), knowledge.language(["gemm"], "SK304 race")
    assert part.tokens < whole.tokens
    assert "The sketch language in one page" in part.text
    assert "## Matrix products" in part.text
    assert "## SK304 race" in part.text
    assert "## Scans" not in part.text


def test_a_budget_is_kept(knowledge: Knowledge) -> None:
    for budget in (1200, 2000, 3000):
        assert knowledge.language(["gemm", "cumsum", "reduce_sum"], budget=budget).tokens <= budget
        assert knowledge.api_for("triton", ["gemm", "reduce_sum", "load"], budget=budget).tokens <= budget + 20


def test_api_documents_hold_the_installed_toolchains_signatures(knowledge: Knowledge) -> None:
    found = knowledge.api_for("triton", ["cumsum"])
    assert "## Scans" in found.text
    assert "tl.cumsum(input, axis=0" in found.text
    assert "triton 3" in found.source


def test_an_error_brings_the_whole_docstring_of_what_it_names(knowledge: Knowledge) -> None:
    plain = knowledge.api_for("triton", ["load"], budget=6000).text
    told = knowledge.api_for("triton", ["load"], "tl.load got an unexpected keyword", budget=6000).text
    assert ":param pointer:" in told
    assert ":param pointer:" not in plain


def test_names_that_the_toolchain_lacks_are_found(knowledge: Knowledge) -> None:
    modules = knowledge.dsl("triton").spec.documents.toolchain
    used = dotted("x = tl.softmx(tl.load(p)); tl.extra.libdevice", modules)
    assert missing_names(modules, used) == ["tl.softmx"]


def test_examples_of_the_family_come_first(knowledge: Knowledge) -> None:
    first, second = knowledge.examples("triton", "normalisation", k=2)
    assert first.source == "dsl/triton/examples/torch/layer_norm.py"
    assert second.source != first.source
    assert knowledge.examples("cpp", "attention", k=1, words="softmax of scores")[0].source.endswith("softmax.py")


def test_a_chip_says_its_facts_and_where_they_are_from(knowledge: Knowledge) -> None:
    found = knowledge.chip(detect_target("triton", "h200"))
    assert found.source == "hardware/h200.md"
    assert "132 SMs" in found.text
    assert "bf16 701" in found.text


@pytest.mark.parametrize(
    ("words", "family"),
    [
        ("torch.softmax(x, -1)", "softmax"),
        ("class Model with LayerNorm, layer_norm(x)", "normalisation"),
        ("a @ b, a matmul of two matrices", "matmul"),
        ("conv2d with stride", "convolution"),
        ("nothing of the kind", ""),
    ],
)
def test_words_name_their_family(knowledge: Knowledge, words: str, family: str) -> None:
    assert knowledge.family(words) == family
    if family:
        assert knowledge.patterns(family).source == f"patterns/{family}.md"


def test_what_is_not_there_is_said_with_the_nearest(knowledge: Knowledge) -> None:
    with pytest.raises(KernellabError, match="'tritn'") as caught:
        knowledge.dsl("tritn")
    assert "'triton'" in caught.value.remedy
    with pytest.raises(KernellabError) as caught:
        knowledge.patterns("soft_max")
    assert "'softmax'" in caught.value.remedy


def test_a_workspaces_own_document_goes_before_the_installations(tmp_path: Path) -> None:
    (tmp_path / "knowledge/patterns").mkdir(parents=True)
    (tmp_path / "knowledge/patterns/softmax.md").write_text("# Ours\n\nOur own advice.\n")
    found = Knowledge.load(workspace=tmp_path)
    assert found.patterns("softmax").text.startswith("# Ours")
    assert found.patterns("matmul").title == "Matrix products"


def test_bm25_prefers_the_rarer_word_and_the_shorter_text() -> None:
    texts = ["load store load", "a scan with associative_scan", "load " + "words " * 50 + "scan"]
    found = scores("scan", texts)
    assert found[0] == 0
    assert found[1] > found[2] > 0


def test_a_named_section_goes_before_one_that_only_mentions_it() -> None:
    page = parse_page(
        "# A\n\n## Talk\n\nsum sum sum sum\n\n## `x.sum`\n\nIt adds up all the elements of a long block.\n"
    )
    assert [s.title for s in cut(page.sections, ["sum"], budget=20)] == ["x.sum"]


def test_blocks_know_their_options_section_and_line() -> None:
    page = parse_page("---\nwords: a b\n---\n# T\n\n## S\n\n```sketch task=a/b fails\nx\n```\n")
    block = page.blocks[0]
    assert (block.language, dict(block.options), block.line) == ("sketch", {"task": "a/b", "fails": ""}, 8)
    assert page.front == {"words": "a b"}
