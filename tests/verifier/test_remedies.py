"""Each refusal says what to do about it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kernellab.records import Evidence, Stage, Verdict
from kernellab.records.tried import Tried
from kernellab.verifier.protocol.remedies import OF_LARGE_SIZES, REMEDIES, remedy

ROOM = Path(__file__).parents[2] / "kernellab" / "verifier"
#: what refuses, and which of its arguments is the signature
SIGNED = {"refused": 1, "Finding": 0, "_fatal": 0, "WorkerFailure": 0, "_killed": 0}


def signatures() -> Iterator[tuple[str, str]]:
    """(signature, where) of each refusal that the Verifier's code names, and of each pattern of wrong numbers."""
    for path in sorted(ROOM.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named: list[ast.expr] = []
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                if called in SIGNED:
                    named = node.args[SIGNED[called] :][:1]
                elif called == "Evidence":
                    named = [k.value for k in node.keywords if k.arg == "signature"]
            elif isinstance(node, ast.FunctionDef) and node.name == "numeric":
                named = [r.value for r in ast.walk(node) if isinstance(r, ast.Return) and r.value is not None]
            for text in (text for value in named for text in texts(value)):
                yield text, f"{path.relative_to(ROOM)}:{node.lineno}"


def texts(value: ast.expr) -> list[str]:
    """The texts that an expression may be."""
    if isinstance(value, ast.IfExp):
        return texts(value.body) + texts(value.orelse)
    return [value.value] if isinstance(value, ast.Constant) and isinstance(value.value, str) else []


def test_every_signature_has_a_remedy() -> None:
    found = dict(signatures())
    assert {"edge-tile", "ghost", "hidden-code", "hang", "crash", "race"} <= found.keys()
    assert {name: where for name, where in found.items() if name not in REMEDIES} == {}


def test_only_a_refusal_has_a_remedy() -> None:
    refused = Verdict(passed=False, stage=Stage.ROBUST, reason="Wrong.", evidence=Evidence(signature="race"))
    assert remedy(refused) == REMEDIES["race"]
    assert remedy(refused.model_copy(update={"passed": True})) == ""


def test_a_wrong_value_at_large_sizes_alone_is_no_wrong_formula() -> None:
    def of(sizes: dict[str, int], *tried: Tried, signature: str = "wrong-values") -> str:
        evidence = Evidence(signature=signature, sizes=sizes, tried=tried)
        return remedy(Verdict(passed=False, stage=Stage.CORRECT, reason="Wrong.", evidence=evidence))

    small, large = Tried(sizes={"M": 33}, right=True), Tried(sizes={"M": 4000}, right=True)
    assert of({"M": 3000}, small) == OF_LARGE_SIZES
    for tried in ((), (small, large), (small.model_copy(update={"right": False}),)):
        assert of({"M": 3000}, *tried) == REMEDIES["wrong-values"]
    assert of({"M": 3000}, small, signature="race") == REMEDIES["race"]
