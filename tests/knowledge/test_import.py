"""Raw documentation becomes the DocSpec form, and what cannot be placed is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.cli import main
from kernellab.dsls.documented import DocumentedAdapter
from kernellab.dsls.spec import read_spec
from kernellab.knowledge.importer import import_raw
from kernellab.knowledge.lint import lint
from kernellab.knowledge.pages import DocumentError, parse_page
from kernellab.knowledge.prompts import prompt
from kernellab.models import write_replay
from kernellab.models.exchanges import ChatMessage, Exchange
from kernellab.records import Role

RAW = """# Toylang

Toylang is small.

## Getting started

Install it.

## API

### toy.add(a, b)

Adds. Returns the sum.

## Performance tips

Use big blocks.

## Adding two vectors

```python
import toy


def kernel(a, b):
    return toy.add(a, b)
```

## Zebra

Stripes.

## License

Free.
"""
HTML = """<html><head><style>p{}</style></head><body><nav><p>menu</p></nav><main>
<h1>Toylang</h1><p>It is <b>small</b>.</p><h2>Functions</h2><dl><dt>toy.mul(a, b)</dt><dd>Multiplies.</dd></dl>
<pre class="python">import toy

def f():
    pass
</pre><ul><li>one</li></ul><table><tr><th>a</th><td>b</td></tr></table></main></body></html>"""


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "raw.md"
    path.write_text(RAW)
    return path


def test_sections_go_to_their_parts_and_the_rest_is_reported(raw: Path) -> None:
    found = import_raw(str(raw), "toylang")
    assert "Toylang is small." in found.files["basic.md"]
    assert "## Getting started" in found.files["basic.md"]
    assert "## toy.add(a, b)" in found.files["api.md"]
    assert "Use big blocks." in found.files["suggestions.md"]
    assert "def kernel(a, b):" in found.files["examples/torch/adding_two_vectors.py"]
    assert [heading for heading, _, _ in found.unplaced] == ["Toylang / Zebra"]
    assert "Zebra (line 29): neither its heading" in found.report()
    text = "".join(found.files.values())
    assert "Stripes" not in text
    assert "Free." not in text


def test_a_model_may_place_what_the_rules_cannot(raw: Path) -> None:
    asked: list[str] = []

    def place(question: str) -> str:
        asked.append(question)
        return "Suggestions."

    found = import_raw(str(raw), "toylang", place=place)
    assert "Stripes." in found.files["suggestions.md"]
    assert found.unplaced == []
    assert len(asked) == 1
    assert "Stripes." in asked[0]
    refused = import_raw(str(raw), "toylang", place=lambda _: "the moon")
    assert refused.unplaced[0][2] == "the model answered 'the moon'"


def test_the_commands_model_is_any_that_a_role_may_have(raw: Path, tmp_path: Path) -> None:
    section = next(s for s in parse_page(RAW).sections if s.title == "Zebra")
    asked = ChatMessage(role="user", content=prompt("place", text=section.text))
    exchange = Exchange(id="1", role=Role.ANALYST, purpose="place", model="m", messages=(asked,), reply="basic")
    recorded = write_replay(tmp_path / "place.jsonl", [exchange])
    call = ["docs", "import", str(raw), "--dsl", "toylang", "--out", str(tmp_path / "toylang")]
    assert main([*call, "--model", f"replay:{recorded}"]) == 0
    assert "Stripes." in (tmp_path / "toylang/basic.md").read_text()


def test_html_is_read_without_its_frame(tmp_path: Path) -> None:
    (tmp_path / "raw.html").write_text(HTML)
    found = import_raw(str(tmp_path / "raw.html"), "toylang")
    assert "It is small." in found.files["basic.md"]
    assert "## toy.mul(a, b)" in found.files["api.md"]
    assert "Multiplies." in found.files["api.md"]
    assert "menu" not in "".join(found.files.values())


def test_a_modules_docstrings_become_an_api_document() -> None:
    api = parse_page(import_raw("python:textwrap", "wrapping").files["api.md"])
    assert any(title.startswith("textwrap.dedent(text)") for title in api.headings)
    assert "Remove any common leading whitespace" in api.text


@pytest.mark.parametrize(
    ("raw", "dsl", "message"),
    [
        ("nowhere.md", "toy", "is neither a file nor a folder"),
        (__file__, "toy", "test_import.py is not a document: Markdown and HTML are read. .* python:test_import"),
        ("python:no_such_module", "toy", "is not installed"),
        ("python:textwrap", "To y", "cannot name a DSL"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(raw: str, dsl: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        import_raw(raw, dsl)


def test_the_command_writes_once_and_lint_asks_for_what_is_left(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "knowledge/dsl/toylang"
    assert main(["docs", "import", str(raw), "--dsl", "toylang", "--out", str(out)]) == 1
    assert "1 not; 5 files" in capsys.readouterr().out
    assert (tmp_path / "knowledge/dsl/toylang-import.md").is_file()
    assert main(["docs", "import", str(raw), "--dsl", "toylang", "--out", str(out)]) == 2
    assert "is not empty" in capsys.readouterr().err
    faults = [fault.message for fault in lint(tmp_path / "knowledge")]
    assert any("FILL IN" in message for message in faults)
    assert any(fault.where.startswith("dsl/toylang/spec.toml:") for fault in lint(tmp_path / "knowledge"))
    ready = DocumentedAdapter(read_spec(out / "spec.toml")).readiness()
    assert not ready.ready and "is a draft" in ready.reason and "Replace each FILL_IN" in ready.remedy
