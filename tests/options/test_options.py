"""One table of options: what a field says is what every front end offers, and nothing else is listed by hand."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from pydantic import BaseModel, Field

from kernellab.cli import app
from kernellab.errors import EvolveError, KernellabError, ModelError, SessionError
from kernellab.evolve.begin import begin
from kernellab.evolve.policies import POLICIES
from kernellab.models import ModelSettings
from kernellab.notebook.magics.config import KernelLab
from kernellab.notebook.magics.table import parsers
from kernellab.options import Option, Surface, build, entries
from kernellab.options.commands.searches import LabOptions
from kernellab.options.design import DesignCall, DesignVerification, VerificationOptions, VerifyCall, tuning_limit
from kernellab.options.search import CHANGEABLE, Knobs, SearchOptions
from kernellab.session import DesignRequest, design
from kernellab.session.config import defaults
from tools.options_page import PAGE, page

ROOT = Path(__file__).parents[2]
TASK = "import torch\n\ndef reference(x):\n    return x * 2.0\n\ndef inputs():\n    return [torch.rand(64)]\n"

#: what a contributor writes for a new criterion to stop, and how it is found in every front end
NEW_KNOB = """
import importlib.util, io, sys
from contextlib import redirect_stdout
from pathlib import Path

spec = importlib.util.find_spec("kernellab.options.search")
text = Path(spec.origin).read_text()
field = '    most: int = Field(default=0, ge=0, description="stop after this many candidates; 0: never")\\n'
place = "    plateau: int = Field("
assert text.count(place) == 1
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
exec(compile(text.replace(place, field + place), spec.origin, "exec"), module.__dict__)

import kernellab.evolve.stop as stop

def most(state):
    wanted = state.knobs.most
    return "Enough candidates." if wanted and len(state.evaluations) >= wanted else ""

stop.RULES += (most,)

import typer
from kernellab.cli import app, main
from kernellab.evolve.begin import begin
from kernellab.notebook.magics.table import parsers
from kernellab.notebook.monitor.head import knobs_of

command = typer.main.get_command(app).commands["evolve"]
assert any(p.opts == ["--most"] and "Stop after this many candidates" in p.help for p in command.params)
action = parsers()["kernel_evolve"]._option_string_actions["--most"]
assert action.help.startswith("stop after this many candidates") and action.type("4") == 4

Path("kernellab.toml").write_text("[evolve]\\nmost = 1\\nscore = \'model\'\\nrounds = 9\\n")
task = Path("soft.py").read_text()
run = begin(task, "cpp", name="soft")
assert (run.state.knobs.most, run.state.knobs.rounds) == (1, 9)
assert {k["name"]: k["value"] for k in knobs_of(run.state.knobs)}["most"] == "1"
run.set(most="2")
assert run.state.knobs.most == 2
out = io.StringIO()
with redirect_stdout(out):
    assert main(["evolve", "set", run.id, "most=1", "--json"]) == 0
assert begin(task, "cpp", name="soft", most=5).state.knobs.most == 5
run.work().wait(120)
print(run.state.reason)
"""


def test_a_new_knob_is_one_field_and_is_in_every_front_end(tmp_path: Path) -> None:
    (tmp_path / "soft.py").write_text(TASK)
    done = subprocess.run([sys.executable, "-c", NEW_KNOB], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Enough candidates."


def test_every_option_of_a_magic_and_of_config_comes_from_its_request() -> None:
    asked = {
        "kernel_design": (DesignCall, DesignVerification),
        "kernel_verify": (VerifyCall,),
        "kernel_evolve": (SearchOptions,),
    }
    for name, models in asked.items():
        listed = [entry for model in models for entry in entries(model, Surface.MAGIC)]
        actions = parsers()[name]._option_string_actions
        assert {entry.flag for entry in listed} <= set(actions), name
        assert len({entry.name for entry in listed}) == len(listed), name
    assert {entry.name for entry in entries(DesignCall, Surface.CONFIG)} <= set(KernelLab.class_trait_names())


def test_an_option_without_a_help_text_is_refused() -> None:
    class Mute(BaseModel):
        level: Annotated[int, Option()] = 1

    with pytest.raises(TypeError, match="level has no description"):
        entries(Mute)


def test_a_field_says_its_type_its_bounds_and_its_default() -> None:
    class Call(BaseModel):
        share: Annotated[float, Option(on=Surface.FILE)] = Field(default=0.5, gt=0, le=1, description="a share")
        names: Annotated[tuple[str, ...], Option()] = Field(default=(), description="a name")
        fast: Annotated[bool | None, Option()] = Field(default=None, description="be fast")

    share, names, fast = entries(Call)
    assert (share.kind, share.least, share.most, share.above, share.default_text) == (float, 0, 1, True, "0.5")
    assert (names.many, names.sentence) == (True, "A name; repeatable.")
    assert (fast.kind, fast.flag, fast.negative) == (bool, "--fast", "--no-fast")
    assert [entry.name for entry in entries(Call, Surface.MAGIC)] == ["names", "fast"]
    with pytest.raises(KernellabError, match="'share' cannot be 2"):
        build(Call, {"share": 2})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[session]\nmaxturns = 3\n", r"\[session\] maxturns is wrong.*Did you mean max_turns\?"),
        ("[sesion]\ndsl = 'cpp'\n", r"\[sesion\] is wrong: no such table.*Did you mean session\?"),
        ("session = 3\n", r"session should be a table"),
        ("[session]\nmax_turns = 0\n", r"'max_turns' cannot be 0"),
        ("[session]\nfresh = true\n", r"\[session\] fresh is wrong"),
    ],
)
def test_a_wrong_key_of_the_file_is_named_with_the_closest(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "kernellab.toml").write_text(text)
    with pytest.raises(SessionError, match=said):
        defaults(tmp_path)


def test_a_wrong_key_of_the_search_and_of_the_models_is_named_with_the_closest(tmp_path: Path) -> None:
    (tmp_path / "kernellab.toml").write_text("[evolve]\nround = 3\n[models]\ntemprature = 1\n")
    with pytest.raises(EvolveError, match=r"Did you mean rounds\?"):
        begin(TASK, "cpp", name="soft", workspace=tmp_path)
    with pytest.raises(ModelError, match=r"Did you mean temperature\?"):
        ModelSettings.load(tmp_path)


def test_the_file_stands_where_a_call_says_nothing_and_a_call_stands_over_it(tmp_path: Path) -> None:
    (tmp_path / "kernellab.toml").write_text("[session]\nmax_turns = 3\nimprove = true\n[evolve]\nislands = 4\n")
    usual = defaults(tmp_path)
    filled = DesignRequest(task=TASK, max_turns=20).filled(usual)
    assert (filled.max_turns, filled.improve) == (20, True)
    assert DesignRequest(task=TASK).filled(usual).max_turns == 3
    run = begin(TASK, "cpp", name="soft", workspace=tmp_path, score="model")
    assert (run.state.knobs.islands, run.state.knobs.score) == (4, "model")


def test_what_is_decided_when_a_search_begins_is_refused_by_the_run_as_by_the_monitor(tmp_path: Path) -> None:
    run = begin(TASK, "cpp", name="soft", workspace=tmp_path, score="model")
    assert set(Knobs.model_fields) - set(CHANGEABLE) == {"islands", "score", "seed"}
    for name in ("islands", "score", "seed"):
        with pytest.raises(EvolveError, match=f"{name!r} cannot be changed while a search runs"):
            run.set(**{name: "1"})
    with pytest.raises(EvolveError, match=r"no knob 'platau'.*Did you mean plateau\?"):
        run.set(platau="1")


def test_a_wrong_argument_of_a_design_is_one_sentence() -> None:
    with pytest.raises(SessionError, match="'max_turns' cannot be 0"):
        design(TASK, max_turns=0)


@pytest.mark.parametrize(("word", "level"), [("quick", "T1"), ("normal", "T2"), ("sealed", "T3"), ("thorough", "T4")])
def test_a_level_can_be_said_in_a_word(word: str, level: str) -> None:
    assert VerificationOptions(level=word).level == level


def test_the_policies_are_all_named_in_the_help() -> None:
    assert all(name in str(Knobs.model_fields["select"].description) for name in POLICIES)


#: options that no request has, each with the reason
OPTIONS_BY_TYPER = {"--version": "of the program, not of a command"}


def test_no_command_defines_an_option_by_itself() -> None:
    """Every option of a command is a field of a request that the command takes."""
    folder = ROOT / "kernellab" / "cli"
    sources = [path for path in sorted(folder.rglob("*.py")) if path != folder / "parameters.py"]
    assert [flag for path in sources for flag in options_by_typer(path)] == list(OPTIONS_BY_TYPER)


def options_by_typer(path: Path) -> Iterator[str]:
    """The words of each call of ``typer.Option`` in a module, which parameters.py alone makes for a command."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("Option", "OptionInfo"):
            yield ", ".join(ast.literal_eval(one) for one in node.args)


def test_every_command_has_the_options_of_its_requests() -> None:
    flags = flags_by_command()
    assert flags["evolve-run lab"] == {entry.flag for entry in entries(LabOptions)}
    assert flags["memory search"] >= {"-k", "--leave-out", "--store", "--json"}


def test_a_default_of_the_lab_keeps_the_knobs_help_and_bounds() -> None:
    knobs = {entry.name: entry for entry in entries(Knobs)}
    for entry in entries(LabOptions):
        if entry.name in knobs and entry.name != "select":
            knob = knobs[entry.name]
            assert (entry.help, entry.least, entry.most, entry.kind) == (knob.help, knob.least, knob.most, knob.kind)


def flags_by_command() -> dict[str, set[str]]:
    """The flags of every command, by the command's words."""
    flags: dict[str, set[str]] = {}

    def visit(command: Any, words: tuple[str, ...]) -> None:
        children = getattr(command, "commands", {})
        for name, child in children.items():
            visit(child, (*words, name))
        if not children:
            flags[" ".join(words)] = {
                flag for one in command.params if one.param_type_name == "option" for flag in one.opts
            }

    visit(typer.main.get_command(app), ())
    return flags


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python tools/options_page.py --write"


def test_tuning_is_bounded_by_points_or_by_seconds() -> None:
    assert [DesignCall.model_validate({"tune": given}).tune for given in (8, "8", "20s", 0, "0s")] == [
        "8", "8", "20s", "", "",
    ]  # fmt: skip
    assert tuning_limit("8") == (8, math.inf)
    points, seconds = tuning_limit("20s")
    assert points > 100 and seconds == 20
    with pytest.raises(ValueError, match="as 20s"):
        DesignCall.model_validate({"tune": "20 minutes"})
