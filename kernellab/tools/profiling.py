"""The tool of whole models: where a model's time goes, and what kernels could gain."""

from __future__ import annotations

from pydantic import Field

from kernellab.errors import ProfileError
from kernellab.tools.context import Context
from kernellab.tools.records import Page, Request, Result, Rounded, ToolError
from kernellab.tools.results.fitting import page_of
from kernellab.tools.tool import tool


class ProfileRequest(Request):
    model: str = Field(description="A Python file below the workspace: `model` or Model, and inputs or get_inputs.")
    train: bool = Field(default=False, description="Profile a training step.")
    device: str = Field(default="", description="cpu or cuda; empty: a GPU where there is one.")
    rows: int = Field(15, ge=1, le=40)


class ProfileResult(Result):
    step_ms: Rounded
    at_bound_ms: Rounded = Field(description="A step with all regions at their bounds.")
    regions: Page = Field(description="A line for each, ranked by what a kernel could gain.")


@tool()
def profile_model(context: Context, request: ProfileRequest) -> ProfileResult:
    """Profile a model and rank its regions by what a kernel could gain, each next to its speed-of-light bound."""
    from kernellab.model_integration import profile
    from kernellab.model_integration.display import head, table
    from kernellab.model_integration.ranked import forget

    text = context.read(request.model)
    if not isinstance(text, str):
        raise ToolError(f"There is no model file {request.model!r}.", "Name a Python file of the workspace.")
    # with a line's end it is a text to all that takes a text or a path
    try:
        found = profile(f"{text}\n", train=request.train, device=request.device or None)
    except ProfileError as error:
        raise ToolError(f"{request.model}: {error.message}", error.remedy) from None
    result = ProfileResult(
        summary=" ".join(head(found)),
        next="Write the first region as a task file, and describe_task.", step_ms=found.step_ms,
        at_bound_ms=found.predict(reach=1.0), regions=page_of(table(found, request.rows)),
    )  # fmt: skip
    forget(found)
    return result
