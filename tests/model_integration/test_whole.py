"""Whole models: what a profile says, kernels put in and taken out, and models that do not fit."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernellab.errors import ProfileError, SwapError
from kernellab.model_integration import Profile, go_down, install, profile, uninstall
from kernellab.model_integration.auto import faster
from kernellab.model_integration.display import as_dict, head, table
from kernellab.model_integration.measure import join
from kernellab.model_integration.regions import is_view
from kernellab.model_integration.swap import clock, place
from kernellab.model_integration.tree import parts
from kernellab.task import load_task

MODELS = Path(__file__).parent / "models"


@pytest.fixture(scope="module")
def gpt() -> Profile:
    """Two small transformer blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELLAB_TINY", "1")
        return profile(MODELS / "gpt.py", device="cpu")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few rounds, and one thread: other work on the machine slows it down less than a pool that waits for its last."""
    for module, seconds in ((clock, 0.2), (place, 0.3)):
        monkeypatch.setattr(module, "_SECONDS", seconds)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def activation(found: Profile):
    return next(row for row in found.rows if row.kind == "chain" and "tanh" in row.words)


def gelu(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


def outputs(found: Profile, seed: int = 7):
    args, kwargs = found.workload.draw(seed)
    with torch.no_grad():
        return found.workload.model(*args, **kwargs)


def test_the_time_of_a_model_is_joined_to_its_graph_once(gpt) -> None:
    assert gpt.coverage > 0.95 and 0 < gpt.measured.device_ms <= gpt.step_ms
    single = [row for row in gpt.rows if row.kind == "operation"]
    assert sum(row.time_ms for row in single) <= gpt.measured.device_ms
    whole = next(row for row in gpt.rows if row.kind == "submodule")
    inside = sum(row.time_ms for row in gpt.rows if row.taken < whole.taken and row.kind in ("operation", "chain"))
    assert whole.time_ms == pytest.approx(inside, rel=0.05)


def test_blocks_that_do_the_same_are_one_row_with_the_models_own_module_as_reference(gpt) -> None:
    row = gpt.row("h.1.mlp")
    assert [place.module for place in row.places] == ["h.0.mlp", "h.1.mlp"]
    task = load_task(row.text, row.name)
    args = [torch.randn(2, 32, 64), *(v for v in gpt.workload.model.h[0].mlp.state_dict().values())]
    (made,) = task.module().reference(args)
    assert torch.allclose(made, gpt.workload.model.h[0].mlp(args[0]), atol=1e-5)


def test_every_row_states_a_task_that_runs(gpt) -> None:
    for row in gpt.rows:
        task = load_task(row.text, row.name)
        assert len(task.outputs) == len(row.places[0].outputs)
        assert not all(is_view(op) for op in row.places[0].ops)


def test_a_prediction_is_amdahls_law(gpt) -> None:
    row = activation(gpt)
    share = row.time_ms / gpt.measured.device_ms
    scaled = min(1.0, gpt.step_ms / gpt.measured.device_ms) * gpt.measured.device_ms / gpt.step_ms
    assert gpt.predict({row.number: 4.0}) == pytest.approx(gpt.step_ms * (1 - share * scaled * 0.75))
    assert gpt.predict(reach=1.0) < gpt.predict(reach=0.2) < gpt.step_ms


def test_launches_that_fall_away_save_the_gaps_before_them(gpt) -> None:
    row = replace(activation(gpt), launches=12)
    device = gpt.measured.device_ms
    events = tuple(replace(e, launches=2) for e in gpt.measured.events)
    gaps = replace(gpt, measured=replace(gpt.measured, events=events, graph_ms=1.3 * device))
    close = replace(gpt, measured=replace(gpt.measured, events=events, graph_ms=device))
    saved = 1.3 * device - gaps.predict_rows([(row, 4.0)])
    fewer = (12 - len(row.places)) / (2 * len(events))
    assert saved == pytest.approx(device - close.predict_rows([(row, 4.0)]) + 0.3 * device * fewer)


def test_where_the_host_launches_the_gap_is_between_its_kernels_and_that_is_said(gpt) -> None:
    device = gpt.measured.device_ms
    events = tuple(replace(e, launches=2) for e in gpt.measured.events)
    bound = replace(gpt, measured=replace(gpt.measured, events=events, step_ms=3 * device, others=1.5))
    assert bound.measured.gap_ms == pytest.approx(2 * device / (2 * len(events)))
    said = "\n".join(head(bound))
    assert f"Launch-bound: {2 * len(events)} kernels" in said and "other work used 1.5 of" in said
    assert "Launch-bound" not in "\n".join(head(gpt))


def test_modules_are_a_tree_and_rows_stand_below_those_that_hold_them(gpt) -> None:
    found = {part.path: part for part in parts(gpt.measured)}
    forward = sum(e.forward + e.backward for e in gpt.measured.events)
    assert found[""].total_ms == pytest.approx(forward) == sum(part.self_ms for part in found.values())
    inner = sum(part.total_ms for path, part in found.items() if path.startswith("h.0.mlp.") and path.count(".") == 3)
    assert found["h.0.mlp"].total_ms == pytest.approx(found["h.0.mlp"].self_ms + inner)
    assert next(iter(found)) == "" and list(found).index("h.0") < list(found).index("h.0.mlp")
    row = next(r for r in gpt.rows if gpt.within(r) is not None)
    assert gpt.within(row).taken >= row.taken
    holder = gpt.within(row)
    while gpt.within(holder) is not None:
        holder = gpt.within(holder)
    lines = table(gpt, len(gpt.rows)).splitlines()
    at = {int(line[:3]): n for n, line in enumerate(lines) if line[:3].strip().isdigit()}
    assert at[holder.number] < at[row.number]


def test_a_bound_that_is_not_known_is_not_zero(gpt) -> None:
    rows = tuple(replace(row, bound_ms=0.0) for row in gpt.rows)
    unknown = replace(gpt, rows=rows)
    assert " 0.000 " not in table(unknown) and "cannot be counted" in table(unknown)
    assert all(row["bound_ms"] is None for row in as_dict(unknown)["rows"])


def test_a_kernel_takes_the_places_of_its_row_and_leaves_them(gpt) -> None:
    before, names = outputs(gpt), list(gpt.workload.model.state_dict())
    swap = install(gpt.workload.model, activation(gpt), gelu, measure=False)
    assert swap.gain.speedup_alone > 0 and "forward" in gpt.workload.model.__dict__
    assert torch.allclose(outputs(gpt), before, atol=1e-4)
    assert list(gpt.workload.model.state_dict()) == names
    with pytest.warns(UserWarning, match="called otherwise"), torch.no_grad():
        assert gpt.workload.model(torch.zeros(1, 8, dtype=torch.long)).shape == (1, 211)
    with pytest.raises(SwapError, match="covers some of the same operations"):
        install(gpt.workload.model, "h.0.mlp", gelu)
    compiled = torch.compile(gpt.workload.model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.allclose(compiled(*gpt.workload.draw(7)[0]), before, atol=1e-4)
    assert uninstall(gpt.workload.model) == 1
    assert "forward" not in gpt.workload.model.__dict__ and torch.equal(outputs(gpt), before)


def test_a_copy_of_a_model_with_kernels_has_them_over_its_own_parameters(gpt) -> None:
    model, before = gpt.workload.model, outputs(gpt)
    with pytest.raises(ProfileError, match="cannot be 0 times as fast"):
        gpt.predict({1: 0})
    with pytest.warns(UserWarning, match=r"the hooks of h\.0 are not called"):
        handle = model.h[0].register_forward_hook(lambda *_: None)
        install(model, activation(gpt), gelu, measure=False)
    handle.remove()
    with pytest.raises(ProfileError, match="Kernels are installed in this"):
        profile(model, *gpt.workload.draw(7)[0])
    (args, _), other = gpt.workload.draw(7), copy.deepcopy(model)
    with torch.no_grad():
        assert torch.allclose(other(*args), before, atol=1e-4)
        for parameter in other.parameters():
            parameter.zero_()
        assert not other(*args).any() and torch.allclose(model(*args), before, atol=1e-4)
    assert uninstall(other) == 1 and "forward" not in other.__dict__ and uninstall(other) == 0
    assert uninstall(model) == 1 and uninstall(model) == 0


def test_a_kernel_that_writes_into_an_input_is_refused_and_the_weights_stay(gpt) -> None:
    before = outputs(gpt)
    product = next(r for r in gpt.rows if r.words == "linear")
    with pytest.raises(SwapError, match="it writes into its input 1"):
        install(gpt, product, lambda x, w, *b: torch.nn.functional.linear(x, w.mul_(2), *b), measure=False)
    assert torch.equal(outputs(gpt), before)


def test_a_model_profiled_again_states_the_same_tasks() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.LayerNorm(32), torch.nn.GELU()), torch.rand(64, 8)
    first, again = profile(model, x), profile(model, x)
    assert {r.name: r.text for r in again.rows} == {r.name: r.text for r in first.rows}
    with pytest.raises(ProfileError, match="A function is not a torch module"):
        profile(gelu, x)
    with pytest.raises(ProfileError, match=r"missing 1 required .* Give a call's arguments"):
        profile(model)


def test_what_a_kernel_saves_is_timed_in_the_models_own_step(gpt, quick) -> None:
    def late(x):
        time.sleep(0.002)
        return gelu(x)

    row = activation(gpt)
    swap = install(gpt, row, late)
    assert swap.gain.in_place is not None and swap.against_previous is swap.against_original is not None
    # both sides meet the same load: what stands between them is the planted wait, once a place
    assert swap.gain.in_place.kernel_ms - swap.gain.in_place.region_ms > len(row.places) * 1.5
    assert swap.gain.in_place.high < 0 and swap.predicted < 1 and swap.against_original.high < 1 and not faster(swap)
    product = next(r for r in gpt.rows if r.words == "linear")
    other = install(gpt, product, torch.nn.functional.linear)
    assert other.against_previous is not None and other.against_original is not None
    assert other.against_previous.before_ms > other.against_original.before_ms, (
        "the step's figure is against the model with the first kernel"
    )
    assert uninstall(gpt) == 2


def test_a_kernel_that_changes_the_numbers_is_taken_out_again(gpt) -> None:
    before = outputs(gpt)
    with pytest.raises(SwapError, match=r"output 0 is off by .* taken out again"):
        install(gpt, activation(gpt), lambda x: gelu(x) * 1.001)
    with pytest.raises(SwapError, match=r"gives float32\[1, 32, 256\], and the region float32\[2, 32, 256\]"):
        install(gpt, activation(gpt), lambda x: x[:1])
    assert torch.equal(outputs(gpt), before)


TRAINED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.out = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, x):
        return self.out(torch.tanh(self.norm(self.fc(x))))

def inputs():
    return torch.randn(64, 16)
"""


#: seconds in each backward of a slow kernel
SLEPT = 0.1


def test_a_training_step_has_its_backward_joined_and_its_gradients_checked(quick) -> None:
    found = profile(TRAINED, train=True, device="cpu")
    # what is joined is counted in operations: their share of the time is another at each run
    joined = join(found.measured, found.captured.units)
    assert sorted(e.word for e in joined.values()) == ["layer_norm", "linear", "linear", "tanh"]
    assert all(e.forward > 0 and e.backward > 0 for e in joined.values()) and 0 < found.coverage <= 1
    assert found.measured.device_ms <= found.step_ms * (1 + 1e-9)
    chain = next(r for r in found.rows if r.words == "layer_norm + tanh")
    assert chain.backward_ms > 0

    def kernel(x, weight, bias):
        return torch.nn.functional.layer_norm(x, (32,), weight, bias).tanh_()

    def backward(given, args):
        time.sleep(SLEPT)
        leaves = [a.detach().requires_grad_() for a in args]
        with torch.enable_grad():
            return torch.autograd.grad(
                torch.nn.functional.layer_norm(leaves[0], (32,), *leaves[1:]).tanh(), leaves, given
            )

    swap = install(found, chain, kernel, backward=backward)
    assert swap.row is chain and swap.gain.in_place is not None
    # a call cannot take less time than it sleeps, and the whole step is a hundredth of that
    assert swap.gain.in_place.kernel_ms >= 1e3 * SLEPT > swap.gain.in_place.region_ms
    assert swap.predicted < 1 and not faster(swap)
    uninstall(found)

    def wrong(given, args):
        return [given[0] * 0.9, None, None]

    with pytest.raises(SwapError, match=r"the gradient of \w+"):
        install(found, chain, kernel, backward=wrong, measure=False)


DYNAMIC = """
import torch
import torch.nn as nn

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)

    def forward(self, x):
        return torch.relu(self.norm(x) * 2)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, x):
        y = self.part(x)
        return y * 2 if y.sum().item() > 0 else y

def inputs():
    return torch.randn(256, 64)
"""


def test_a_model_that_cannot_be_captured_says_why_and_its_parts_are_profiled() -> None:
    found = profile(DYNAMIC, device="cpu")
    (problem,) = found.captured.problems
    assert re.match(r"its Python code at line \d+ goes by the value of a tensor \(Guard", problem.reason)
    assert "Not captured: the whole model: its Python code" in repr(found) and "torch.where" in repr(found)
    assert found.coverage < 1
    row = found.row("part")
    assert row.words == "layer_norm + mul + relu"
    before = outputs(found)
    install(found, row, lambda x, w, b: torch.relu(torch.nn.functional.layer_norm(x, (64,), w, b) * 2), measure=False)
    assert torch.allclose(outputs(found), before, atol=1e-5) and uninstall(found) == 1
    with pytest.raises(ProfileError, match="has no row 'nothing'"):
        found.row("nothing")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "neither `model` nor `Model`"),
        ("import torch\nmodel = torch.nn.Linear(2, 2)\n", "does not say what the model is called with"),
        ("import torch\nmodel = torch.nn.Linear(2, 2)\ndef inputs(): return torch.randn(3)\n", "fails in"),
        ("def (\n", "is not Python at line 1"),
    ],
)
def test_a_file_that_is_no_model_says_what_is_missing(text: str, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        profile(text)


def test_a_row_is_designed_put_in_and_measured_against_its_prediction(tmp_path, capsys, monkeypatch, quick) -> None:
    from kernellab.cli.main import main

    (tmp_path / "kernellab.toml").touch()
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "small.py"
    model.write_text(TRAINED.replace("randn(64, 16)", "randn(4096, 16)"))
    assert main(["profile", str(model), "--device", "cpu", "--open", "layer_norm_tanh", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (step,) = said["steps"]
    assert step["session"].startswith("layer_norm_tanh-")
    assert step["outcome"] == "kept" and step["factor"] > 1 and step["predicted"] > 1 and step["measured"] > 0
    assert said["coverage"] > 0.95
    assert main(["profile", str(model), "--auto", "hours=1"]) == 2
    assert "Write --auto minutes=30" in capsys.readouterr().err
    assert main(["profile", str(model), "--what-if", "1"]) == 2
    assert "Write --what-if 1=2.5" in capsys.readouterr().err
    assert main(["profile", str(model), "--device", "cpu", "--what-if", "layer_norm_tanh=2"]) == 0
    assert re.search(r"so it would take .* ms: 1\.\d\dx\.$", capsys.readouterr().out)
    assert main(["profile", str(model), "--device", "gpu"]) == 2
    assert "torch has no device 'gpu'" in capsys.readouterr().err


def test_rows_without_a_kernel_are_told_apart(gpt, monkeypatch) -> None:
    def no_session(self, which, **options):
        raise ProfileError("Nothing can be designed here.", "")

    monkeypatch.setattr(Profile, "open", no_session)
    (step,) = go_down(gpt, minutes=1, rows=[1])
    assert step.outcome == "refused" and "Nothing can be designed" in step.text
    install(gpt, activation(gpt), gelu, measure=False)
    other = next(row for row in gpt.rows if not row.taken & activation(gpt).taken)
    late, over = go_down(gpt, minutes=0, rows=[other.name, "h.0.mlp"])
    assert late.outcome == over.outcome == "not tried" and "the time was up" in late.text
    assert f"{activation(gpt).name}, which covers some of the same" in over.text
    uninstall(gpt)


def test_the_profiler_prints_nothing_where_another_thread_imported_torch() -> None:
    """As in a notebook, which imports it while a cell is typed; Kineto calls that an error."""
    code = (
        "import threading; t = threading.Thread(target=__import__, args=('torch',)); t.start(); t.join();"
        "from kernellab.model_integration import events; print(events._note_us() >= 0);"
        "import os; os.write(2, b'heard')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("True\n", "heard")
