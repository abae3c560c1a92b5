"""The environment variables of a worker: a judge's for baselines and devices, a user's where a kernel could tell."""

from __future__ import annotations

import os
import pwd
import secrets
from collections.abc import Mapping
from pathlib import Path

from kernellab.sandbox.environment import passed

#: roles whose environment resembles a user's
USERS = ("candidate", "ordinary")
#: usual variables of a user's shells and notebooks
_SHELLS = {
    "DISPLAY": ":0", "EDITOR": "vi", "LANG": "en_US.UTF-8", "SHELL": "/bin/bash", "TERM": "xterm-256color",
    "XDG_SESSION_TYPE": "x11",
}  # fmt: skip


def users_variables(role: str, folder: Path, threads: int, caches: Mapping[str, str]) -> dict[str, str]:
    """The variables of a worker that resembles a user's shell; build products go to the home folder's cache.

    Args:
        folder: the scratch folder as the worker sees it.
        caches: the DSL's variables.
    """
    home, speed = str(folder / "home"), {}
    if role == "candidate":
        speed = {"OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    places = {"HOME": home, "PWD": home, "TMPDIR": str(folder / "tmp")}
    return {**passed(), **_SHELLS, **_drawn(), **places, **speed, **caches}


def judges_variables(scratch: Path, threads: int) -> dict[str, str]:
    """The variables of any other worker: all that it writes stays in its scratch folder."""
    at = {name: str(scratch / name) for name in ("tmp", "home", "cache")}
    return {
        "HOME": at["home"], "TMPDIR": at["tmp"], "XDG_CACHE_HOME": at["cache"],
        "TVM_FFI_CACHE_DIR": f"{at['cache']}/tvm-ffi", "TRITON_CACHE_DIR": f"{at['cache']}/triton",
        "TRITON_HOME": at["home"], "TORCHINDUCTOR_CACHE_DIR": f"{at['cache']}/inductor",
        "TORCH_EXTENSIONS_DIR": f"{at['cache']}/extensions", "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OMP_NUM_THREADS": str(threads),
        # as in the user's own programs, so that these names do not reveal to a kernel where it runs
        **dict.fromkeys(("USER", "LOGNAME"), _user()),
    }  # fmt: skip


def _user() -> str:
    """The user's name; getpwuid raises KeyError if the process's user number has no account."""
    try:
        return os.environ.get("USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "user"


def _drawn() -> dict[str, str]:
    """Variables whose values differ between users: a constant would distinguish this process from theirs."""
    below = secrets.randbelow
    addresses = [f"10.{below(256)}.{below(256)}.{1 + below(254)}" for _ in range(2)]
    return {
        **dict.fromkeys(("USER", "LOGNAME"), _user()),
        "JPY_PARENT_PID": str(300 + below(60000)), "XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}",
        "SSH_CONNECTION": f"{addresses[0]} {32768 + below(28000)} {addresses[1]} 22",
    }  # fmt: skip
