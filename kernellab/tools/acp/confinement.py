"""What confines an agent's program: the folders that it may write to, what is hidden from it, and what it inherits.

``confine.py`` starts the program and reports, in level words, what of this the machine can hold.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from glob import escape, glob
from pathlib import Path
from typing import NamedTuple

from kernellab.options.agents import AgentOptions

#: the script that starts an agent's program
CONFINE = Path(__file__).with_name("confine.py")


class _UsualFolder(NamedTuple):
    """Where programs keep their files of a kind: in the home, and what that is called in the workspace's folder."""

    in_home: str
    in_workspace: str


#: by the variable that names another place
_USUAL_FOLDERS = {
    "XDG_CONFIG_HOME": _UsualFolder(".config", "config"), "XDG_CACHE_HOME": _UsualFolder(".cache", "cache"),
    "XDG_DATA_HOME": _UsualFolder(".local/share", "data"), "XDG_STATE_HOME": _UsualFolder(".local/state", "state"),
}  # fmt: skip
#: beginnings of variables with tokens of Jupyter's servers or ours, or with places that the agent does not see
_WITHHELD = (
    "JPY_", "JUPYTER_TOKEN", "JUPYTERHUB_", "KERNELLAB_", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY",
)  # fmt: skip
#: where programs of the person listen that would run a command outside of what confines the agent
_LISTENING = (
    "/run/user/*", "/tmp/tmux-*", "/tmp/emacs*", "/run/screen", "/run/docker.sock", "/run/podman", "/run/containerd",
    "/tmp/.X11-unix", "/tmp/.ICE-unix", "/tmp/dbus-*", "~/.docker/*/docker.sock",
)  # fmt: skip


class OwnFolders(NamedTuple):
    """Folders that an agent may write to besides its scratch folder, and variables that name those of the workspace."""

    writable: list[str]
    variables: dict[str, str]


def inherited_variables() -> dict[str, str]:
    """The environment's variables that an agent's program gets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_WITHHELD)}


def own_folders(name: str, options: AgentOptions, workspace: Path, variables: Mapping[str, str]) -> OwnFolders:
    """The folders that the agent may write to, and variables that name those of the workspace.

    What a person's own use of the agent has made in the home stays in use, with its login. Where there is nothing
    of a kind (settings, cache, data, state), it lies in ``.kernellab/agents/NAME`` of the workspace and is kept for
    the next turn. Folders that ``writes`` names are made.
    """
    home = Path(variables.get("HOME") or Path.home())
    folders, moved = [home / f".{name}"], dict[str, str]()
    for variable, usual in _USUAL_FOLDERS.items():
        theirs = Path(variables.get(variable) or home / usual.in_home) / name
        if not theirs.exists() and variable not in options.env and not options.writes:
            moved[variable] = str(workspace / ".kernellab" / "agents" / name / usual.in_workspace)
            theirs = Path(moved[variable])
            theirs.mkdir(parents=True, exist_ok=True)
            # whatever modes it gives its files, other users of the machine do not get at them
            theirs.parent.chmod(0o700)
        folders.append(theirs)
    if options.writes:
        # relative ones are of the home, as the usual ones are
        folders = [home / Path(path).expanduser() for path in options.writes]
    # below another one the agent could put a link that the next turn would follow
    folders = [folder for folder in folders if not set(folder.parents) & set(folders)]
    if options.writes:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
    return OwnFolders([str(folder) for folder in folders if folder.exists()], moved)


def commanding_places() -> list[str]:
    """Folders and sockets by which the agent could command the notebook, a Jupyter server or the person's programs."""
    from jupyter_core.paths import jupyter_config_dir, jupyter_runtime_dir

    # what is not there cannot be hidden, and a server may begin while an agent works
    with contextlib.suppress(OSError):
        os.makedirs(jupyter_runtime_dir(), 0o700, exist_ok=True)
    application = getattr(sys.modules.get("ipykernel.kernelapp"), "IPKernelApp", None)
    kernel = application.instance().abs_connection_file if application and application.initialized() else ""
    variable = os.environ.get
    docker = variable("DOCKER_HOST", "")
    docker = docker.removeprefix("unix://") if docker.startswith("unix://") else ""
    patterns = [*map(os.path.expanduser, _LISTENING), os.path.join(escape(variable("TMUX_TMPDIR") or "/tmp"), "tmux-*")]
    places = [jupyter_runtime_dir(), jupyter_config_dir(), kernel, variable("XDG_RUNTIME_DIR"), docker]
    return list(dict.fromkeys([*filter(None, places), *(path for pattern in patterns for path in glob(pattern))]))


def is_apart(held: str) -> bool:
    """Can an agent that is held so neither read the judge's memory, write its files, nor command the notebook?"""
    return "mnt" in held and "landlock" in held


def holds() -> str:
    """What would hold an agent on this machine, in level words; asked of a short process."""
    told, report = os.pipe()
    with tempfile.TemporaryDirectory() as folder, os.fdopen(told, encoding="utf-8") as words:
        command = [sys.executable, str(CONFINE), str(report), json.dumps([folder]), json.dumps(commanding_places())]
        try:
            subprocess.run(
                [*command, "true"], pass_fds=[report], cwd=folder, capture_output=True, timeout=30, check=False
            )
        finally:
            os.close(report)
        return words.read()
