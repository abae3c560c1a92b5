"""What an agent's program is refused, tried by programs that confine.py starts."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kernellab.tools import acp_agent

MODES = """
import ctypes, json, os, stat, sys
def tried(what):
    try:
        what()
        return "done"
    except OSError as error:
        return error.strerror
libc = ctypes.CDLL(None, use_errno=True)
def called(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def modes(bits):
    open("f", "w").close()
    with open("f") as file:
        at = {
            "chmod": tried(lambda: os.chmod("f", bits)),
            "fchmod": tried(lambda: os.fchmod(file.fileno(), bits)),
            "fchmodat": tried(lambda: os.chmod("f", bits, dir_fd=os.open(".", os.O_RDONLY))),
            "open": tried(lambda: os.close(os.open(f"made{bits}", os.O_CREAT | os.O_WRONLY, bits))),
            "mknod": tried(lambda: os.mknod(f"node{bits}", bits | stat.S_IFREG)),
        }
    return at
how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
found = {
    "user": modes(0o4755), "group": modes(0o2755), "plain": modes(0o755),
    "openat2": tried(lambda: called(437, -100, b"o2", how, 24)),
    "io_uring": tried(lambda: called(425, 1, ctypes.create_string_buffer(120))),
    "read": tried(lambda: called(257, -100, b"/etc/passwd", 0, 0o6777)),
}
print(json.dumps(found))
"""
LIMITS = """
import json, resource
print(json.dumps([resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC)]))
"""


def confined(folder: Path, code: str) -> tuple[object, str]:
    """What Python code prints as JSON that runs as an agent does, and what holds it."""
    told, report = os.pipe()
    done = subprocess.run(
        [sys.executable, str(acp_agent._CONFINE), str(report), json.dumps([str(folder)]), "[]",
         sys.executable, "-c", code],
        pass_fds=[report], capture_output=True, text=True, timeout=60, cwd=folder,
    )  # fmt: skip
    os.close(report)
    with os.fdopen(told) as words:
        held = words.read()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), held


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls are tried by their numbers of x86-64")
def test_an_agent_makes_no_file_that_runs_as_its_owner(tmp_path: Path) -> None:
    """On the disk its files are the notebook's user's: under root every user of the machine could become root."""
    found, held = confined(tmp_path, MODES)
    if "nnp" not in held:
        pytest.skip("this machine holds nothing of an agent")
    assert isinstance(found, dict)
    for bits in ("user", "group"):
        assert set(found[bits].values()) == {"Operation not permitted"}, found
    assert set(found["plain"].values()) == {"done"} and found["read"] == "done", found
    assert found["openat2"] == "Function not implemented" and found["io_uring"] != "done", found
    assert [p.name for p in tmp_path.iterdir() if p.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)] == []


def test_an_agents_files_and_processes_have_limits(tmp_path: Path) -> None:
    found, held = confined(tmp_path, LIMITS)
    if "nnp" not in held:
        pytest.skip("this machine holds nothing of an agent")
    assert isinstance(found, list)
    assert found[0] == 16 << 30
    if "uid" in held or "user" in held:
        assert 0 < found[1] <= 4096
