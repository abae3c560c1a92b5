"""What the MCP server answers, as the wire has it: tools with schemas, resources, and the roles' briefs as prompts.

Documents, and each session's task, sketch, source and verdict are resources. Progress is sent while a kernel is judged;
a cancelled request ends the judge. Nothing here is of a version of the SDK.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import quote, unquote

from kernellab.dsls.spec import whose
from kernellab.errors import KernellabError
from kernellab.tools.context import Context
from kernellab.tools.desk import Desk
from kernellab.tools.documents import documents, text_of
from kernellab.tools.records import ToolError
from kernellab.tools.results.verdict import verdict_result
from kernellab.tools.tool import Tool, call, failed, tools
from kernellab.verifier.protocol.sanitize import shown

Wire = dict[str, Any]
#: reports progress: the number of steps so far, and a sentence
Report = Callable[[float, str], Coroutine[Any, Any, None]]
_DOCUMENT = "kernellab://documents/"
_SESSION = "kernellab://sessions/"
#: parts of a session that are resources
_PARTS = ("task", "sketch", "source", "verdict")
_PLAIN = "text/plain"
_ROLES = ("designer", "coder", "conductor")


class Handlers:
    """What the server answers, as the wire has it; nothing of an SDK's version."""

    def __init__(self, context: Context, desk: Desk | None = None) -> None:
        """With a ``desk`` an agent's turn is served: its tools, each call on its record."""
        self.context, self.desk = context, desk

    async def list_tools(self) -> Wire:
        return {"tools": [_described(one) for one in (self.desk.tools if self.desk else tools()).values()]}

    async def call_tool(self, name: str, arguments: Mapping[str, Any], report: Report) -> Wire:
        """The result with its text; what a tool cannot do is a result that says so, with the remedy."""
        import anyio

        loop = asyncio.get_running_loop()
        cancel = threading.Event()
        steps = 0

        def progress(sentence: str) -> None:
            nonlocal steps
            steps += 1
            if not cancel.is_set():
                # from whichever thread works, which does not wait for the client
                asyncio.run_coroutine_threadsafe(report(float(steps), sentence), loop)

        context, work = self.context.of_call(progress, cancel), self.desk.call if self.desk else call
        news = self.desk.news if self.desk else str
        try:
            result = await anyio.to_thread.run_sync(lambda: work(name, arguments, context), abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            cancel.set()
            raise
        except KernellabError as error:
            words = "\n-> ".join(filter(None, (error.message, error.remedy)))
            return {"content": _texts(words, news()), "isError": True}
        except Exception as error:  # the server outlives a fault of one tool
            return {"content": [_text(failed(name, error))], "isError": True}
        texts = _texts(result.model_dump_json(), news())
        return {"content": texts, "structuredContent": result.model_dump(mode="json"), "isError": False}

    async def list_resources(self) -> Wire:
        from kernellab.session import sessions

        if self.desk:
            return {"resources": []}
        folder = self.context.workspace
        rows = [
            {"uri": _DOCUMENT + quote(name), "name": shown(name), "mimeType": _mime(name)}
            | ({"description": told} if (told := whose(path, folder)) else {})
            for name, path in documents(folder).items()
        ]
        for session in sessions(self.context.workspace)[-20:]:
            rows += [
                {"uri": f"{_SESSION}{session}/{part}", "name": f"{session}: {part}", "mimeType": _PLAIN}
                for part in _PARTS
            ]
        return {"resources": rows}

    async def list_resource_templates(self) -> Wire:
        """None: each resource is listed. A client that asks all lists at its start gets an answer."""
        return {"resourceTemplates": []}

    async def read_resource(self, uri: str) -> Wire:
        """Raises ToolError: there is no such resource."""
        if self.desk:
            raise ToolError("A turn has no resources.", "read_document gives the documents.")
        if uri.startswith(_DOCUMENT):
            name = unquote(uri.removeprefix(_DOCUMENT))
            path = documents(self.context.workspace).get(name)
            if path is not None:
                return _contents(uri, text_of(name, path), _mime(uri))
        if uri.startswith(_SESSION):
            name, _, part = uri.removeprefix(_SESSION).rpartition("/")
            if part not in _PARTS:
                raise ToolError(f"{uri!r} names no part of a session.", f"{_SESSION}NAME/{'|'.join(_PARTS)}")
            text = _of_session(self.context, name, part)
            if text:
                return _contents(uri, text)
        raise ToolError(f"There is no resource {uri!r}.", "resources/list names them all.")

    async def list_prompts(self) -> Wire:
        if self.desk:
            return {"prompts": []}
        argument = {"name": "session", "description": "A session's name.", "required": True}
        return {
            "prompts": [
                {"name": role, "description": f"The brief of the {role}'s next turn.", "arguments": [argument]}
                for role in _ROLES
            ]
        }

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> Wire:
        """Raises ToolError: there is no such role, or no session is named. SessionError: it has nothing to work on."""
        import anyio

        if self.desk or name not in _ROLES or "session" not in arguments:
            raise ToolError(f"The prompt {name!r} needs a role and a session.", f"Roles: {', '.join(_ROLES)}.")
        session = self.context.session(arguments["session"])
        brief = await anyio.to_thread.run_sync(lambda: session.brief(name))
        return {"messages": [{"role": "user", "content": _text(brief)}]}


def _described(one: Tool) -> Wire:
    return {
        "name": one.name,
        "description": one.description,
        "inputSchema": one.request.model_json_schema(),
        "outputSchema": one.result.model_json_schema(),
        # by these a client decides what it asks a person for
        "annotations": {"readOnlyHint": not one.changes, "destructiveHint": False, "openWorldHint": one.opens},
    }


def _texts(*texts: str) -> list[Wire]:
    return [_text(text) for text in texts if text]


def _text(text: str) -> Wire:
    return {"type": "text", "text": shown(text)}


def _mime(name: str) -> str:
    """The kind of a document, by its name's end: listed and read alike."""
    return "text/markdown" if name.endswith(".md") else _PLAIN


def _contents(uri: str, text: str, mime: str = _PLAIN) -> Wire:
    return {"contents": [{"uri": uri, "mimeType": mime, "text": shown(text)}]}


def _of_session(context: Context, name: str, part: str) -> str:
    session = context.session(name)
    state = session.state
    candidate = state.candidate()
    if part == "task":
        return state.created.text
    if part == "sketch":
        turn = state.sketch_turn()
        return (turn.sketch or "") if turn else ""
    if part == "source" and candidate is not None:
        return "\n".join(f"==== {file}\n{text}" for file, text in candidate.source.files.items())
    if part == "verdict":
        last = next((turn.verdict for turn in reversed(state.path()) if turn.verdict), None)
        return verdict_result(context.task(name), last).model_dump_json(indent=1) if last else ""
    return ""
