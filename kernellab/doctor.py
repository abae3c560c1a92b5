"""What this machine can do for kernellab, and the one line that installs what is missing. Never imports torch."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kernellab.content import installed
from kernellab.dsls import ADAPTERS
from kernellab.dsls.cpp import ninja
from kernellab.dsls.machine import cpu_chip, gpu_chip, gpu_products
from kernellab.errors import KernellabError, ModelError
from kernellab.lowering import lowered_dsls
from kernellab.models import MODEL_ROLES, Configured, ModelSettings, configured
from kernellab.models.opening import probe
from kernellab.target import Chip

#: what is looked for, and the arguments that make it say its version
_COMPILERS = {
    "g++": ["-dumpfullversion"], "clang++": ["-dumpversion"], "nvcc": ["--version"], "ninja": ["--version"],
}  # fmt: skip
_PACKAGES = ("torch", "triton", "apache-tvm-ffi", "numpy", "ipywidgets", "jupyterlab", "ipykernel")


@dataclass(frozen=True)
class DslReport:
    """``reason`` says why it is not ready, ``remedy`` how to make it so; ``backend`` what it runs on."""

    ready: bool
    reason: str
    remedy: str
    backend: str
    #: do the rules write it, with no model?
    rules: bool = False


@dataclass(frozen=True)
class Diagnosis:
    chips: tuple[Chip, ...]
    dsls: Mapping[str, DslReport]
    compilers: Mapping[str, str]
    packages: Mapping[str, str]
    sandbox: str
    models: tuple[str, ...]
    agents: tuple[str, ...]
    python: str
    system: str
    #: one line each, to be pasted into a shell
    install: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-like, as ``kernellab doctor --json`` prints it."""
        found = asdict(self)
        found["chips"] = [asdict(chip) for chip in self.chips]
        return found


def diagnose(probe_models: bool = False) -> Diagnosis:
    """Look at the machine. Takes a second the first time, while the CPU's rates are measured.

    With ``probe_models`` each configured model is asked for one token.
    """
    compilers = {name: _compiler(name, arguments) for name, arguments in _COMPILERS.items()}
    packages = {name: installed(name) for name in _PACKAGES}
    of_agents = {name: installed(name) for name in ("mcp", "agent-client-protocol")}
    dsls = {name: _dsl(name) for name in ADAPTERS}
    gpus = [chip for index in range(len(gpu_products())) if (chip := gpu_chip(index)) is not None]
    return Diagnosis(
        chips=(cpu_chip(), *gpus),
        dsls=dsls,
        compilers={name: found for name, found in compilers.items() if found},
        packages={name: found for name, found in {**packages, **of_agents}.items() if found},
        sandbox=sandbox(),
        models=models_of(probe_models),
        agents=agents_of(),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        install=_install(compilers, packages),
    )


def report(probe_models: bool = False) -> str:
    """The diagnosis as text for people."""
    found = diagnose(probe_models)
    lines = [f"kernellab {installed('kernellab') or '?'} on {found.system}, Python {found.python}", "", "chips"]
    lines += [f"  {_chip_words(chip)}" for chip in found.chips]
    if len(found.chips) == 1:
        lines.append("  no NVIDIA GPU: Triton runs in its interpreter, checked and never timed")
    lines += ["", "DSLs"]
    for name, dsl in found.dsls.items():
        state = f"ready ({dsl.backend})" if dsl.ready else f"not ready: {dsl.reason} {dsl.remedy}".rstrip()
        lines.append(f"  {name:<13} {state}{'; the rules write it' if dsl.ready and dsl.rules else ''}")
    if found.packages.get("triton"):
        why = asynchronous_kernels()
        lines.append(f"  {'':<13} asynchronous kernels for Hopper (Gluon): {why or 'ready'}")
    lines += ["", "compilers  " + (", ".join(f"{k} {v}" for k, v in found.compilers.items()) or "none")]
    lines += ["packages   " + ", ".join(f"{k} {v}" for k, v in found.packages.items())]
    lines += ["sandbox    " + found.sandbox, *(f"  {line}" for line in sandbox_gaps(found.sandbox))]
    first, *more = found.models or ("none configured: every role has its rules",)
    lines += ["models     " + first, *(f"           {line}" for line in more)]
    first, *more = found.agents or ("none: [agents.NAME] in kernellab.toml",)
    lines += ["agents     " + first, *(f"           {line}" for line in more)]
    if found.install:
        lines += ["", "to install what is missing", *(f"  {line}" for line in found.install)]
    return "\n".join(lines)


def asynchronous_kernels() -> str:
    """Why Triton's Gluon cannot be used here, "" where it can."""
    from kernellab.lowering.gluon.names import unavailable

    return unavailable()


def models_of(probe_models: bool) -> tuple[str, ...]:
    """One line for each model that roles are set to speak to; why it is not ready, where it is not."""
    try:
        settings = ModelSettings.load()
    except ModelError as error:
        return (f"not ready: {error}",)
    alike: dict[tuple[str, str, bool], list[Configured]] = {}
    for row in configured(settings):
        if row.model or row.host:
            alike.setdefault((row.model, row.host, row.ready), []).append(row)
    lines = []
    for (model, host, _), rows in alike.items():
        players, reason = [row.role for row in rows], rows[0].reason
        who = "all roles" if len(players) == len(MODEL_ROLES) else ", ".join(role.value for role in players)
        state = f"not ready: {reason}" if reason else probe(players[0], settings) if probe_models else "configured"
        lines.append(f"{who}: {model or 'no model'} at {host or 'no address'}, {state}")
    return tuple(lines)


def agents_of() -> tuple[str, ...]:
    """One line for each agent of the workspace's file: can it be started?"""
    from kernellab.content import find_workspace
    from kernellab.session.config import agents, check_agent

    try:
        known = agents(find_workspace())
    except KernellabError as error:
        return (f"not ready: {error}",)
    if not installed("agent-client-protocol") or not installed("mcp"):
        return tuple(f"{name}: not ready: pip install 'kernellab[agents]'" for name in known)
    lines = []
    for name, options in known.items():
        try:
            check_agent(name, options, "")
            lines.append(f"{name}: {' '.join(options.command)}, found")
        except KernellabError as error:
            lines.append(f"{name}: not ready: {error}")
    return (*lines, _apart()) if lines else ()


def _apart() -> str:
    """What holds an agent here, and what its kernels' verdicts say of it."""
    from kernellab.tools.acp.confinement import holds, is_apart

    try:
        held = holds()
    except (OSError, subprocess.SubprocessError) as error:
        return f"what holds one is unknown: {error}"
    if not is_apart(held):
        return (
            f"one started here shares the machine ({held or 'nothing'}). Each verdict is made after the "
            "agent has ended, and has the condition 'agent shared the machine'; a search leaves its candidates out. "
            "With user namespaces and Landlock it would be apart, without root too."
        )
    user = "it is another user" if "uid" in held else "it has your user number (another one takes root)"
    return f"one started here reaches neither the judge's memory nor your files for writing ({held}); {user}"


def sandbox() -> str:
    """What holds a candidate here, in the verifier's own words; ``process`` alone where the system offers nothing."""
    from kernellab.verifier import sandbox_level

    try:
        return sandbox_level()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {error}"


def sandbox_gaps(level: str) -> list[str]:
    """One line for each part of the sandbox that ``level`` does not have: what is open without it, what gives it."""
    if level.startswith("unknown"):
        return []
    from kernellab.sandbox import contains, missing

    lines = [f"without {part.word}: {part.without}; to have it: {part.remedy}" for part in missing(level)]
    if not contains(level):
        lines.append("nothing keeps a kernel from your files: code that the rules did not write runs only on consent")
    return lines


def _dsl(name: str) -> DslReport:
    try:
        ready = ADAPTERS[name].readiness()
    except (ImportError, KernellabError) as error:
        return DslReport(False, f"Its adapter cannot be loaded: {error}.", "Install kernellab again.", "")
    backend = ready.backend.value if ready.backend else ""
    return DslReport(ready.ready, ready.reason, ready.remedy, backend, name in lowered_dsls())


def _compiler(name: str, arguments: list[str]) -> str:
    path = ninja() if name == "ninja" else shutil.which(name)
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    words = done.stdout.strip().splitlines()
    release = next((line for line in words if "release" in line), words[0] if words else "found")
    return release.partition("release ")[2].partition(",")[0] or release


def _install(compilers: Mapping[str, str], packages: Mapping[str, str]) -> tuple[str, ...]:
    lines = []
    mac = sys.platform == "darwin"
    if not compilers["g++"] and not compilers["clang++"]:
        lines.append("xcode-select --install" if mac else "sudo apt-get install -y g++")
    missing = [name for name, found in packages.items() if not found and not (mac and name == "triton")]
    if missing:
        lines.append(f"{sys.executable} -m pip install {' '.join(missing)}")
    return tuple(lines)


def _chip_words(chip: Chip) -> str:
    facts = [chip.name]
    if chip.kind == "gpu" and chip.cores:
        facts.append(f"{chip.cores} SMs")
    if chip.kind == "cpu" and chip.l2_bytes:
        facts.append(f"L2 {chip.l2_bytes / 2**20:g} MiB a core")
    if chip.memory_bytes:
        facts.append(f"{chip.memory_bytes / 2**30:.0f} GiB")
    if chip.bandwidth:
        facts.append(f"{chip.bandwidth / 1e9:.0f} GB/s")
    if chip.peak_flops.get("f32"):
        facts.append(f"{chip.peak_flops['f32'] / 1e9:.0f} GFLOP/s f32")
    return ", ".join(facts) + (f"  ({chip.source})" if chip.source else "")
