"""Each attempt of the table is made by code in a real worker: stopped with the system's own words, or harmless."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernellab.sandbox import run, sandbox, seccomp
from kernellab.target import Backend
from kernellab.verifier.coverage import build
from kernellab.verifier.judge.pool import Pool
from kernellab.verifier.judge.worker_client import Worker

from .attempts import TABLE, Attempt

RUN = """
import json, os
def _{index}():
{body}
try:
    out[{name!r}] = ["got", repr(_{index}())[:200]]
except BaseException as error:
    out[{name!r}] = ["stopped", f"{{type(error).__name__}}: {{error}}"]
"""


class Made:
    """All attempts, made once in one worker, and the level that it ran under."""

    def __init__(self, level: str, found: dict[str, list[str]]) -> None:
        self.level = level
        self.words = set(re.findall("[a-z]+", re.sub(r"\(.*?\)", "", level)))
        self.found = found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    secret = tmp_path_factory.mktemp("user") / "secret.txt"
    secret.write_text("42")
    secret.chmod(0o600)
    shared = Path("/dev/shm") / f"kernellab-test-{os.getpid()}"
    shared.write_text("42")
    shared.chmod(0o600)
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    abstract, named, udp, tcp = (socket.socket(f, k) for f, k in (
        (socket.AF_UNIX, socket.SOCK_STREAM), (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_INET, socket.SOCK_STREAM)))  # fmt: skip
    with abstract, named, udp, tcp:
        abstract.bind(f"\0kernellab-test-{os.getpid()}")
        named.bind(f"{folder}/named")
        os.chmod(f"{folder}/named", 0o700)
        for one in (udp, tcp):
            one.bind(("127.0.0.1", 0))
        for one in (abstract, named, tcp):
            one.listen()
        os.environ["KERNELLAB_TEST_KEY"] = "not for kernels"
        pool = Pool()
        try:
            server = pool.server("cpp", Backend.CPU)
            with (
                pool.worker("cpp", Backend.CPU, "candidate", 1) as other,
                pool.worker("cpp", Backend.CPU, "candidate", 1) as worker,
            ):
                facts = {
                    "judge": os.getpid(), "server": server.process.pid, "client": os.getpid(), "other": other.pid,
                    "other_scratch": other.scratch, "secret": secret, "home": Path.home(), "uid": os.getuid(),
                    "packages": sysconfig.get_paths()["purelib"], "source": Path(sandbox.__file__).parent,
                    "abstract": f"\\0kernellab-test-{os.getpid()}", "path_socket": f"{folder}/named",
                    "udp": udp.getsockname()[1], "tcp": tcp.getsockname()[1], "shm": shared, "tmp": "/tmp",
                }  # fmt: skip
                numbers = {**seccomp.REFUSED, "clone": (56, 220)}
                facts |= {name: pair[platform.machine() != "x86_64"] for name, pair in numbers.items()}
                yield Made(", ".join(worker.sandbox), _make(worker, {k: str(v) for k, v in facts.items()}))
        finally:
            pool.close()
            del os.environ["KERNELLAB_TEST_KEY"]
            shared.unlink()
            sandbox.remove(folder)


def _make(worker: Worker, facts: dict[str, str]) -> dict[str, list[str]]:
    parts = ["out = {}"]
    for index, attempt in enumerate(TABLE):
        code = re.sub(r"\{(\w+)\}", lambda m: facts.get(m[1], m[0]), attempt.code)
        body = "\n".join(f"    {line}" for line in code.splitlines())
        parts.append(RUN.replace("{body}", body).replace("{index}", str(index)).replace("{name!r}", repr(attempt.name))
                     .replace("{{", "{").replace("}}", "}"))  # fmt: skip
    parts.append("import json\nopen(os.environ['TMPDIR'] + '/out', 'w').write(json.dumps(out))")
    parts.append("def kernel(x): return x")
    (worker.scratch / "src" / "kernel.py").write_text("\n".join(parts))
    worker.build({"entry_file": "kernel.py", "entry": "kernel"}, 120)
    found: dict[str, list[str]] = json.loads((worker.scratch / "tmp" / "out").read_text())
    return found


@pytest.mark.parametrize("attempt", TABLE, ids=[a.name.replace(" ", "-") for a in TABLE])
def test_an_attempt_is_stopped_or_harmless(made: Made, attempt: Attempt) -> None:
    how, words = made.found[attempt.name]
    if not attempt.stopped_by:
        assert attempt.harmless and how == "got", words
        return
    if not made.words & {*attempt.stopped_by, "rlimits" if "process" in attempt.stopped_by else ""}:
        pytest.skip(f"this machine gives only {made.level}")
    assert how == "stopped", f"{attempt.name}: {words} under {made.level}"
    assert re.search(r"Errno|PermissionError|ProcessLookupError|FileNotFoundError|not allowed|exceed", words), words


def test_the_level_that_doctor_tells_is_the_one_that_a_worker_has(made: Made) -> None:
    told = set(re.findall("[a-z]+", re.sub(r"\(.*?\)", "", sandbox.sandbox_level())))
    # pytest's temporary folder may be closed to other users where the judge's own is open
    assert told - {"uid"} == made.words - {"uid"}


def test_each_missing_part_has_a_sentence_and_a_remedy() -> None:
    everything = "pid+ipc+net+mnt, uid, user, landlock-7, seccomp, nnp, rlimits"
    assert sandbox.missing(everything) == []
    assert {p.word for p in sandbox.missing("process")} == {p.word for p in sandbox.PARTS}
    assert [p.word for p in sandbox.missing("pid+ipc+net+mnt+user (shared /proc), landlock-7, nnp, rlimits")] == [
        "mnt", "seccomp",
    ]  # fmt: skip
    assert all(p.without and p.remedy for p in sandbox.PARTS)


def test_what_keeps_a_users_files_is_what_counts_as_a_sandbox() -> None:
    assert sandbox.contains("landlock-3, nnp, rlimits") and sandbox.contains("pid, uid, rlimits")
    assert not sandbox.contains("process") and not sandbox.contains("pid+ipc+net+mnt+user, seccomp, nnp, rlimits")


def test_a_folder_is_removed_whatever_a_worker_made_of_it(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    closed = deep / "closed"
    closed.mkdir()
    (closed / "file").write_text("x")
    closed.chmod(0)
    start = os.getcwd()
    os.chdir(deep)
    try:
        for _ in range(2000):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(start)
    sandbox.remove(str(deep))
    assert not deep.exists()


@pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is not on PATH")
@pytest.mark.parametrize("is_script", [False, True])
def test_ninja_runs_from_any_folder_on_the_path(tmp_path: Path, is_script: bool) -> None:
    tool = tmp_path / "bin" / "ninja"
    tool.parent.mkdir()
    (tmp_path / "bin" / "other").write_text("42")
    if is_script:  # as older wheels of ninja install it
        other = tmp_path / "env"
        venv.create(other, symlinks=True)
        tool.write_text(f"#!{other}/bin/python\nimport sys\nprint(sys.prefix)\n")
        tool.chmod(0o755)
    else:
        shutil.copy(os.path.realpath(shutil.which("ninja") or ""), tool)
    folder = tmp_path / "work"
    folder.mkdir()
    for command, is_open in ((["ninja", "--version"], True), (["/bin/cat", f"{tool.parent}/other"], False)):
        ran = subprocess.run(
            run.confined(str(folder), command), env={**os.environ, "PATH": str(tool.parent)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert (ran.returncode == 0) is is_open, ran.stdout


def test_a_compiler_that_cxx_alone_names_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lie in a folder that nothing else opens, such as /opt/gcc."""
    tool = tmp_path / "gcc" / "bin" / "g++"
    tool.parent.mkdir(parents=True)
    shutil.copy("/bin/true", tool)
    folder = tmp_path / "work"
    folder.mkdir()
    command = run.confined(str(folder), [str(tool)])
    for cxx, is_open in ((str(tool), True), ("c++", False)):
        monkeypatch.setenv("CXX", cxx)
        ran = subprocess.run(command, env=run.environment(str(folder)), capture_output=True, text=True)
        assert (ran.returncode == 0) is is_open, ran.stderr


def test_packages_that_only_pythonpath_names_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package's headers, as a compiler reads them, where the command's own environment does not name the folder."""
    header, private, folder = tmp_path / "site/library/api.h", tmp_path / "private/api.h", tmp_path / "work"
    (tmp_path / "site/library-1.0.dist-info").mkdir(parents=True)
    for file in (header, private):
        file.parent.mkdir()
        file.write_text("int x;\n")
    folder.mkdir()
    for place in (tmp_path / "site", private.parent):
        monkeypatch.syspath_prepend(str(place))
    for file, is_open in ((header, True), (private, False)):
        command = run.confined(str(folder), ["/bin/cat", str(file)])
        ran = subprocess.run(command, env=run.environment(str(folder)), capture_output=True, text=True)
        assert (ran.returncode == 0) is is_open, ran.stderr
    assert f"{os.path.realpath(tmp_path / 'site')}/.*" in build._others()
