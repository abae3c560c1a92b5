"""What models cost, summed; and how far they may go."""

from __future__ import annotations

import json

import pytest

from kernellab.errors import KernellabError
from kernellab.models import Budget, Ledger, ModelError
from kernellab.models.exchanges import ChatMessage, Exchange, Finish, Usage
from kernellab.records import Role


def exchange(role: Role, model: str, tokens: int, usd: float | None, finish: Finish = Finish.STOP) -> Exchange:
    usage = Usage(input_tokens=tokens, cached_tokens=tokens // 2, output_tokens=10, usd=usd, seconds=1.5)
    messages = (ChatMessage(role="user", content="hi"),)
    return Exchange(id="x", role=role, purpose="code", model=model, messages=messages, usage=usage, finish=finish)


def test_a_ledger_sums_by_turn_role_and_model() -> None:
    ledger = Ledger(
        [
            ("t1", exchange(Role.DESIGNER, "big", 100, 0.5)),
            ("t2", exchange(Role.CODER, "small", 200, None)),
            ("t2", exchange(Role.CODER, "small", 300, 0.25, Finish.TRUNCATED)),
            ("t2", exchange(Role.CODER, "small", 0, 0.0, Finish.CANCELLED)),
        ]
    )
    total = ledger.total
    assert (total.requests, total.failed, total.unpriced) == (4, 1, 1)
    assert (total.usage.input_tokens, total.usage.cached_tokens, total.usage.output_tokens) == (600, 300, 40)
    assert total.usage.usd == 0.75 and total.usage.seconds == 6.0
    assert ledger.turns["t2"].usage.input_tokens == ledger.roles["coder"].usage.input_tokens == 500
    assert ledger.models["big"].usage.usd == 0.5
    shown = json.loads(json.dumps(ledger.as_dict()))
    assert shown["roles"]["designer"]["requests"] == 1 and shown["total"]["usd"] == 0.75


def test_an_unknown_price_is_none_and_not_zero() -> None:
    assert Ledger([("t", exchange(Role.CODER, "m", 1, None))]).total.usage.usd is None


def test_a_budget_is_read_from_text_and_written_back() -> None:
    budget = Budget.parse(" tokens=200k, usd=1.5,minutes=30 ,gpu_s=600")
    assert budget.limits == Budget(200_000, 1.5, 30, 600).limits
    assert Budget.parse(str(budget.limits)).limits == budget.limits
    assert Budget.parse("tokens=1_234_567").limits.tokens == 1_234_567
    assert str(Budget.parse("").limits) == "" and Budget.parse("").reached() == ""


@pytest.mark.parametrize(
    "text",
    ["tokens", "tokens=", "tokens=0", "usd=-1", "usd=nan", "usd=inf", "coins=3", "usd=1,usd=2", "k"],
)
def test_a_wrong_budget_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(KernellabError, match="tokens=200000,usd=1"):
        Budget.parse(text)


def test_every_limit_is_reached_by_what_counts_for_it() -> None:
    for limits, spend in (
        ({"tokens": 110}, {"usage": Usage(input_tokens=100, output_tokens=10)}),
        ({"usd": 1}, {"usage": Usage(output_tokens=1, usd=1.0)}),
        ({"minutes": 1}, {"seconds": 60.0}),
        ({"gpu_s": 5}, {"gpu_s": 5.0}),
    ):
        budget = Budget(**limits)
        budget.check()
        budget.spend(**spend)
        (name,) = limits
        assert f"The budget {name}=" in budget.reached()
        with pytest.raises(ModelError, match="Raise the budget"):
            budget.check()


def test_a_persons_pause_costs_no_minutes() -> None:
    budget = Budget(minutes=1)
    budget.pause()
    before = budget.spent()["minutes"]
    assert budget.spent()["minutes"] == before
    budget.pause()
    budget.go_on()
    budget.go_on()
    assert budget.spent()["minutes"] >= before
