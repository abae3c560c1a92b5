"""The structure of the package: no import cycles, no class spread over files, no crowded folder."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_SIBLINGS = 17
MOST_LINES = 600

#: every module that uses ``re``, by the foreign text that it reads
PATTERNS = {
    "what a model or a person wrote": (
        "agents.model.analyst",
        "agents.model.human",
        "agents.model.prompts.history",
        "agents.model.prompts.memory",
        "agents.model.prompts.templates",
        "agents.model.reply.claims",
        "agents.model.reply.blocks",
        "agents.model.reply.code",
        "agents.model.reply.sketches",
        "memory.notes",
        "models.dialect",
        "verifier.remote",
        "models.faults",
        "models.json_text",
        "models.keys",
        "teach.read.notebooks",
        "tools.acp.client",
        "tools.skill",
        "tools.skill.jsonc",
        "models.partial_reply",
        "models.replay",
        "models.settings",
        "models.tokens",
        "session.turn.quoting",
        "session.turn.task_from_text",
        "export.wheel",
        "teach.progress",
    ),
    "what a compiler, a tool, a library or the system printed": (
        "agents.rules.classify",
        "capture.trace_errors",
        "dsls.base",
        "dsls.host_cpu",
        "dsls.machine",
        "lens.cpp.build",
        "lens.cpp.facts",
        "lens.cpp.hot",
        "lens.cpp.loops",
        "lens.cpp.look",
        "lens.cpp.mca",
        "lens.cpp.places",
        "lens.difference",
        "lens.dry.cuda",
        "lens.dry.tools",
        "lens.dry.triton",
        "lens.gpu.facts",
        "lens.read.llvm",
        "lens.read.mlir",
        "lens.read.ptx",
        "lens.read.sass",
        "export.runtime.prebuilt",
        "task.module",
        "teach.read.machine",
        "task.source",
        "verifier.cuda.trace",
        "sandbox.sandbox",
        "verifier.judge.process",
        "verifier.attribution.imports",
        "verifier.attribution.objects",
        "verifier.seal.sanitizer",
        "model_integration.unit",
    ),
    "names of torch's operations and modules": (
        "capture.read",
        "model_integration.ranked",
    ),
    "sources of kernels and tasks, whoever wrote them": (
        "verifier.cases.source_numbers",
        "agents.model.prompts.code",
        "agents.model.prompts.helpers",
        "bench.suites.definitions",
        "bench.suites.load",
        "bench.suites.record",
        "bench.suites.tritonbench",
        "dsls.cpp",
        "dsls.cuda_c",
        "dsls.documented",
        "dsls.functions",
        "dsls.sources",
        "dsls.spec",
        "dsls.text",
        "dsls.triton",
        "lowering.c_family.helpers",
        "lowering.embedded_sketch",
        "lowering.lift.lift",
        "lowering.lift.proof",
        "export.exportable",
        "task.call_inputs.randomness",
        "verifier.seal.native",
        "verifier.boundary_checks.small_numbers",
        "verifier.static.check",
        "verifier.coverage.native",
        "verifier.coverage.python",
        "verifier.coverage.reach",
        "verifier.static.native",
        "verifier.static.dates",
        "verifier.static.native_surroundings",
        "verifier.static.surroundings",
    ),
    "the sketch language, also where it cannot be parsed": (
        "sketch.syntax.words",
        "agents.rules.designer",
        "lowering.comment_only",
        "notebook.language.complete",
        "notebook.language.place",
        "notebook.views.detail",
        "sketch.check.checker",
        "sketch.program.aten",
        "sketch.syntax.layout",
        "sketch.syntax.lexers",
        "sketch.syntax.pins",
        "sketch.syntax.printer",
        "sketch.syntax.parse",
        "teach.goals",
    ),
    "documents and their front matter": (
        "agents.model.prompts.quotes",
        "knowledge.draft",
        "knowledge.importer",
        "knowledge.lint",
        "knowledge.modules",
        "knowledge.toolchain",
        "knowledge.pages",
        "knowledge.rank",
        "target.chips",
    ),
    "words of DOMAIN": ("task.policy",),
    "a name that becomes an identifier or a file's name": (
        "lowering.cuda_c.placement",
        "lowering.gpu_host",
        "lowering.python_text",
        "lowering.triton.text",
        "lowering.triton.elementwise",
        "notebook.saved.coloured",
        "sketch.program.bind_task",
        "export.layouts",
        "model_integration.gradient.graph_text",
        "model_integration.task_text",
    ),
    "a long text that is cut for storage": ("journal.blobs",),
}
#: those that still read text which this package wrote, with what the text is; to be made records, none to be added
OWN_TEXTS = {
    "agents.model.prompts.marks": "comments of lowered sources",
    "lowering.tunables": "lines of a lowered source",
}


@lru_cache(maxsize=1)
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name; tasks are data, not modules."""
    files = [p for p in sorted((ROOT / "kernellab").rglob("*.py")) if not {"builtin", "_content"} & set(p.parts)]
    named = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in files}
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in named.items()}


@lru_cache(maxsize=1)
def imports() -> dict[str, tuple[tuple[str, str, str], ...]]:
    """What each module imports."""
    return {name: tuple(imported(tree)) for name, tree in modules().items()}


def imported(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """(module, name, the name it is bound to) of each import that runs, inside functions too."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name, alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "", alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            left += node.orelse
        else:
            # an import is a statement, which no expression holds
            left += [inner for inner in ast.iter_child_nodes(node) if not isinstance(inner, ast.expr)]


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Packages' own ``__init__`` files only hand names on, so they are left out of the graph."""
    known = modules()
    packages = {name for name in known if any(other.startswith(f"{name}.") for other in known)}
    graph: dict[str, set[str]] = defaultdict(set)
    for name, found in imports().items():
        for module, what, _ in found:
            target = f"{module}.{what}" if f"{module}.{what}" in known else module
            if target in known and target != name and target not in packages:
                graph[name].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("an import circle: " + " -> ".join(error.args[1])) from None


def test_no_class_has_bases_in_more_than_two_files() -> None:
    """Inheritance that only splits a class over files hides who may touch its state."""
    bases: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, tree in modules().items():
        bound = {alias: (module, what) for module, what, alias in imports()[name]}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                names = [base.id for base in node.bases if isinstance(base, ast.Name)]
                bases[name, node.name] = [bound.get(base, (name, base)) for base in names]

    def files(found: tuple[str, str]) -> set[str]:
        return {found[0]}.union(*map(files, bases[found])) if found in bases else set()

    towers = {f"{m}.{c}" for m, c in bases if len(files((m, c))) > 2}
    assert not towers


def test_no_folder_is_crowded_and_no_module_is_long() -> None:
    listed = [p for p in (ROOT / "kernellab").rglob("*.py") if not {"builtin", "_content"} & set(p.parts)]
    crowded = {str(f): n for f, n in Counter(p.parent.relative_to(ROOT) for p in listed).items() if n > MOST_SIBLINGS}
    long = {p.name: n for p in listed if (n := len(p.read_text(encoding="utf-8").splitlines())) > MOST_LINES}
    assert not crowded
    assert not long


def test_patterns_read_foreign_text_alone() -> None:
    """A fact that this package knows travels as a record; a pattern over a text of ours would read it back."""
    listed = {f"kernellab.{name}" for names in PATTERNS.values() for name in names}
    own = {f"kernellab.{name}" for name in OWN_TEXTS}
    using = {name for name, found in imports().items() if any(module == "re" for module, _, _ in found)}
    assert not using - listed - own, "say what foreign text it reads in PATTERNS, or make the text a record"
    assert not (listed | own) - using, "these use no patterns any more: take them off the list"
    assert not listed & own


#: modules that make objects of bytes, and functions that do so unless they are told otherwise
_UNPICKLERS = frozenset(
    {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
)
_LOADERS = frozenset({"torch.load", "numpy.load", "np.load", "pandas.read_pickle", "yaml.load", "yaml.unsafe_load"})


def test_nothing_makes_objects_of_a_strangers_bytes() -> None:
    """Journals, memory rows, exports and reports may come from elsewhere: they are JSON, Arrow and text alone."""
    found = []
    words = {name.rpartition(".")[2] for name in _UNPICKLERS | _LOADERS}
    for path in sorted((ROOT / "kernellab").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if any(word in text for word in words) else ():
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in _LOADERS:
                safe = any(k.arg in ("weights_only", "allow_pickle") for k in node.keywords)
                names = [] if safe else [ast.unparse(node.func)]
            found += [
                f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
                for name in names
                if name in _LOADERS or name.split(".")[0] in _UNPICKLERS
            ]
    assert not found


def test_each_test_that_make_prove_alone_runs_exists() -> None:
    from tests.breadth import PROVE_ONLY, SHARES

    texts = {
        name: (ROOT / "tests" / name).read_text(encoding="utf-8") for name in {n.split("::")[0] for n in PROVE_ONLY}
    }
    gone = [name for name in PROVE_ONLY if f"def {name.split('::')[1]}(" not in texts[name.split("::")[0]]]
    assert not gone and not [name for name in SHARES if not (ROOT / "tests" / name).exists()]
