"""The options that only a command of the shell has: one model for each command that has some.

A command names its model and gets one object of it (:mod:`kernellab.cli.parameters`); flags, ``--help`` and the
reference page are derived from the fields. What a command shares with a magic or a file is in the other modules of this
folder, and a default of those that a command changes is :func:`alike`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field

from kernellab.options.entry import REQUEST, Option, Surface, entries
from kernellab.options.search import Knobs

_typed = partial(Option, Surface.COMMAND)

#: the DSL that a sketch is lowered to
_LoweredTo = Annotated[
    str | None,
    Field(description="the DSL: triton, cpp or cuda_c"),
    _typed(default="triton with a GPU, else cpp"),
]
_TaskFile = Annotated[Path | None, Field(description="the task's Python file")]
_Constexprs = Annotated[
    dict[str, int | float],
    Field(default_factory=dict, description="the value of a constexpr"),
    _typed(flag="set", metavar="NAME=VALUE"),
]
_KnowledgeFolder = Annotated[
    Path | None,
    Field(description="the DSL's folder"),
    _typed(default="knowledge/dsl/NAME of the workspace"),
]


def alike(model: type[BaseModel], name: str, default: object) -> Any:
    """The field of that name with another default, and the same help and bounds."""
    entry = next(entry for entry in entries(model) if entry.name == name)
    least: dict[str, Any] = {"gt" if entry.above else "ge": entry.least}
    return Field(default=default, description=entry.help, le=entry.most, **least)


class CommandOptions(BaseModel):
    """Every field of a model of this module is an option of a command."""

    model_config = REQUEST
    OPTION: ClassVar[Option] = _typed()


class JsonOptions(CommandOptions):
    """A command that can print its result as JSON."""

    as_json: Annotated[bool, _typed(flag="json")] = Field(default=False, description="one JSON object on stdout")


# -- designs, verdicts and suites


class DesignShell(JsonOptions):
    """``design``, besides the design itself."""

    words: str | None = Field(default=None, description="the operator in words instead; a model writes the task")
    yes: bool = Field(default=False, description="approve the task that a model wrote from --words")
    out: Path | None = Field(default=None, description="a folder for sketch, source and exported module")
    start: Annotated[Path | None, _typed(flag="from")] = Field(
        default=None, description="start from a sketch (.sketch) or a source, which is lifted to a sketch"
    )
    resume: bool | None = Field(default=None, description="resume the session that the same call started")
    answer: Path | None = Field(
        default=None, description="your answer where a role is yours (- is stdin); continues as --resume does"
    )

    @property
    def continues(self) -> bool:
        """Whether the call continues the session that the same call started before."""
        return bool(self.resume) or self.answer is not None


class VerifyShell(JsonOptions):
    """``verify``, besides the verification itself."""

    trust_task: bool = Field(
        default=False, description="run a capsule's task, which has your rights: you trust its author"
    )


class BenchShell(JsonOptions):
    """``bench``, besides the suite's run itself."""

    samples: int = Field(
        default=1, ge=1, description="design each task this often; the report has pass@1 to pass@K and the cost"
    )
    out: Path = Field(default=Path("out/bench"), description="a folder for the rows and the report")


class LensOptions(JsonOptions):
    """``lens``."""

    task: Path | None = Field(default=None, description="the task's file; a GPU's kernel needs it")
    dsl: Annotated[str | None, _typed(default="detected")] = Field(
        default=None, description="the DSL of the source: triton, cuda_c or cpp"
    )
    chip: Annotated[str | None, _typed(default="this one's")] = Field(
        default=None, description="the GPU to compile for, as h200 or a100"
    )
    level: str | None = Field(default=None, description="print this text: ttir, ttgir, llir, ptx, sass, gimple, asm")
    line: int | None = Field(default=None, ge=1, description="print what this line of the source became")
    back: int | None = Field(
        default=None, ge=1, description="print the source lines that this line of --level came from"
    )
    html: Path | None = Field(default=None, description="write one page: both sides, linked line by line")
    out: Path | None = Field(default=None, description="a folder for the texts")
    counters: bool = Field(default=False, description="run it under ncu and read the GPU's counters")
    unsandboxed: bool = Field(default=False, description="I trust this kernel: it may run with my own rights")


class ProfileOptions(JsonOptions):
    """``profile``."""

    train: bool = Field(default=False, description="profile a training step: forward, loss and backward")
    device: Annotated[str | None, _typed(default="a GPU where there is one")] = Field(
        default=None, description="the device: cpu or cuda"
    )
    rows: int = Field(default=15, ge=1, description="rows of the table")
    tree: bool = Field(default=False, description="the tree of modules, with total and own time, too")
    what_if: Annotated[tuple[str, ...], _typed(metavar="ROW=TIMES")] = Field(
        default=(), description="predict the model with a row so many times as fast"
    )
    open_rows: Annotated[tuple[str, ...], _typed(flag="open", metavar="ROW")] = Field(
        default=(), description="design a kernel for a row (number, name or module) and install it"
    )
    auto: Annotated[str | None, _typed(metavar="minutes=30")] = Field(
        default=None, description="design kernels row by row with the rules, install and measure them"
    )
    most: int | None = Field(default=None, ge=1, description="with --auto: stop after this many kernels")
    dsl: Annotated[str | None, _typed(default="triton with a GPU, else cpp")] = Field(
        default=None, description="the kernels' DSL"
    )


# -- searches


class SearchShell(JsonOptions):
    """``evolve``, besides the search itself."""

    start: Annotated[tuple[Path, ...], _typed(flag="from")] = Field(default=(), description="a sketch to begin with")
    out: Path | None = Field(default=None, description="a folder for the best one's sketch, source and exported module")
    cluster: Annotated[str, _typed(default="threads of this process")] = Field(
        default="",
        description="who does the jobs: local:N processes here, dask://HOST:PORT, or the judge at ssh://HOST",
    )
    detach: bool = Field(default=False, description="run in a background process")
    estimate: bool = Field(default=False, description="print the estimated cost and exit")
    resume: str = Field(default="", description="resume a run that was interrupted")


class NightOptions(JsonOptions):
    """``evolve night``."""

    minutes: float = Field(default=480.0, ge=0.1, description="the time that all of them have together")
    dsl: str = Field(default="cpp", description="the DSL of the kernels")
    cluster: str = alike(SearchShell, "cluster", "")
    html: Path = Field(default=Path("morning.html"), description="the morning's report")


class LabOptions(JsonOptions):
    """``evolve lab``."""

    select: Annotated[tuple[str, ...], _typed(default="all")] = Field(default=(), description="a policy to replay")
    space: Annotated[tuple[str, ...], _typed(default="all")] = Field(default=(), description="a recorded space")
    rounds: int = alike(Knobs, "rounds", 6)
    parallel: int = alike(Knobs, "parallel", 4)
    islands: int = alike(Knobs, "islands", 2)
    elites: int = alike(Knobs, "elites", 2)
    migrate_every: int = alike(Knobs, "migrate_every", 1)
    seeds: int = Field(default=5, ge=1, description="replays of each policy on each space")
    noise: float = Field(default=1.0, ge=0, description="noise added, as a multiple of the measured spread; 0: none")
    html: Path | None = Field(default=None, description="a page with the curves")


class StopOptions(JsonOptions):
    """``evolve stop``."""

    why: str = Field(default="", description="the reason that is kept")


class InjectOptions(JsonOptions):
    """``evolve inject``."""

    island: int = Field(default=0, ge=0, description="the island's number")


class AcceptOptions(JsonOptions):
    """``evolve accept``."""

    words: str = Field(default="", description="the direction in words of your own")


class RunReportOptions(JsonOptions):
    """``evolve report``."""

    html: Path = Field(default=Path("run.html"), description="the file")


# -- what leaves a session


class ExportOptions(JsonOptions):
    """``export``."""

    out: Path | None = Field(default=None, description="the module to write, or the folder of --layout")
    layout: str = Field(
        default="module",
        description="layout of --out: module (one file), package (a folder), kernels (Hugging Face's kernels)",
    )
    wheel: Path | None = Field(default=None, description="a folder for a wheel")
    prebuilt: Annotated[bool | None, _typed(default="with --out; not in a wheel, which it binds to this platform")] = (
        Field(default=None, description="carry compiled code, so that an import compiles nothing")
    )
    version: str = Field(default="0.1.0", description="the wheel's version")
    capsule: Path | None = Field(
        default=None,
        description="a capsule: task, sketch, source and verdict in one file; `kernellab verify FILE` repeats it",
    )
    solution: Path | None = Field(
        default=None, description="a file for flashinfer-bench's Solution; its Definition is written next to it"
    )
    graph: bool = Field(default=False, description="launch several kernels of one call as one CUDA graph")
    trajectories: Path | None = Field(
        default=None, description="a .jsonl or .parquet file for what models were asked; all sessions if none"
    )
    form: str = Field(
        default="rows",
        description="form of --trajectories: rows (all that is known), sft (chats of what passed), dpo (preference "
        "pairs of one prompt), rl (prompts with replies and rewards); as TRL takes them",
    )
    over: str | None = Field(
        default=None, description="choose among the kernels by the size of this Dim, as measured now"
    )
    licence: str = Field(default="unspecified", description="licence of the trajectories, or of a kernels repository")


class CompareOptions(JsonOptions):
    """``compare``."""

    over: str = Field(description="the Dim whose range is measured")


class ShareOptions(JsonOptions):
    """``share``."""

    out: Annotated[Path | None, _typed(default="the name")] = Field(default=None, description="the HTML file")


class ReplayOptions(JsonOptions):
    """``replay export``."""

    out: Path = Field(description="the replay file to write (JSON lines)")
    note: str = Field(default="", description="a description of the recording, stored in its header")


# -- the sketch language


class SketchCheckOptions(JsonOptions):
    """``sketch check``."""

    constexprs: _Constexprs
    dsl: _LoweredTo = None


class SketchRunOptions(JsonOptions):
    """``sketch run``."""

    task: _TaskFile = None
    constexprs: _Constexprs


class SketchCostOptions(JsonOptions):
    """``sketch cost``."""

    task: _TaskFile = None
    dsl: _LoweredTo = None
    constexprs: _Constexprs
    sizes: Annotated[dict[str, int | float], _typed(flag="size", metavar="NAME=VALUE")] = Field(
        default_factory=dict, description="the value of a symbol"
    )


class SketchLowerOptions(JsonOptions):
    """``sketch lower``."""

    task: _TaskFile = None
    dsl: _LoweredTo = None
    constexprs: _Constexprs
    out: Path | None = Field(default=None, description="a folder for the sketch and the source")


class LiftOptions(JsonOptions):
    """``sketch lift``."""

    task: Path = Field(description="the task's Python file")
    dsl: Annotated[str | None, _typed(default="detected")] = Field(default=None, description="the DSL of the source")
    to: str | None = Field(default=None, description="lower the sketch to this DSL: triton, cpp or cuda_c")
    constexprs: _Constexprs
    out: Path | None = Field(default=None, description="a folder for the sketch and the files in the other DSL")


class TuneOptions(JsonOptions):
    """``sketch tune``."""

    task: Path = Field(description="the task's Python file")
    dsl: _LoweredTo = None
    constexprs: _Constexprs
    trials: int = Field(default=16, ge=1, description="measure at most this many points")
    fresh: bool = Field(default=False, description="measure again instead of using an earlier search's results")
    out: Path | None = Field(default=None, description="a folder for the tuned sketch and its source")


# -- documents


class DocsNewOptions(JsonOptions):
    """``docs new``."""

    like: str = Field(default="triton", description="the DSL whose spec.toml the draft starts from")
    out: _KnowledgeFolder = None


class DocsLintOptions(JsonOptions):
    """``docs lint``."""

    root: Annotated[Path | None, _typed(default="the workspace's and the installation's")] = Field(
        default=None, description="a knowledge folder"
    )


class DocsRunOptions(DocsLintOptions):
    """``docs run``."""

    record: bool = Field(default=False, description="keep which blocks passed on which versions")


class DocsShowOptions(JsonOptions):
    """``docs show``."""

    names: Annotated[tuple[str, ...], _typed(flag="name")] = Field(
        default=(), description="only the parts that this name needs"
    )
    error: str = Field(default="", description="only the parts that fixing this error needs")


class DocsImportOptions(JsonOptions):
    """``docs import``."""

    dsl: str = Field(description="the DSL's name")
    like: Annotated[str, _typed(default="the existing draft")] = Field(
        default="", description="the DSL whose spec.toml the draft starts from"
    )
    out: _KnowledgeFolder = None
    model: str = Field(
        default="", description="a model that sorts in what the rules cannot place: model, model:NAME, replay:FILE"
    )


# -- the memory of verified kernels


class StoreOptions(JsonOptions):
    """Every command of ``memory``."""

    store: Annotated[str, _typed(default="kernellab.toml's, else the workspace's")] = Field(
        default="", description="a LanceDB URI"
    )


class MemorySearchOptions(StoreOptions):
    """``memory search``."""

    dsl: Annotated[str | None, _typed(default="any")] = Field(default=None, description="the DSL of the kernels")
    count: Annotated[int, _typed(flag="k")] = Field(default=5, ge=1, description="how many hits")
    also: tuple[str, ...] = Field(default=(), description="an operation to look for as well")
    leave_out: bool = Field(default=False, description="leave out kernels of the same computation")


class MemoryImportOptions(StoreOptions):
    """``memory import``."""

    licence: str = Field(default="unspecified", description="licence of entries that state none")


class MemoryVerifyOptions(StoreOptions):
    """``memory verify``."""

    library: bool = Field(default=False, description="also the stale kernels of the shipped library")


class MemorySkillsOptions(StoreOptions):
    """``memory skills``."""

    out: Path | None = Field(default=None, description="a folder for one Markdown note each, to edit")


class MemoryExportOptions(StoreOptions):
    """``memory export``."""

    out: Path = Field(description="a .jsonl file")


class MemoryJudgeOptions(StoreOptions):
    """``memory judge``."""

    thumb: int | None = Field(default=None, ge=-1, le=1, description="-1 never shows it, 1 prefers it")
    pin: bool | None = Field(default=None, description="never drop it")
    note: str | None = Field(default=None, description="a note on why the kernel is written this way")


# -- the machine, coding agents and the course


class DoctorOptions(JsonOptions):
    """``doctor``."""

    probe: bool = Field(default=False, description="ask each configured model for one token")


class McpOptions(CommandOptions):
    """``mcp``."""

    workspace: Annotated[Path | None, _typed(default="this one's")] = Field(
        default=None, description="the folder with tasks and journal"
    )
    http: bool = Field(default=False, description="serve on loopback instead of the standard streams")
    relay: Annotated[str, _typed(hidden=True)] = Field(
        default="", description="carry the streams to the server at this address"
    )
    unsandboxed: bool = Field(default=False, description="kernels may run with my rights, to read a GPU's counters")
    port: int = Field(default=8765, ge=1, le=65535, description="the port of --http")


class SkillOptions(CommandOptions):
    """``skill``."""

    client: Annotated[str, _typed(flag="for")] = Field(
        default="claude", description="the agent: claude, codex, opencode, gemini or jupyter"
    )


class GradeOptions(JsonOptions):
    """``grade``."""

    csv: Annotated[Path | None, _typed(default="standard output")] = Field(
        default=None, description="the file of marks"
    )
    lesson: Annotated[str, _typed(default="those that a notebook answers")] = Field(
        default="", description="the lesson whose exercises count"
    )
    secret: str = Field(
        default="", description="the word that `kernellab release --secret` drew the students' variants with"
    )
    students: Path | None = Field(
        default=None, description="with --secret: the file of names that the variants were drawn for"
    )
    board: Path | None = Field(default=None, description="an HTML page of the class by points of verified answers")


class ReleaseOptions(CommandOptions):
    """``release``."""

    students: Path | None = Field(default=None, description="a file of names, one a line: a folder for each")
    secret: str = Field(default="", description="draws each student's variant of an exercise; keep it to yourself")


class NotebookOptions(CommandOptions):
    """``lab``."""

    out: Path = Field(default=Path("kernellab-notebooks"), description="the folder to copy them to")
    course: bool = Field(default=False, description="the lessons of the course instead of the tutorials")
    solutions: bool = Field(
        default=False, description="with --course: the teacher's guide and the reference answers too"
    )
