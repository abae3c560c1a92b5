"""Diagnostics, cost and pins of a sketch while it is typed: a ``Checked`` of the protocol."""

from __future__ import annotations

from kernellab.notebook.answers import Checked
from kernellab.notebook.language.pins import pinned_lines
from kernellab.notebook.protocol import Figure
from kernellab.notebook.views.detail import diagnostic_view
from kernellab.notebook.views.facts import Facts
from kernellab.notebook.views.verdict import figure
from kernellab.sketch.check import check
from kernellab.sketch.cost import Cost


def checked(text: str, facts: Facts) -> Checked:
    """Never raises on bad text: what is wrong with it is the answer."""
    result = check(text, chip=facts.chip)
    cost = facts.cost(result.program) if result.program is not None else None
    return {
        "diagnostics": [diagnostic_view(d, text) for d in result.diagnostics],
        "cost": cost_figures(cost, facts) if cost is not None else [],
        "pins": pinned_lines(text),
    }


def cost_figures(cost: Cost, facts: Facts) -> list[Figure]:
    """Footprint, traffic, work and the roofline's time, each with what it means."""
    chip = facts.chip
    flops = sum(cost.flops.values())
    where = f" of {amount(chip.on_chip_bytes)}B on {chip.name}" if chip and chip.on_chip_bytes else ""
    shown = [
        figure(f"{amount(cost.footprint)}B on chip", f"tiles that live in one parallel iteration{where}"),
        figure(
            f"{amount(cost.bytes_slow)}B moved",
            f"from the slowest level at the task's own sizes; {amount(cost.bytes_unique)}B are distinct, "
            f"{amount(cost.bytes_total)}B are named by all loads and stores",
        ),
        figure(
            f"{amount(flops)}FLOP",
            ", ".join(f"{amount(n)}FLOP in {kind}" for kind, n in cost.flops.items())
            + f"; {cost.intensity:.3g} for each byte moved",
        ),
    ]
    if cost.time_ms is not None and not facts.passed:
        judged = chip is not None and chip.judged
        unknown = "" if judged else "; it is rough: the Verifier has not measured this machine's rates yet"
        shown.append(
            figure(
                f"{'' if judged else 'roughly '}{cost.time_ms:.3g} ms roofline",
                f"what the chip's roofs allow, bound by {cost.bound}; {cost.parallelism:g} iterations can run at once; "
                f"roofs: {facts.roofs}{unknown}",
            )
        )
    return shown


def amount(number: float) -> str:
    """``67.1 M``: three digits and a decimal prefix, ready for a unit."""
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {prefix}"
    return f"{number:.3g} "
