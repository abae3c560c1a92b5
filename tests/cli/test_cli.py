"""The contract of the command line: exit codes, one JSON object, a sentence and a remedy, never a traceback."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.models import ArgumentInfo

import kernellab
from kernellab import cli
from kernellab.cli import main
from kernellab.cli.design import design
from kernellab.cli.parameters import with_requests
from kernellab.errors import KernellabError
from kernellab.options.entry import numbers

TASK = """
import torch
from kernellab import Dim

M, N = Dim("M", 1, 512), Dim("N", 1, 512)

def reference(x, w):
    return torch.relu(x) * w

def inputs(M=37, N=65):
    return torch.randn(M, N), torch.randn(N)
"""

SKETCH = """sketch scaled_relu {
    symbols: M, N;
    tensors: x[M, N]: f32; w[N]: f32; y[M, N]: f32 out;
    constexpr: BLOCK = 16 in {16, 32};
    @llm_hint("parallel", "coreidx")
    for m in range(M):
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> a)
            load(w[n:n+BLOCK] -> b)
            store(relu(a) * b -> y[m, n:n+BLOCK])
}
"""


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """``run("sketch", "check", ...)`` in a workspace that holds task.py and op.sketch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "op.sketch").write_text(SKETCH)
    (tmp_path / "two").mkdir()
    for name in ("a.py", "b.py"):
        (tmp_path / "two" / name).write_text("def kernel(x, w):\n    return x\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "fixed.sketch").write_text(SKETCH.replace(" in {16, 32}", ""))
    (tmp_path / "huge.py").write_bytes(b"x = 1\n" * 900_000)
    (tmp_path / "broken.py").write_text("raise RuntimeError('a wrong option is told before the task is run')")
    (tmp_path / "foreign.py").write_text("import triton\n\ndef kernel(x, w):\n    return x\n")
    for name in list(os.environ):
        if name.startswith(("KERNELLAB_MODEL", "OPENAI_")):
            monkeypatch.delenv(name)

    def command(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err + printed.out
        return Ran(code, printed.out, printed.err)

    return command


# -- wrong calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "No such command 'nope'"),
        (["design"], "No task is given"),
        (["design", "task.py", "--words", "a softmax"], "both given"),
        (["design", "--words", "a softmax"], "No endpoint is configured"),
        (["design", "task.py", "--budget", "coffee=3"], "A budget limits tokens"),
        (["design", "task.py", "--without", "thinking"], "Unknown part 'thinking'"),
        (["design", "task.py", "--dsl", "cpp", "--from", "foreign.py"], "takes a model as Designer"),
        (["design", "nowhere.py"], "nowhere.py cannot be read"),
        (["design", "task.py", "--dsl", "tritn"], "Did you mean 'triton'"),
        (["design", "task.py", "--roles", "modle"], "Did you mean 'model'"),
        (["design", "task.py", "--roles", "model"], "No endpoint is configured"),
        (["design", "task.py", "--roles", "coder=replay:nowhere.jsonl"], "no file nowhere.jsonl to replay"),
        (["lens", "foreign.py"], "none was given"),
        (["lens", "foreign.py", "--task", "task.py", "--chip", "h2oo"], "h2oo"),
        (["design", "task.py", "--set", "BLOCK"], "NAME=NUMBER"),
        (["design", "task.py", "--max-turns", "0"], "--max-turns"),
        (["design", "task.py", "--level", "T0"], "T0 runs no kernel"),
        (["design", "task.py", "--out", "task.py"], "task.py cannot be written"),
        (["evolve", "task.py", "--out", "task.py/deep"], "cannot be written"),
        (["profile", "task.py", "--rows", "0"], "--rows"),
        (["evolve", "nowhere.py", "--estimate"], "nowhere.py cannot be read"),
        (["evolve", "task.py", "--model", "model"], "No endpoint is configured"),
        (["evolve", "protect", "RUN", "x"], "kernellab evolve protect --help"),
        (["design", "task.py", "--baseline", "fast"], "--baseline"),
        (["design", "task.py", "--from", "nowhere.sketch"], "nowhere.sketch cannot be read"),
        (["verify", "task.py", "nowhere.py"], "does not exist"),
        (["verify", "task.py", "task.py", "--level", "T9"], "--level"),
        (["verify", "nowhere.py", "foreign.py"], "nowhere.py cannot be read"),
        (["verify", "task.py", "op.sketch"], "not a Python file"),
        (["verify", "task.py", "two"], "2 files that define a kernel: a.py, b.py"),
        (["verify", "task.py", "foreign.py", "--dsl", "tritn"], "Did you mean 'triton'"),
        (["verify", "task.py", "foreign.py", "--baseline", "fast"], "--baseline fast"),
        (["verify", "task.py", "foreign.py", "--repeat", "0"], "--repeat"),
        (["verify", "task.py", "foreign.py", "--set", "BLOCK"], "NAME=NUMBER"),
        (["verify", "task.py", "foreign.py", "--set", "BLOCK=4"], "sets no constant BLOCK"),
        (["verify", "foreign.py", "foreign.py"], "inputs"),
        (["verify", "task.py"], "without a source and is not a capsule"),
        (["verify", "op.capsule.json", "task.py"], "A capsule brings its own source: name it alone"),
        (["sketch", "check", "nowhere.sketch"], "cannot be read"),
        (["sketch", "run", "op.sketch"], "--task"),
        (["sketch", "run", "nowhere.sketch"], "nowhere.sketch cannot be read"),
        (["sketch", "check", "op.sketch", "--set", "BLOK=16"], "no constexpr BLOK"),
        (["sketch", "cost", "op.sketch", "--size", "K=4"], "no symbol K"),
        (["sketch", "cost", "op.sketch", "--size", "M=big"], "--size M=big is not"),
        (["sketch", "tune", "fixed.sketch", "--task", "task.py", "--dsl", "cpp"], "has no tunables"),
        (["sketch", "check", "huge.py"], "has 5 MB"),
        (["design", "huge.py"], "has 5 MB"),
        (["verify", "task.py", "huge.py"], "has 5 MB"),
        (["design", "broken.py", "--roles", "modle"], "Did you mean 'model'"),
        (["design", "broken.py", "--chip", "abacus"], "chip 'abacus'"),
        (["design", "broken.py", "--dsl", "numba"], "rules Coder does not write numba"),
        (["bench", "builtin", "--dsl", "numba"], "rules Coder does not write numba"),
        (["bench", "builtin", "--dsl", "tritn"], "Did you mean 'triton'"),
        (["bench", "builtin", "--roles", "modle"], "Did you mean 'model'"),
        (["bench", "empty"], "holds no task"),
        (["sketch", "cost", "op.sketch", "--dsl", "cpp"], "size of M, N"),
        (["export", "nothing", "--out", "x.py"], "no session 'nothing'"),
        (["export", "nothing"], "No output is named"),
        (["export", "--out", "x.py"], "No session is named"),
        (["replay", "export", "nothing", "--out", "x.jsonl"], "no session 'nothing'"),
        (["lab", "no-such-tutorial"], "no tutorial"),
    ],
)
def test_a_wrong_call_is_two_lines_and_exit_code_2(run: Callable[..., Ran], arguments: list[str], words: str) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert words in ran.err
    assert "->" in ran.err
    assert ran.out == ""


def test_the_version_is_told(run: Callable[..., Ran]) -> None:
    told = run("--version")
    assert (told.code, told.out.strip()) == (0, f"kernellab {kernellab.__version__}")


def test_a_bad_task_is_exit_code_2(run: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def reference(x): return x\n")
    ran = run("design", "bad.py", "--dsl", "cpp")
    assert ran.code == 2
    assert "inputs" in ran.err


def test_a_reference_that_is_no_graph_is_exit_code_2(run: Callable[..., Ran], tmp_path: Path) -> None:
    branches = "def reference(x):\n    return x if x.sum() > 0 else x * 2\n\ndef inputs():\n    return torch.randn(8)\n"
    (tmp_path / "branches.py").write_text(f"import torch\n\n{branches}")
    ran = run("design", "branches.py", "--dsl", "cpp", "--json")
    assert ran.code == 2
    assert ran.json["exit_code"] == 2 and not ran.json["passed"] and ran.json["error"] in ran.err
    assert "--roles designer=model" in ran.err


def test_a_call_that_is_wrong_has_its_json_object_too(run: Callable[..., Ran]) -> None:
    ran = run("design", "nowhere.py", "--no-such-option", "--json")
    assert ran.code == 2
    assert "--no-such-option" in ran.json["error"]


def test_the_shell_completes_commands_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_KERNELLAB_COMPLETE", "complete_bash")
    for typed, count, completed in (("kernellab ver", 1, "verify"), ("kernellab check --min", 2, "--min-speedup")):
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(count))
        with pytest.raises(SystemExit):
            main([])
        assert capsys.readouterr().out.split() == [completed]


def test_the_unexpected_is_one_sentence_and_a_traceback_only_when_asked(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("kernellab.doctor.report", broken)
    ran = run("doctor")
    assert ran.code == 2
    assert "ZeroDivisionError: division by zero" in ran.err
    assert "KERNELLAB_DEBUG" in ran.err
    monkeypatch.setenv("KERNELLAB_DEBUG", "1")
    assert main(["doctor"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_numbers_of_set_keep_their_kind() -> None:
    assert numbers(["A=1", "B=0x10", "eps=1e-5"]) == {"A": 1, "B": 16, "eps": 1e-5}
    with pytest.raises(KernellabError, match="NAME=NUMBER"):
        numbers(["A=large"])


# -- doctor and the language -------------------------------------------------------------------------------------------


def test_doctor_tells_of_chips_dsls_and_sandbox(run: Callable[..., Ran]) -> None:
    found = run("doctor", "--json").json
    assert found["chips"][0]["kind"] == "cpu"
    assert {"ready", "reason"} <= found["dsls"]["cpp"].keys()
    assert found["sandbox"]
    assert "sandbox" in run("doctor").out


def test_check_is_0_for_a_good_sketch_and_1_for_a_faulty_one(run: Callable[..., Ran], tmp_path: Path) -> None:
    assert run("sketch", "check", "op.sketch").code == 0
    (tmp_path / "bad.sketch").write_text(SKETCH.replace("relu(a)", "relu(c)"))
    ran = run("sketch", "check", "bad.sketch", "--json")
    assert ran.code == 1
    (fault,) = [d for d in ran.json["diagnostics"] if d["severity"] == "error"]
    assert fault["line"] == 10
    assert {"col", "code", "message", "remedy"} <= fault.keys()
    assert "bad.sketch:10:" in run("sketch", "check", "bad.sketch").err


def test_print_is_canonical(run: Callable[..., Ran], tmp_path: Path) -> None:
    first = run("sketch", "print", "op.sketch").out
    (tmp_path / "again.sketch").write_text(first)
    assert run("sketch", "print", "again.sketch").out == first


def test_run_compares_with_the_reference(run: Callable[..., Ran], tmp_path: Path) -> None:
    good = run("sketch", "run", "op.sketch", "--task", "task.py", "--json")
    assert (good.code, good.json["matches"]) == (0, True)
    (tmp_path / "bad.sketch").write_text(SKETCH.replace("relu(a) * b", "relu(a) + b"))
    bad = run("sketch", "run", "bad.sketch", "--task", "task.py", "--json")
    assert (bad.code, bad.json["matches"]) == (1, False)
    assert bad.json["max_error"] > 0


def test_cost_counts_bytes_at_the_given_sizes(run: Callable[..., Ran]) -> None:
    ran = run("sketch", "cost", "op.sketch", "--dsl", "cpp", "--size", "M=64", "--size", "N=32", "--json")
    assert ran.code == 0
    assert ran.json["bytes"] == 4 * (2 * 64 * 32 + 32)
    assert ran.json["time_ms"] > 0
    assert "flops" in ran.json
    with_task = run("sketch", "cost", "op.sketch", "--dsl", "cpp", "--task", "task.py", "--json")
    assert with_task.json["sizes"] == {"M": 37, "N": 65}


@pytest.mark.parametrize("dsl", ["cpp", "triton", "cuda_c"])
def test_lower_writes_the_files(run: Callable[..., Ran], tmp_path: Path, dsl: str) -> None:
    ran = run("sketch", "lower", "op.sketch", "--task", "task.py", "--dsl", dsl, "--out", "lowered", "--json")
    assert ran.code == 0
    for name, text in ran.json["files"].items():
        assert (tmp_path / "lowered/source" / name).read_text() == text
    assert "def kernel(" in ran.json["files"]["kernel.py"]


# -- design, export, verify --------------------------------------------------------------------------------------------


def test_a_quick_look_that_was_asked_for_is_good_and_exports_nothing(run: Callable[..., Ran], tmp_path: Path) -> None:
    ran = run("design", "task.py", "--dsl", "cpp", "--level", "T1", "--out", "quick", "--json")
    assert (ran.code, ran.json["passed"], ran.json["trust"]) == (0, True, "T1")
    assert not list((tmp_path / "quick").glob("*.py"))
    ran = run("export", ran.json["session"], "--out", "quick.py")
    assert ran.code == 2 and "no kernel that passed" in ran.err


def test_design_verify_and_export_agree(run: Callable[..., Ran], tmp_path: Path) -> None:
    # two full verdicts, which take less of a task of one Dim
    one = TASK.replace('M, N = Dim("M", 1, 512), Dim("N", 1, 512)', 'M, N = Dim("M", 1, 512), 65')
    (tmp_path / "task.py").write_text(one.replace("M=37, N=65", "M=37"))
    designed = run("design", "task.py", "--dsl", "cpp", "--out", "made", "--json")
    assert designed.code == 0, designed.err
    found = designed.json
    assert found["passed"]
    assert found["turns"] >= 4
    assert found["time_ms"] > 0
    assert found["speedup"] > 0
    assert (tmp_path / "made" / "task.sketch").read_text() == found["sketch"]
    assert "verifier" in designed.err

    own = ["--baseline", "eager", "--baseline", "made/source", "--set", "BLOCK=32"]
    verified = run("verify", "task.py", "made/source", *own, "--json")
    assert verified.code == 0, verified.err
    found_again = verified.json
    assert found_again["passed"]
    names = [stage["name"] for stage in found_again["stages"]]
    assert names == ["static", "build", "smoke", "correct", "robust", "honest", "fast"]
    assert set(found_again["baselines"]) == {"eager", "source"}
    low, high = found_again["spread"]
    assert low <= found_again["time_ms"] <= high
    assert found_again["dsl"] == "cpp" and found_again["sealed"] is False and found_again["trust"] == "T2"
    assert 0 <= found_again["own_share"] <= 1
    assert {"labels", "flags", "precision", "evidence", "sol_ms", "compile_ms", "speedups"} <= found_again.keys()
    # a plain line on stderr as each stage ends
    told = [line.split()[0] for line in verified.err.splitlines() if line and not line.startswith(" ")]
    assert list(dict.fromkeys(told)) == names

    exported = run("export", found["session"], "--out", "stand_alone.py", "--json")
    assert exported.code == 0
    code = "import sys; sys.modules['kernellab'] = None; import torch, stand_alone as s;"
    code += "x, w = torch.randn(5, 65), torch.randn(65);"
    code += "torch.testing.assert_close(s.kernel(x, w), torch.relu(x) * w); print('same')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "same", done.stderr


def test_a_session_from_a_persons_sketch_with_a_set_constant(run: Callable[..., Ran]) -> None:
    given = ["--from", "op.sketch", "--set", "BLOCK=32", "--level", "T1"]
    ran = run("design", "task.py", "--dsl", "cpp", *given, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["constexpr"]["BLOCK"] == 32
    assert ran.json["sketch"] == SKETCH


def test_a_source_that_does_not_parse_is_a_verdict(run: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def kernel(x, w)\n    return x\n")
    ran = run("verify", "task.py", "broken.py", "--dsl", "cpp", "--json")
    assert ran.code == 1
    assert ran.json["passed"] is False
    assert ran.json["stage"] in ("static", "build")
    assert ran.json["reason"]


def test_a_file_without_a_kernel_keeps_its_name(run: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "no_kernel.py").write_text("def other(x):\n    return x\n")
    ran = run("verify", "task.py", "no_kernel.py", "--dsl", "cpp")
    assert ran.code == 1
    assert "Neither kernel(...) nor ModelNew is defined in no_kernel.py." in ran.out
    assert ":?" not in ran.out


def test_ctrl_c_says_what_is_kept(tmp_path: Path) -> None:
    (tmp_path / "kernellab.toml").touch()
    # the task itself says when it runs, so that no clock is needed
    (tmp_path / "task.py").write_text("open('begun', 'w').close()\nimport time\ntime.sleep(60)\n")
    command = [sys.executable, "-m", cli.__name__, "design", "task.py", "--dsl", "cpp"]
    # what is started in the background of a shell is born deaf to it
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, **heard) as going:
        while not (tmp_path / "begun").exists() and going.poll() is None:
            time.sleep(0.05)
        going.send_signal(signal.SIGINT)
        _, told = going.communicate(timeout=60)
    assert going.returncode == cli.STOPPED
    assert told.startswith("Stopped.")
    assert "--resume" in told
    assert "Traceback" not in told


def test_the_module_runs_as_the_console_script_does() -> None:
    done = subprocess.run([sys.executable, "-m", cli.__name__, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("doctor", "design", "verify", "sketch", "export", "bench", "lab"))


def test_lab_hands_options_that_it_does_not_know_on_to_jupyterlab(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jupyterlab")
    import jupyterlab

    assert main(["lab", "--out", str(tmp_path), "--version"]) == 0
    assert capfd.readouterr().out.strip() == jupyterlab.__version__
    assert list(tmp_path.glob("*.ipynb"))


def test_an_argument_that_may_be_left_out_stays_an_argument() -> None:
    """Python 3.10 wraps what typer looks for where the default is None."""
    annotation = inspect.signature(with_requests(design), follow_wrapped=False).parameters["task"].annotation
    assert [type(metadata) for metadata in get_args(annotation)[1:]] == [ArgumentInfo]
