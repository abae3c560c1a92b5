"""Where a problem amplifies rounding, the limits widen by what one rounding of the inputs does, and by no more."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from kernellab.model_integration.gradient.derive import pair_texts
from kernellab.task import load_task
from kernellab.task.sample.inputs import Family
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.cases.rounding import summed_magnitudes
from kernellab.verifier.compare.compare import Limits, Reference, compare
from kernellab.verifier.compare.roundings import EXACT, Rounded

LAYER_NORM = """
import torch

def reference(x, weight, bias):
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias)

def inputs():
    return torch.randn(32, 300), torch.rand(300), torch.randn(300)
"""


def constant_rows() -> Case:
    found = Case(load_task(LAYER_NORM, name="norm"), (), Family.OWN, 7)
    x, weight, bias = found.args
    rows = x[:, :1].expand_as(x).contiguous() * 3
    made = replace(found)
    made.computed.args = (rows, weight, bias)
    return made


def plain(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    mean = x.sum(-1, keepdim=True) * (1 / x.shape[-1])
    variance = ((x - mean) ** 2).sum(-1, keepdim=True) / x.shape[-1]
    return (x - mean) * torch.rsqrt(variance + 1e-5) * weight + bias


def test_plain_sums_may_normalise_a_constant_row() -> None:
    case, limits = constant_rows(), Limits.of("float32")
    got = plain(*case.args)
    assert compare(got, case.references[0], limits)[0] is not None, "the case is not ill-conditioned enough to show it"
    assert compare(got, case.nudged[0], limits)[0] is None


def test_lower_precision_is_not_excused_by_conditioning() -> None:
    case, limits = constant_rows(), Limits.of("float32")
    rounded = plain(*case.args).bfloat16().float()
    assert compare(rounded, case.nudged[0], limits)[0] is not None


def test_a_well_conditioned_problem_is_not_widened() -> None:
    case = Case(load_task(LAYER_NORM, name="norm"), (), Family.OWN, 3)
    got = case.references[0].native * (1 + 3e-4)
    assert compare(got, case.nudged[0], Limits.of("float32"))[0] is not None


PRODUCT = """
import torch

def reference(x, w):
    return (x @ w.T).sum(1)

def inputs():
    return torch.randn(65, 63), torch.randn(255, 63)
"""


def ramps() -> Case:
    """Sums that grow and then cancel: a thousandth of a part of what was added remains."""
    found = Case(load_task(PRODUCT, name="product"), (), Family.STRUCTURED, 7)
    found.computed.args = tuple(torch.linspace(-2, 2, a.numel()).reshape(a.shape) for a in found.args)
    return found


def one_by_one(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    product = x @ w.T
    total = torch.zeros(len(x))
    for column in product.T:
        total = total + column
    return total


def test_sums_that_cancel_may_be_added_one_by_one() -> None:
    case, limits = ramps(), Limits.of("float32")
    got = one_by_one(*case.args)
    assert compare(got, case.references[0], limits)[0] is not None, "the ramps do not cancel enough to show it"
    assert compare(got, case.nudged[0], limits)[0] is None


def test_sums_that_cancel_excuse_no_missing_column() -> None:
    case, limits = ramps(), Limits.of("float32")
    x, w = case.args
    assert compare(one_by_one(x, w[:-1]), case.nudged[0], limits)[0] is not None


def test_what_was_added_up_is_asked_of_sums_and_products_alone() -> None:
    assert ramps().nudged[0].summed is not None
    for answer in ("x.exp().sum(-1)", "torch.softmax(x, -1)"):
        text = f"import torch\ndef reference(x):\n    return {answer}\ndef inputs():\n    return torch.randn(8, 9)\n"
        assert Case(load_task(text, name="other"), (), Family.STRUCTURED, 7).nudged[0].summed is None
    ordinary = Case(load_task(PRODUCT, name="product"), (), Family.NORMAL, 7)
    summed, terms = ordinary.nudged[0].summed, summed_magnitudes(ordinary.task, ordinary.args, ordinary.references)
    assert summed is not None and terms is not None
    assert bool((summed <= terms[0] / 8).all()), "of terms that are not alike, an eighth of a ramp's"


DIVERGENCE = """
import torch

def reference(p, q):
    return torch.nn.functional.kl_div(torch.log(q), p, reduction="batchmean")

def inputs():
    return torch.softmax(torch.randn(32, 33), -1), torch.softmax(torch.randn(32, 33), -1)
"""


def same_rows() -> Case:
    found = Case(load_task(DIVERGENCE, name="divergence"), (), Family.STRUCTURED, 7)
    made = replace(found)
    rows = torch.full((32, 33), 1 / 33)
    made.computed.args = (rows, rows.clone())
    return made


def fused(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """p log p rounded, less p log q not rounded, as a fused multiply-add gives it."""
    terms = ((p * torch.log(p)).double() - p.double() * torch.log(q).double()).float()
    return terms.sum() / p.shape[0]


def test_one_rounding_of_what_cancels_is_no_error_where_all_elements_are_rounded_alike() -> None:
    case, limits = same_rows(), Limits.of("float32")
    assert float(case.references[0].double) == 0.0
    got = fused(*case.args)
    assert 1e-9 < abs(float(got)) < 1e-6
    assert compare(got, case.references[0], limits)[0] is not None, "nothing is left to show"
    assert compare(got, case.nudged[0], limits)[0] is None
    # a term that is missing, or rounded to fewer bits, is no rounding
    p, q = case.args
    assert compare((p * torch.log(p)).sum() / 32, case.nudged[0], limits)[0] is not None
    assert compare(fused(p, q.bfloat16().float()), case.nudged[0], limits)[0] is not None


def test_what_does_not_cancel_is_hardly_wider_for_being_rounded_on_the_way() -> None:
    found = Case(load_task(DIVERGENCE, name="divergence"), (), Family.STRUCTURED, 3)
    case = replace(found)
    case.computed.args = load_task(DIVERGENCE, name="divergence").module().sample(None, 5)
    right = case.references[0].native
    assert compare(right * (1 + 3e-4), case.nudged[0], Limits.of("float32"))[0] is not None


TAIL = """
import torch

def reference(x):
    return {formula}

def inputs():
    return torch.randn(24, 32)
"""
FORMULAS = ("torch.nn.functional.gelu(x)", "0.5 * x * (1 + torch.erf(x * 0.5 ** 0.5))")


def erfc_gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * torch.erfc(-(0.5**0.5) * x)


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_kernel_may_keep_the_digits_that_the_reference_s_formula_loses(formula: str) -> None:
    """From -8.3 on, 1 + erf is 0 in float64 too; a kernel that writes erfc was refused in 11 of 200 draws."""
    task, limits = load_task(TAIL.format(formula=formula), name="gelu"), Limits.of("float32")
    for low, high in ((-12.0, 3.0), (-20.0, -7.5)):
        case = Case(task, (), Family.SCALED, 7)
        case.computed.args = (torch.linspace(low, high, 24 * 32).reshape(24, 32),)
        got = erfc_gelu(case.args[0].double()).float()
        assert compare(got, case.nudged[0], limits)[0] is None
        # what the formula still has digits of is held to them
        if high > 0:
            assert compare(got * (1 + 3e-4), case.nudged[0], limits)[0] is not None
            assert compare(erfc_gelu(case.args[0].bfloat16().float()), case.nudged[0], limits)[0] is not None


def test_what_formulas_lose_is_asked_of_inputs_of_any_size_alone() -> None:
    """The families that decide on a kernel's precision stay as narrow as they are."""
    task = load_task(TAIL.format(formula=FORMULAS[0]), name="gelu")
    rows = (torch.linspace(-12.0, 3.0, 24 * 32).reshape(24, 32),)
    far = {}
    for family in (Family.SCALED, Family.NORMAL):
        case = Case(task, (), family, 7)
        case.computed.args = rows
        (found,) = case.nudged
        assert found.nudged is not None
        far[family] = float((found.nudged - found.want)[0].abs().max())
    assert far[Family.NORMAL] == 0.0 < far[Family.SCALED]


CONV_NORM = """
import torch

PRECISION = {'conv': 'tf32'}

def reference(x, w, b):
    return torch.nn.functional.instance_norm(torch.nn.functional.conv3d(x, w, b))

def inputs():
    return torch.rand(2, 3, 6, 12, 12), torch.randn(4, 3, 3, 3, 3) * 0.1, torch.randn(4)
"""


def cut(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Rounded to so many bits of mantissa."""
    drop = 23 - bits
    return ((x.view(torch.int32) + (1 << (drop - 1))) >> drop << drop).view(torch.float32)


def test_factors_of_tf32_are_excused_before_a_norm_that_takes_a_large_mean_away() -> None:
    """As on an H200, where cuDNN took float32 for three channels, and an honest TF32 kernel was refused."""

    def answer(case: Case, bits: int) -> torch.Tensor:
        x, w, b = case.args
        return torch.nn.functional.instance_norm(torch.nn.functional.conv3d(cut(x, bits), cut(w, bits), b))

    case, limits = Case(load_task(CONV_NORM, name="conv_norm"), (), Family.OFFSET, 5), Limits.of("float32", tf32=True)
    assert compare(answer(case, 10), case.references[0], limits)[0] is not None, "the case does not show it"
    assert compare(answer(case, 10), case.nudged[0], limits)[0] is None
    # where there is no large mean, fewer bits are refused as before
    own = replace(case, family=Family.OWN)
    assert compare(answer(own, 10), own.nudged[0], limits)[0] is None
    assert compare(answer(own, 5), own.nudged[0], limits)[0] is not None
    # and without the task's word for TF32 there is no excuse
    strict = Case(load_task(CONV_NORM.replace("'tf32'", "'ieee'"), name="strict"), (), Family.OFFSET, 5)
    assert compare(answer(strict, 10), strict.nudged[0], Limits.of("float32"))[0] is not None


NUCLEUS = """
import torch

def reference(p):
    kept = p.cumsum(-1) - p < 0.9
    return p * kept / (p * kept).sum(-1, keepdim=True)

def inputs():
    return (torch.rand(64, 100).softmax(-1).sort(-1, descending=True).values,)
"""


def nucleus(p: torch.Tensor, cut: float = 0.9) -> torch.Tensor:
    kept = p.double().cumsum(-1) - p.double() < cut
    return (p * kept / (p * kept).sum(-1, keepdim=True)).float()


def test_where_a_formula_cuts_either_order_of_a_sum_is_right() -> None:
    """Ninety hundredths, each a little less, reach nine tenths or do not, as they are rounded: 90 are kept, or 91."""
    case, limits = Case(load_task(NUCLEUS, name="nucleus"), (), Family.OWN, 7), Limits.of("float32")
    (p,) = case.args
    p[3] = 0.01 * (1 - 5e-7)
    case.computed.args = (p,)
    other = nucleus(p)
    assert int(other[3].count_nonzero()) == int(case.references[0].native[3].count_nonzero()) == 91
    other[3] = (torch.arange(100) < 90) / 90
    assert compare(other, case.references[0], limits)[0] is not None
    assert compare(other, case.nudged[0], limits)[0] is None

    # a word less than either, another cut, fewer bits: no order of the sum gives that
    less = other.clone()
    less[3] = (torch.arange(100) < 89) / 89
    for wrong in (less, nucleus(p, 0.88), nucleus(p).bfloat16().float(), nucleus(p.bfloat16().float())):
        assert compare(wrong, case.nudged[0], limits)[0] is not None
    # the other order's row, and an element of it that neither has
    mixed = other.clone()
    mixed[3, 99] = 1 / 91
    assert compare(mixed, case.nudged[0], limits)[0] is not None


TOP_P = """
import torch

def reference(x):
    p = x.softmax(-1)
    ordered, order = p.sort(-1, descending=True)
    kept = ordered.cumsum(-1) - ordered < 0.895
    return torch.zeros_like(p).scatter(-1, order, ordered * kept)

def inputs():
    return (torch.randn(64, 100),)
"""


def test_which_of_equal_elements_comes_first_is_nobodys_promise() -> None:
    """A hundred equal hundredths, of which nine tenths are kept: the first ones or the last, not fewer, no others."""
    case, limits = Case(load_task(TOP_P, name="top_p"), (), Family.OWN, 7), Limits.of("float32")
    (x,) = case.args
    x[5] = 0.0
    case.computed.args = (x,)
    right = case.references[0].native.clone()
    assert int(right[5].count_nonzero()) == 90
    kept = {(0, 90): True, (10, 100): True, (0, 89): False, (0, 100): False, (5, 95): False}
    for (first, end), is_right in kept.items():
        other = right.clone()
        other[5] = 0.0
        other[5, first:end] = 0.01
        assert (compare(other, case.nudged[0], limits)[0] is None) is is_right, (first, end)


ATTENTION = """
import torch

def reference(q, k, v):
    return {formula}

def inputs():
    return torch.randn(1, 3, 32), torch.randn(1, 3, 32), torch.randn(1, 3, 8)
"""
PLAIN, FUSED = (
    "torch.softmax(q @ k.transpose(-1, -2), -1) @ v",
    "torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)",
)


def cancelling_scores(formula: str, seed: int) -> Case:
    """Scores of a few units that are differences of some thousands."""
    task = load_task(ATTENTION.format(formula=formula), name="attention")
    seen = torch.Generator().manual_seed(seed)
    x, y, rest, v = (torch.randn(1, 3, n, generator=seen) for n in (16, 16, 16, 8))
    made = replace(Case(task, (), Family.MIXED, seed))
    made.computed.args = (torch.cat((90 * x, 90 * x), -1), torch.cat((90 * y, rest / 90 - 90 * y), -1), v)
    return made


def in_order(case: Case, narrow: bool = False) -> torch.Tensor:
    q, k, v = (a.bfloat16().float() for a in case.args) if narrow else case.args
    scores = torch.zeros(1, 3, 3)
    for d in range(32):
        scores = scores + q[:, :, d, None] * k[:, None, :, d]
    made: torch.Tensor = torch.softmax(scores, -1) @ v
    return made


def lucky(reference: Reference) -> Reference:
    """As if the framework's order of sums had lost nothing, which happens where few keys count."""
    assert reference.double is not None
    return replace(reference, native=reference.double.float())


@pytest.mark.parametrize("formula", [PLAIN, FUSED])
def test_scores_whose_terms_cancel_may_be_added_in_another_order(formula: str) -> None:
    # in these, inputs that move by a rounding happen to move the answer by little
    cases, limits = [cancelling_scores(formula, seed) for seed in (46, 78, 116, 139)], Limits.of("float32")
    assert any(compare(in_order(c), lucky(c.references[0]), limits)[0] is not None for c in cases), "nothing to show"
    assert all(compare(in_order(c), lucky(c.nudged[0]), limits)[0] is None for c in cases)
    assert all(compare(in_order(c, narrow=True), c.nudged[0], limits)[0] is not None for c in cases)


ANGLES = """
import math
import torch

def reference(t, w):
    rates = torch.exp(-math.log(10000) * torch.arange(20, dtype=torch.float32) / 20)
    angle = t[:, None].float() * rates
    return (torch.cat([torch.cos(angle), torch.sin(angle)], -1) * w).to(torch.DTYPE)

def inputs():
    return torch.randint(0, 1000, (9,)), torch.randn(40)
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("ulps", "right"), [(4.0, True), (1000.0, False)])
def test_a_whole_number_may_amplify_a_rounding_of_what_it_is_multiplied_by(
    dtype: str, ulps: float, right: bool
) -> None:
    case = Case(load_task(ANGLES.replace("DTYPE", dtype), name="angles"), (), Family.OWN, 3)
    t, w = case.args
    rates = torch.exp(-torch.arange(20, dtype=torch.float64) * math.log(10000) / 20) * (1 + ulps * 2.0**-24)
    angle = t[:, None] * rates
    got = (torch.cat([torch.cos(angle), torch.sin(angle)], -1) * w).to(getattr(torch, dtype))
    assert (compare(got, case.nudged[0], Limits.of(dtype))[0] is None) is right
    if right and dtype == "float32":
        assert compare(got, case.references[0], Limits.of(dtype))[0] is not None, "the case does not amplify enough"


@pytest.mark.parametrize(
    ("formula", "wrong"),
    [
        ("torch.floor(x.float() / 2)", "torch.floor((x.float() - 1) / 2)"),
        ("(x.float() == 3.0).float()", "x.float() * 0"),
        ("torch.exp(x.float() / 100)", "torch.exp(x.float() / 100) * 1.0001"),
    ],
)
def test_whole_numbers_that_float32_holds_excuse_nothing(formula: str, wrong: str) -> None:
    text = f"import torch\n\ndef reference(x):\n    return {formula}\n\n"
    task = load_task(text + "def inputs():\n    return (torch.arange(1000),)\n", name="whole")
    for seed in range(6):
        case = Case(task, (), Family.OWN, seed)
        got = eval(wrong, {"torch": torch, "x": case.args[0]})
        assert compare(got, case.nudged[0], Limits.of("float32"))[0] is not None


SPIKES = """
import torch
from kernellab import Dim
T, H = Dim("T", 1, 256), Dim("H", 1, 20000)

def reference(x, tau):
    v, spikes = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = v + (x[t] - v) * tau
        s = (v >= 1.0).float()
        v = v * (1 - s)
        spikes.append(s)
    return torch.stack(spikes)

def inputs(T=24, H=20000):
    return torch.randn(T, H) * 2, torch.rand(H) * 0.5 + 0.1
"""


def test_a_loop_over_a_dim_that_names_a_dtype_is_asked_in_float64_too() -> None:
    """No graph holds for all its sizes. A kernel that fuses the product with the sum was refused for 1 of 517,120
    spikes in 7 of 2,509 draws: it had float64's answer, and the reference had not."""
    task = load_task(SPIKES, name="spikes")
    for size in (24, 25):
        case = Case(task, (("T", size), ("H", 20000)), Family.MIXED, 5)
        (found,) = case.references
        assert found.double is not None and found.double.dtype == torch.float64
        x, tau = (a.double() for a in case.args)
        v, spikes = torch.zeros_like(x[0]), []
        for t in range(size):
            v = v + (x[t] - v) * tau
            spikes.append((v >= 1.0).double())
            v = v * (1 - spikes[-1])
        assert torch.equal(torch.stack(spikes), found.double)


def test_one_element_that_cancels_has_the_roundings_of_what_was_added() -> None:
    """One draw of them missed it in 2 of 400, in which a sum in the reverse order was refused."""
    text = "import torch\n\ndef reference(x, y):\n    return x @ y\n\n"
    task = load_task(text + "def inputs():\n    return torch.randn(1, 64), torch.randn(64, 1)\n", name="dot")
    for seed in (216, 295):
        x, y = torch.randn(1, 64, generator=torch.Generator().manual_seed(seed)), torch.ones(64, 1)
        # a hundredth of the sum is left
        y[-1, 0] = -(x[0, :-1].double().sum() * 0.99 / x[0, -1].double()).float()
        case = Case(task, (), Family.UNIFORM, seed)
        case.computed.args = (x, y)
        got = torch.zeros(1, 1)
        for k in reversed(range(64)):
            got = got + x[:, k : k + 1] * y[k]
        assert compare(got, case.nudged[0], Limits.of("float32"))[0] is None
        assert compare(got * 1.01, case.nudged[0], Limits.of("float32"))[0] is not None


def test_one_sum_may_be_added_in_any_order() -> None:
    text = "import torch\n\ndef reference(x):\n    return x.sum(0)\n\n"
    task = load_task(text + "def inputs():\n    return (torch.randn(976, 1),)\n", name="column")
    case = Case(task, (), Family.NORMAL, 3)
    x = torch.randn(976, 1, generator=torch.Generator().manual_seed(3))
    x[-1] = -(x[:-1].double().sum() * 0.9).float()
    case.computed.args = (x,)
    worst = torch.zeros(1)
    for term in x.sort(0).values:  # what an order can lose: all of one sign first
        worst = worst + term
    assert compare(worst, case.references[0], Limits.of("float32"))[0] is not None, "it loses nothing"
    assert compare(worst, case.nudged[0], Limits.of("float32"))[0] is None
    assert compare(worst * 1.001, case.nudged[0], Limits.of("float32"))[0] is not None


def test_many_terms_excuse_no_narrow_sum() -> None:
    """The allowance of one sum grew with its terms: those rounded to float16 were accepted in 12 of 12 draws."""
    text = "import torch\n\ndef reference(x):\n    return x.sum(0)\n\n"
    task = load_task(text + "def inputs():\n    return (torch.randn(131072, 1),)\n", name="column")
    narrow = plain = 0
    for seed in range(6):
        case = Case(task, (), Family.NORMAL, seed)
        (x,) = case.args
        narrow += compare(x.half().float().sum(0), case.nudged[0], Limits.of("float32"))[0] is None
        plain += compare(x.cumsum(0)[-1], case.nudged[0], Limits.of("float32"))[0] is None
    assert narrow <= 2 and plain == 6


KEPLER = load_task(
    """import torch
def reference(m, e):
    x = m
    for _ in range(12):
        x = x - (x - e * torch.sin(x) - m) / (1 - e * torch.cos(x))
    return x
def inputs():
    return torch.rand(4096) * 6.28, torch.rand(4096) * 0.8
""",
    "kepler",
)


def _kepler(m: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    """The same with its quotient as a product, which rounds otherwise."""
    x = m
    for _ in range(12):
        x = x - (x - m - e * torch.sin(x)) * (1 / (1 - e * torch.cos(x)))
    return x


def test_where_newtons_steps_do_not_converge_a_right_kernel_is_right_and_a_wrong_one_is_not() -> None:
    comparison, chaotic = Comparison(KEPLER), 0
    for seed in range(24):
        case = Case(task=KEPLER, sizes=(), family=Family.NORMAL, seed=seed)
        got = _kepler(*case.args)
        far = (got.double() - case.references[0].want).abs() > 1.0
        chaotic += bool(far.any())
        assert comparison.first_wrong(case, [got]) is None
        # a tile that is off, and one element in twenty
        wrong = got.clone()
        wrong[:64] *= 1.01
        sparse = got.clone()
        sparse[::20] += 0.1
        assert comparison.first_wrong(case, [wrong]) is not None
        assert comparison.first_wrong(case, [sparse]) is not None
    assert chaotic, "no seed has such an element"
    own = Case(task=KEPLER, sizes=(), family=Family.OWN, seed=1)
    off = _kepler(*own.args)
    off[7] += 0.5
    assert comparison.first_wrong(own, [off]) is not None


COLUMNS = load_task(
    "import torch\ndef reference(x):\n    return x.sum(0)\ndef inputs():\n    return (torch.randn(4096, 132),)\n",
    "columns",
)


def test_two_sums_of_many_that_nearly_cancel_are_judged_by_what_they_add_up() -> None:
    case = Case(COLUMNS, (), Family.OWN, 5)
    x = case.args[0].clone()
    # what is left of two columns is a hundredth of one term
    x[-1, :2] -= x[:, :2].double().sum(0).float() - 0.01
    case = case.given((x,))
    one_by_one = torch.zeros(132)
    for row in x:
        one_by_one += row
    comparison = Comparison(COLUMNS)
    off = (one_by_one.double() - case.references[0].want).abs() / case.references[0].want.abs()
    assert bool((off[:2] > 1e-3).all())
    assert comparison.first_wrong(case, [one_by_one]) is None
    for wrong in (x[1:].sum(0), x[:-1].sum(0), x.bfloat16().float().sum(0), x.sum(0) * 1.0001):
        assert comparison.first_wrong(case, [wrong]) is not None


SOFTMAX = """
import torch

def reference(x):
    return torch.softmax(x, -1)

def inputs():
    return (torch.randn(8, 2080),)
"""


def one_pass(x: torch.Tensor) -> torch.Tensor:
    top, total = x[:, 0].clone(), torch.ones(len(x))
    for column in x.unbind(1)[1:]:
        larger = torch.maximum(column, top)
        total = total * torch.exp(top - larger) + torch.exp(column - larger)
        top = larger
    return torch.exp(x - top[:, None]) / total[:, None]


@pytest.mark.parametrize("largest", [7.0, 9.0, 10.0])
def test_equal_terms_after_a_larger_one_all_round_alike(largest: float) -> None:
    """Two thousand additions of 5e-5 to 1, each off by a fifth of a unit in the same direction: 4e-5."""
    task = load_task(SOFTMAX, name="softmax")
    found = Comparison(task)
    x = Case(task, (), Family.OWN, 7).args[0].clone()
    x[0], x[0, 0] = 0.0, largest
    case = Case(task, (), Family.EDGES, 7).given((x,))
    got = one_pass(x)
    assert found.first_wrong(case, [got]) is None
    # the bound is that row's alone, and not much larger than what is lost
    off = got.clone()
    off[0] *= 1 + 2.5e-4
    assert found.first_wrong(case, [off]) is not None
    piled = case.nudged[0].piled
    assert piled is not None and float((piled / case.nudged[0].want)[1:].max()) < 1e-5


DRAW = """
import torch

def reference(logits, u):
    ordered, order = torch.sort(torch.softmax(logits, -1), dim=-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    cdf = torch.where(before < 0.9, ordered, 0.0).cumsum(-1)
    at = (cdf < u[:, None] * cdf[:, -1:]).sum(-1, keepdim=True)
    return order.gather(-1, at.clamp(max=logits.shape[-1] - 1)).squeeze(-1)

def inputs():
    return torch.randn(32, 1000), torch.rand(32)
"""


def token(logits: torch.Tensor, u: torch.Tensor, past: int = 0, top_p: float = 0.9) -> torch.Tensor:
    weights = torch.exp(logits.double() - logits.double().amax(-1, keepdim=True))
    # equal ones in falling order of their positions
    shares = (weights / weights.sum(-1, keepdim=True)).flip(-1)
    ordered, order = torch.sort(shares, dim=-1, descending=True, stable=True)
    order = 999 - order
    cdf = torch.where(ordered.cumsum(-1) - ordered < top_p, ordered, 0.0).cumsum(-1)
    at = (cdf < u[:, None] * cdf[:, -1:]).sum(-1, keepdim=True) + past
    return order.gather(-1, at.clamp(max=999)).squeeze(-1)


@pytest.mark.parametrize("family", [Family.SMALL, Family.EDGES, Family.NORMAL])
def test_a_draw_may_take_any_of_equally_likely_tokens(family: Family) -> None:
    """In rows of a thousandth many probabilities are equal up to their rounding, in any order."""
    task = load_task(DRAW, name="draw")
    found = Comparison(task)
    cases = [Case(task, (), family, seed) for seed in range(4)]
    outputs = [token(*case.args) for case in cases]
    assert family is Family.NORMAL or any((o != c.native[0]).any() for o, c in zip(outputs, cases, strict=True))
    assert all(found.first_wrong(case, [o]) is None for case, o in zip(cases, outputs, strict=True))
    for wrong in ({"past": 1}, {"top_p": 0.8}):
        assert all(found.first_wrong(case, [token(*case.args, **wrong)]) is not None for case in cases), wrong


#: of one score, each gradient of its query is the rounding of zero
SCORES_GRADIENT = """
import torch
from kernellab import Dim

def reference(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)

S = Dim("S", 1, 512)

def inputs(S=64):
    return torch.randn(22, 2, S, 32), torch.randn(22, 2, S, 32), torch.randn(22, 2, S, 32)
"""


def fused_backward(grad, q, k, v, out, logs):
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    shares = torch.exp(scores - torch.logsumexp(scores, -1, True))
    behind = torch.einsum("...sd,...sd->...s", grad, shares @ v).unsqueeze(-1)
    to_scores = shares * (torch.einsum("...sd,...td->...st", grad, v) - behind) * q.shape[-1] ** -0.5
    return to_scores @ k, to_scores.mT @ q, shares.mT @ grad


def wrong_outputs(kernel, size: int, seeds: int) -> int:
    text = pair_texts(load_task(SCORES_GRADIENT, name="attention")).backward
    task, limits = load_task(text, name="attention_backward"), Limits.of("float32")
    cases = [Case(task, (("S", size),), Family.OWN, seed) for seed in range(seeds)]
    return sum(
        compare(g, r, limits)[0] is not None
        for case in cases
        for g, r in zip(kernel(*case.args), case.nudged, strict=True)
    )


def test_of_a_gradient_that_is_all_rounding_each_sums_order_is_right() -> None:
    """Its own size is a draw for each head: by nudged inputs alone, 12 of 120 right answers were refused."""
    assert wrong_outputs(fused_backward, 1, 40) == 0


def test_a_gradient_without_the_sum_of_its_row_is_wrong_at_one_score_too() -> None:
    def unsummed(grad, q, k, v, out, logs):
        scores = q @ k.mT * q.shape[-1] ** -0.5
        shares = torch.softmax(scores, -1)
        to_scores = shares * (grad @ v.mT) * q.shape[-1] ** -0.5
        return to_scores @ k, to_scores.mT @ q, shares.mT @ grad

    for size in (1, 5):
        assert wrong_outputs(unsummed, size, 3) == 6


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float", "grouped"])
def test_an_attentions_backward_is_rounded_inside(mask: str) -> None:
    q, k, v = (torch.randn(2, h, n, 8, dtype=torch.float64) for h, n in ((4, 5), (4, 7), (4, 7)))
    if mask == "grouped":
        k, v = k[:, :2], v[:, :2]
    masks = {"bool": torch.rand(5, 7) < 0.7, "float": torch.randn(5, 7, dtype=torch.float64)}
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]

    def gradients():
        out = torch.nn.functional.scaled_dot_product_attention(
            *leaves, attn_mask=masks.get(mask), is_causal=mask == "causal", enable_gqa=mask == "grouped"
        )
        return torch.autograd.grad(out, leaves, torch.ones_like(out) + torch.arange(8))

    exact = gradients()
    for unit, seed in ((0.0, 0), (2.0**-24, 1)):
        with Rounded(unit, seed, EXACT):
            moved = gradients()
        for one, other in zip(exact, moved, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12 if unit == 0 else 1e-4, atol=1e-12 if unit == 0 else 1e-5)
    with Rounded(2.0**-24, 1, EXACT) as watch:
        gradients()
    assert watch.done > 20, "its products, shares and sums are rounded one by one"
