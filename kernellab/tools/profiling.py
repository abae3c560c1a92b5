"""The tool of whole models: where a model's time goes, and what kernels could gain."""

from __future__ import annotations

from pydantic import BaseModel, Field

from kernellab.tools.tool import Context, Request, Result, tool


class ProfileRequest(Request):
    model: str = Field(description="A Python file below the workspace: `model` or Model, and inputs or get_inputs.")
    train: bool = Field(default=False, description="Profile a training step.")
    device: str = Field(default="", description="cpu or cuda; empty: a GPU where there is one.")
    rows: int = Field(15, ge=1, le=40)


class Region(BaseModel):
    number: int
    operations: str
    where: str
    shapes: str
    places: int
    time_ms: float
    bound_ms: float | None
    gain_ms: float


class ProfileResult(Result):
    step_ms: float
    at_bound_ms: float = Field(description="A step with all regions at their bounds.")
    regions: list[Region] = Field(description="Ranked by what a kernel could gain.")


@tool()
def profile_model(context: Context, request: ProfileRequest) -> ProfileResult:
    """Profile a model and rank its regions by what a kernel could gain, each beside its speed-of-light bound."""
    from kernellab.model_integration import profile
    from kernellab.model_integration.display import as_dict, head

    found = profile(context.inside(request.model), train=request.train, device=request.device or None)
    plain = as_dict(found)
    rows = [{**row, "operations": row["operations"][:120]} for row in plain["rows"][: request.rows]]
    return ProfileResult(
        summary=" ".join(head(found)),
        next="Write the first region as a task file, and describe_task.",
        step_ms=plain["step_ms"],
        at_bound_ms=plain["at_bound_ms"],
        regions=[Region.model_validate(row) for row in rows],
    )
