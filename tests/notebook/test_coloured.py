"""Code and sketches in colour: the text is whole, escaped, and its parts have the theme's colours."""

from __future__ import annotations

import re
from html import unescape

import pytest

from kernellab.notebook.saved.coloured import coloured

SKETCH = """sketch s {  # <why>
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    @llm_hint("parallel")
    for n in range(0, N, 64):
        load(X[n:n+64] -> x, pad=-1e9)
        store(exp(x) & 1 -> Y[n:n+64])
}"""


TEXTS = [
    (SKETCH, "the.sketch"), ("int f(int a) { return a < 2 && a > 1; } // 'x'", "kernel.cpp"),
    ("def f(a):\n    return a <= '<b>'", "kernel.py"), ("__global__ void k() {}", "kernel.cu"), ("a < b", "what"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "file"), TEXTS)
def test_the_text_is_whole(text: str, file: str) -> None:
    assert unescape(re.sub(r"</?span[^>]*>", "", coloured(text, file))) == text


def test_parts_of_a_sketch_have_the_themes_colours() -> None:
    html = coloured(SKETCH, "the.sketch")
    for part, kind in (("sketch", "keyword"), ("&quot;parallel&quot;", "string"), ("# &lt;why&gt;", "comment"),
                       ("@llm_hint", "meta")):  # fmt: skip
        assert re.search(rf"--jp-mirror-editor-{kind}-color,#\w+\)\">{re.escape(part)}</span>", html), part
    assert not re.search(r">X</span>", html)
