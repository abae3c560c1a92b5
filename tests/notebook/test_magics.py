"""The magics: loading, help, completion, options and errors, in a real IPython shell."""

from __future__ import annotations

import subprocess
import sys

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from kernellab.errors import SessionError
from kernellab.notebook.complete import candidates
from kernellab.notebook.magics import KernelMagics

LINE = ["approve", "config", "doctor", "fork", "pause", "run", "show", "step"]
CELL = ["code", "design", "sketch"]


def completions(shell: InteractiveShell, text: str) -> set[str]:
    assert shell.Completer is not None
    with provisionalcompleter():
        return {c.text for c in shell.Completer.completions(text, len(text))}


def test_loading_is_silent_quick_and_imports_no_torch() -> None:
    code = (
        "import sys, time\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "began = time.perf_counter()\n"
        "shell.run_line_magic('load_ext', 'kernellab')\n"
        "took = time.perf_counter() - began\n"
        "print(took < 0.5, 'torch' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "True False"


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


@pytest.mark.parametrize("name", sorted(KernelMagics.parsers()))
def test_every_magic_prints_its_help(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], name: str) -> None:
    if name in KernelMagics.names("cell"):
        shell.run_cell_magic(name, "--help", "x")
    else:
        shell.run_line_magic(name, "--help")
    printed = capsys.readouterr().out
    assert f"%{name}" in printed and len(printed.splitlines()) > 2


def test_an_option_is_completed(shell: InteractiveShell) -> None:
    assert "--approve" in completions(shell, "%%kernel_design rms --ap")


def test_the_values_of_an_option_are_completed(shell: InteractiveShell) -> None:
    assert {"none", "routing", "all"} <= completions(shell, "%%kernel_design rms --approve ")
    assert candidates(shell, "%%kernel_design rms --dsl c") == ["cpp", "triton"]


def test_other_lines_are_left_to_other_completers(shell: InteractiveShell) -> None:
    assert candidates(shell, "kernel_design rms --ap") == []
    assert candidates(shell, "%timeit --") == []


def test_a_wrong_argument_shows_the_usage_line(shell: InteractiveShell) -> None:
    with pytest.raises(UsageError, match=r"invalid choice: 'hip'[\s\S]*%kernel_design \[--dsl"):
        shell.run_cell_magic("kernel_design", "x --dsl hip", "pass")
    with pytest.raises(UsageError, match="no name for a variable"):
        shell.run_cell_magic("kernel_design", "rms-norm", "pass")


def test_braces_and_dollars_reach_the_magic_as_written(shell: InteractiveShell) -> None:
    shell.user_ns["verbose"] = 3
    with pytest.raises(UsageError, match=r"\{verbose\}"):
        shell.run_line_magic("kernel_config", "verbose={verbose}")


def test_a_missing_session_is_one_sentence_and_a_remedy(shell: InteractiveShell) -> None:
    with pytest.raises(SessionError, match=r"no session 'nothing' here.*%%kernel_design"):
        shell.run_line_magic("kernel_step", "nothing")


def test_an_error_has_no_traceback_unless_verbose(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("%kernel_step nothing")
    short = capsys.readouterr()
    assert "no session" in short.out + short.err
    assert "magics.py" not in short.out + short.err
    shell.run_cell("%kernel_config verbose=1")
    shell.run_cell("%kernel_step nothing")
    long = capsys.readouterr()
    assert "magics.py" in long.out + long.err


def test_config_shows_what_it_sets(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_line_magic("kernel_config", "verbose=1")
    shell.run_line_magic("kernel_config", "")
    assert capsys.readouterr().out.startswith("verbose=1")
    with pytest.raises(UsageError, match="no option 'colour'"):
        shell.run_line_magic("kernel_config", "colour=1")
