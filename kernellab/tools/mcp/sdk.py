"""A server of the installed MCP SDK, whose versions 1.24 and 2.x differ in how handlers are registered and in the names
of Python fields: what is sent is made as the wire has it, and checked by whichever is installed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

from kernellab.content import installed
from kernellab.errors import KernellabError
from kernellab.tools.mcp.handlers import Handlers, Report, Wire
from kernellab.tools.records import ToolError

INSTRUCTIONS = (
    "kernellab designs, checks and judges compute kernels. Work in this order: describe_task, read_document "
    "language/overview.md, write a sketch, check_sketch, gate_sketch, cost_sketch, then lower_sketch or code by hand, "
    "verify_source, lens. The verdict comes from a judge in another process: a kernel that is fast only when it is "
    "watched fails."
)


def make_server(handlers: Handlers) -> Any:
    """A server of the installed SDK.

    Raises:
        ToolError: the SDK is not installed, or too old.
    """
    installed_version = installed("mcp")
    numbers = tuple(int(part) for part in installed_version.split(".")[:2] if part.isdigit())
    if numbers < (1, 24):
        state = f"mcp {installed_version} is too old" if installed_version else "The package mcp is not installed"
        raise ToolError(f"{state}; `kernellab mcp` needs 1.24 or newer.", "pip install 'kernellab[agents]'")
    return (_server_of_2 if numbers >= (2, 0) else _server_of_1)(_answers(handlers))


def _answers(handlers: Handlers) -> dict[str, Callable[[Any, Report], Awaitable[Wire]]]:
    """What is answered to each kind of request, by its name in the SDK."""
    return {
        "list_tools": lambda params, report: handlers.list_tools(),
        "call_tool": lambda params, report: handlers.call_tool(params.name, params.arguments or {}, report),
        "list_resources": lambda params, report: handlers.list_resources(),
        "list_resource_templates": lambda params, report: handlers.list_resource_templates(),
        "read_resource": lambda params, report: handlers.read_resource(str(params.uri)),
        "list_prompts": lambda params, report: handlers.list_prompts(),
        "get_prompt": lambda params, report: handlers.get_prompt(params.name, params.arguments or {}),
    }


def _camel(kind: str) -> str:
    return kind.title().replace("_", "")


def _server_of_2(answers: Mapping[str, Callable[[Any, Report], Awaitable[Wire]]]) -> Any:
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.shared.exceptions import MCPError

    def handler(kind: str) -> Any:
        async def handle(ctx: Any, params: Any) -> Any:
            async def report(steps: float, sentence: str) -> None:
                await ctx.session.report_progress(steps, None, sentence)

            try:
                answer = await answers[kind](params, report)
            except KernellabError as error:  # any other exception is logged with its traceback
                raise MCPError(types.INVALID_PARAMS, str(error)) from None
            return getattr(types, f"{_camel(kind)}Result").model_validate(answer)

        return handle

    callbacks: Any = {f"on_{kind}": handler(kind) for kind in answers}
    return Server("kernellab", version=version("kernellab"), instructions=INSTRUCTIONS, **callbacks)


def _server_of_1(answers: Mapping[str, Callable[[Any, Report], Awaitable[Wire]]]) -> Any:
    from importlib import import_module

    from mcp.server.lowlevel import Server

    # its Python types have other names than those of 2.x, by which this is checked
    types: Any = import_module("mcp.types")
    server: Any = Server("kernellab", version=version("kernellab"), instructions=INSTRUCTIONS)

    async def report(steps: float, sentence: str) -> None:
        context = server.request_context
        token = context.meta.progressToken if context.meta else None
        if token is not None:
            await context.session.send_progress_notification(token, steps, None, sentence)

    def register(kind: str) -> None:
        async def handle(message: Any) -> Any:
            answer = await answers[kind](message.params, report)
            return types.ServerResult(getattr(types, f"{_camel(kind)}Result").model_validate(answer))

        server.request_handlers[getattr(types, f"{_camel(kind)}Request")] = handle

    for kind in answers:
        register(kind)
    return server
