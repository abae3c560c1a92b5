"""The magics: loading, help, completion, options and errors, in a real IPython shell."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from notebook_parts import TASK

from kernellab.dsls.machine import gpu_products
from kernellab.errors import ModelError, SessionError, TargetError
from kernellab.notebook import warm
from kernellab.notebook.board.registry import workbench_of
from kernellab.notebook.magics.complete import candidates
from kernellab.notebook.magics.table import names, parsers
from kernellab.operations.sketch import OPS
from kernellab.records import Role
from kernellab.session.engine.engine import engine
from kernellab.session.start import check_coder
from kernellab.session.waiting import Abandoned, rest
from tests.models.fake_server import FakeServer, answer

LINE = [
    "approve", "ask", "attack", "budget", "challenge", "compare", "config", "doctor", "evolve", "exercise", "explain",
    "export", "fork", "grade", "help", "insert", "lens", "measure", "memory", "note", "pause", "pin", "predict",
    "progress", "replay", "run", "share", "show", "step", "stop", "tune", "undo", "watch",
]  # fmt: skip
CELL = [
    "answer", "attack", "challenge", "code", "design", "evolve", "exercise", "measure", "profile", "sketch", "task",
    "verify", "watch",
]  # fmt: skip


def completions(shell: InteractiveShell, text: str) -> set[str]:
    assert shell.Completer is not None
    with provisionalcompleter():
        return {c.text for c in shell.Completer.completions(text, len(text))}


def test_loading_is_silent_quick_and_imports_no_torch() -> None:
    code = (
        "import sys, time\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "began = time.process_time()\n"
        "shell.run_line_magic('load_ext', 'kernellab')\n"
        "took = time.process_time() - began\n"
        "print(took < 0.5, 'torch' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "True False"


@pytest.mark.skipif(bool(gpu_products()), reason="where a GPU is, no judge takes its memory ahead")
def test_loading_in_a_kernel_starts_the_judge_while_a_cell_is_typed() -> None:
    code = (
        "import sys, time\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from kernellab.session.engine.engine import engine\n"
        "shell = InteractiveShell.instance()\n"
        "shell.kernel = object()\n"
        "shell.run_line_magic('load_ext', 'kernellab')\n"
        "end = time.monotonic() + 120\n"
        "while engine().verifier().judge_pid is None and time.monotonic() < end: time.sleep(0.1)\n"
        "end = time.monotonic() + 120\n"
        "while 'torch.export' not in sys.modules and time.monotonic() < end: time.sleep(0.1)\n"
        "print(engine().verifier().judge_pid is not None, 'torch.export' in sys.modules)\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "JUPYTERHUB_USER"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert result.stdout.strip() == "True True"


def test_a_magic_waits_until_the_rates_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    measured_before: list[bool] = []
    monkeypatch.setattr("kernellab.dsls.machine.gpu_products", tuple)
    monkeypatch.setattr("kernellab.dsls.machine.cpu_chip", lambda: measured_before.append(not warm._imported.is_set()))
    monkeypatch.setattr(warm, "begin_judge", lambda: None)
    monkeypatch.setattr(warm, "_TORCH_MODULES", ())
    warm._imported.clear()
    warm._work(True)
    assert measured_before == [True] and warm._imported.is_set()


def test_next_to_a_gpu_the_judge_is_begun_while_the_cell_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its torch is imported ahead, for a GPU's kernel and for one of the CPU; no device is touched."""
    asked: list[tuple[str | None, bool]] = []
    judge = SimpleNamespace(warm=lambda target, *, ahead: asked.append((target, ahead)))
    monkeypatch.setattr("kernellab.dsls.machine.gpu_products", lambda: ("NVIDIA H100",))
    monkeypatch.setattr("kernellab.dsls.machine.detect_target", lambda dsl, rates: dsl)
    monkeypatch.setattr(engine(), "verifier", lambda: judge)
    monkeypatch.setattr(warm, "_TORCH_MODULES", ())
    warm._work(True)
    for thread in threading.enumerate():
        if thread.name == "kernellab-warm":
            thread.join(60)
    assert asked == [(None, True), ("cpp", True)]


def test_the_magics_are_there_after_loading_and_gone_after_unloading(shell: InteractiveShell) -> None:
    def ours(kind: str) -> list[str]:
        return sorted(m.removeprefix("kernel_") for m in shell.magics_manager.magics[kind] if m.startswith("kernel_"))

    assert (ours("line"), ours("cell")) == (LINE, CELL)
    shell.run_line_magic("unload_ext", "kernellab")
    assert (ours("line"), ours("cell")) == ([], [])
    shell.run_line_magic("load_ext", "kernellab")
    assert (ours("line"), ours("cell")) == (LINE, CELL)


def test_reloading_registers_the_completion_once(shell: InteractiveShell) -> None:
    shell.run_line_magic("reload_ext", "kernellab")
    shell.run_line_magic("reload_ext", "kernellab")
    assert shell.Completer is not None
    ours = [m for m in shell.Completer.custom_matchers if "kernellab" in getattr(m, "matcher_identifier", "")]
    assert len(ours) == 1


@pytest.mark.parametrize("name", sorted(parsers()))
def test_every_magic_prints_its_help(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], name: str) -> None:
    if name in names("cell"):
        shell.run_cell_magic(name, "--help", "x")
    else:
        shell.run_line_magic(name, "--help")
    printed = capsys.readouterr().out
    assert f"%{name}" in printed and len(printed.splitlines()) > 2


def test_an_option_is_completed(shell: InteractiveShell) -> None:
    assert "--approve" in completions(shell, "%%kernel_design rms --ap")


def test_the_values_of_an_option_are_completed(shell: InteractiveShell) -> None:
    assert {"none", "routing", "all"} <= completions(shell, "%%kernel_design rms --approve ")
    assert {"cpp", "triton", "cuda_c", "numba"} <= set(candidates(shell, "%%kernel_design rms --dsl c"))


def test_other_lines_are_left_to_other_completers(shell: InteractiveShell) -> None:
    assert candidates(shell, "kernel_design rms --ap") == []
    assert candidates(shell, "%timeit --") == []


def test_a_wrong_value_is_said_without_the_whole_usage(shell: InteractiveShell) -> None:
    with pytest.raises(UsageError, match=r"approval policy 'never'[^\[]*%kernel_design --help says"):
        shell.run_cell_magic("kernel_design", "x --approve never", "pass")
    with pytest.raises(UsageError, match="cannot name a variable"):
        shell.run_cell_magic("kernel_design", "rms-norm", "pass")


def test_any_dsl_with_documents_is_taken_where_a_model_codes(shell: InteractiveShell) -> None:
    with pytest.raises(TargetError, match="There is no DSL named 'nvmba'"):
        shell.run_cell_magic("kernel_design", "x --dsl nvmba --roles coder=human", "pass")
    with pytest.raises(SessionError, match="The rules Coder does not write numba"):
        shell.run_cell_magic("kernel_design", "x --dsl numba", TASK)
    check_coder("numba", "coder=human")


def test_braces_and_dollars_reach_the_magic_as_written(shell: InteractiveShell) -> None:
    shell.user_ns["verbose"] = 3
    with pytest.raises(UsageError, match=r"\{verbose\}"):
        shell.run_line_magic("kernel_config", "verbose={verbose}")


def test_a_missing_session_is_one_sentence_and_a_remedy(shell: InteractiveShell) -> None:
    with pytest.raises(SessionError, match=r"no session 'nothing' here.*%%kernel_design"):
        shell.run_line_magic("kernel_step", "nothing")


def test_a_session_of_another_day_is_named_with_the_line_that_opens_it(shell: InteractiveShell, session: Any) -> None:
    del shell.user_ns["add_one"]
    with pytest.raises(SessionError, match=r"add_one = kernellab\.open_session\('add_one'\)"):
        shell.run_line_magic("kernel_show", "add_one")


@pytest.mark.parametrize(
    ("line", "said"),
    [("--minutes 2", "mean --budget minutes=N"), ("--paralel 2", "mean --parallel"), ("--colour 2", "colour 2\n")],
)
def test_an_unknown_option_names_what_may_be_meant(shell: InteractiveShell, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        shell.run_cell_magic("kernel_evolve", f"pool {line}", TASK)


def test_a_file_is_named_with_or_without_an_option(
    shell: InteractiveShell, session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for line, file in (
        ("add_one one.html", "one.html"), ("two.html", "two.html"),
        ("--out three.html", "three.html"), ("add_one", "add_one.html"),
    ):  # fmt: skip
        shell.run_line_magic("kernel_share", line)
        assert file in capsys.readouterr().out and Path(file).stat().st_size > 10_000
    for magic, line in (
        ("share", "add_one a.html --out b.html"), ("export", "add_one"), ("replay", "add_one"),
        ("export", "add_one a.py --out b.py"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="name one file"):
            shell.run_line_magic(f"kernel_{magic}", line)


def test_an_error_has_no_traceback_unless_verbose(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("%kernel_step nothing")
    short = capsys.readouterr()
    assert "no session" in short.out + short.err
    assert "base.py" not in short.out + short.err
    shell.run_cell("%kernel_config verbose=1")
    shell.run_cell("%kernel_step nothing")
    long = capsys.readouterr()
    assert "base.py" in long.out + long.err


def test_config_shows_what_it_sets(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_line_magic("kernel_config", "verbose=1")
    shell.run_line_magic("kernel_config", "")
    assert "verbose=1  # 1 shows the Python traceback" in capsys.readouterr().out
    with pytest.raises(UsageError, match="no option 'colour'"):
        shell.run_line_magic("kernel_config", "colour=1")


def test_the_options_are_ipythons_too(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_line_magic("config", "KernelLab.approve = 'routing'")
    shell.run_line_magic("kernel_config", "")
    assert "approve=routing" in capsys.readouterr().out
    shell.run_line_magic("config", "KernelLab")
    shown = " ".join(capsys.readouterr().out.split())
    assert "Where a session stops and asks" in shown and "numba, tilelang" in shown
    shell.run_line_magic("reload_ext", "kernellab")
    shell.run_line_magic("kernel_config", "teaching=1")
    shell.run_line_magic("kernel_config", "")
    printed = capsys.readouterr().out
    assert "approve=routing" in printed and "teaching=True" in printed


@pytest.mark.parametrize("given", ["approve=sometimes", "max_turns=none", "max_turns=-1", "teaching=perhaps"])
def test_an_option_that_cannot_be_is_refused_with_its_help(shell: InteractiveShell, given: str) -> None:
    with pytest.raises(UsageError, match="cannot be"):
        shell.run_line_magic("kernel_config", given)


def test_models_are_named_in_options_and_a_key_never_is(shell: InteractiveShell) -> None:
    from kernellab.session.config import model_settings

    shell.run_line_magic("config", "KernelLab.base_url = 'http://localhost:9/v1'")
    shell.run_line_magic("config", "KernelLab.model = 'small'")
    assert (model_settings().base_url, model_settings().model) == ("http://localhost:9/v1", "small")
    with pytest.raises(ModelError, match="key_env"):
        shell.run_line_magic("kernel_config", "key_env=sk-1234567890abcdef")
    for name in ("base_url", "model", "key_env"):
        shell.run_line_magic("config", f"KernelLab.{name} = ''")
    assert model_settings().model != "small"


def test_options_are_what_the_design_cell_does_not_say(shell: InteractiveShell) -> None:
    shell.run_line_magic("config", "KernelLab.roles = 'designer=human'")
    shell.run_line_magic("config", "KernelLab.approve = 'routing'")
    shell.run_line_magic("config", "KernelLab.dsl = 'cpp'")
    shell.run_cell_magic("kernel_design", "add_one --approve all --budget tokens=1000", TASK)
    session = shell.user_ns["add_one"]
    session.wait(60)
    assert (session.state.approval, session.state.created.dsl) == ("all", "cpp")
    assert session.state.roles[Role.DESIGNER] == "human" and session.state.budget == "tokens=1000"
    workbench_of(session).close()
    session.stop()


def test_words_need_a_model_and_say_how_one_is_named(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KERNELLAB_MODEL_URL", "KERNELLAB_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SessionError, match="model"):
        shell.run_cell_magic("kernel_design", "soft --words", "softmax over the last axis of a matrix")
    assert "soft" not in shell.user_ns


def test_a_described_operator_becomes_a_cell_to_read_and_run(
    shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked of a real endpoint on this machine, which answers with a task."""
    inserted: list[str] = []
    monkeypatch.setattr(shell, "set_next_input", inserted.append)
    with FakeServer(answer(f"Here it is:\n```python\n{TASK}```\n")) as server:
        shell.run_line_magic("config", f"KernelLab.base_url = {server.url!r}")
        shell.run_line_magic("config", "KernelLab.model = 'small'")
        shell.run_cell_magic("kernel_design", "add_one --words --approve routing", "add one to a matrix")
    for name in ("base_url", "model"):
        shell.run_line_magic("config", f"KernelLab.{name} = ''")
    assert len(inserted) == 1
    assert inserted[0].startswith("%%kernel_design add_one --approve routing\n")
    assert "def reference(x):" in inserted[0]
    assert "read it" in capsys.readouterr().out


def test_help_lists_every_magic_and_tells_the_arguments_of_one(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_line_magic("kernel_help", "")
    told = capsys.readouterr().out
    for name in (*names("line"), *names("cell")):
        line = next(line for line in told.splitlines() if line.split(" ")[0].lstrip("%") == name)
        assert line.rstrip().endswith((".", ")")), f"{name} has no sentence"
    shell.run_line_magic("kernel_help", "compare")
    assert "the other turn's number" in capsys.readouterr().out
    with pytest.raises(UsageError, match="did you mean kernel_compare"):
        shell.run_line_magic("kernel_help", "kernel_compar")


def test_help_tells_of_the_sketch_language(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_line_magic("kernel_help", "language")
    page = capsys.readouterr().out
    listed = page.rpartition("Operations: ")[2].rstrip(".\n").split(", ")
    # these two are written as // and None
    assert "```sketch" in page and set(OPS) - {"floordiv", "newaxis"} <= set(listed)
    assert not {"bit", "left", "d", "p"} & set(listed), "parts of names are none"
    shell.run_line_magic("kernel_help", "full")
    told = capsys.readouterr().out
    assert "full([n], value)" in told and len(told) < len(page)


def test_a_cell_that_asks_for_gradients_begins_its_backward_too(shell: InteractiveShell, capsys) -> None:
    task = (
        "GRAD = True\nimport torch\ndef reference(x): return torch.tanh(x)\ndef inputs(): return torch.randn(8, 64)\n"
    )
    people = "--dsl cpp --roles designer=human,coder=human"
    shell.run_cell_magic("kernel_design", f"squash {people}", task)
    both = shell.user_ns["squash_pair"]
    assert both.backward is shell.user_ns["squash_backward"] and both.forward is shell.user_ns["squash"]
    assert "torch.autograd.grad" in both.backward.state.created.text
    assert "squash_pair.verify() compares all gradients" in capsys.readouterr().out
    odd = task.replace("torch.tanh(x)", "torch.argmax(x, -1)")
    shell.run_cell_magic("kernel_design", f"odd {people}", odd)
    assert "No backward is designed for odd." in capsys.readouterr().out and "odd_pair" not in shell.user_ns
    for session in (both.forward, both.backward, shell.user_ns["odd"]):
        session.wait(60)
        workbench_of(session).close()
        session.stop()


def test_ctrl_c_while_a_terminal_awaits_a_session_is_two_lines(shell: InteractiveShell) -> None:
    shell.run_cell_magic("kernel_design", "awaited --dsl cpp", TASK)
    session = shell.user_ns["awaited"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop = asyncio.new_event_loop()
    try:
        loop.call_later(0.2, os.kill, os.getpid(), signal.SIGINT)
        with pytest.raises(Abandoned, match="no longer waiting for awaited, which continues") as caught:
            loop.run_until_complete(rest(session))
        assert len(caught.value._render_traceback_()) == 2
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        loop.close()
        session.stop()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("print", "is a name of Python's"), ("lst", "holds a list of yours"), ("for", "cannot name a variable")],
)
def test_a_magic_never_replaces_what_a_person_or_python_has_under_its_name(
    shell: InteractiveShell, name: str, sentence: str
) -> None:
    shell.user_ns["lst"] = kept = [1, 2]
    with pytest.raises(UsageError, match=sentence):
        shell.run_cell_magic("kernel_design", name, TASK)
    assert shell.user_ns["lst"] is kept
    assert "print" not in shell.user_ns
