"""The wheel carries the content folders as ``kernellab/_content/``; an editable install reads them where they are."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CONTENT = ("knowledge", "notebooks")


class ContentHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        for folder in CONTENT:
            build_data["force_include"][folder] = f"kernellab/_content/{folder}"
