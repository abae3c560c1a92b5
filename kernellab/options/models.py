"""The options of a model: which one, where it is, and how it is asked; for all roles, and for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Union

from pydantic import BaseModel, ConfigDict, Field

from kernellab.options.entry import Option, Surface

_CONFIG = Option(on=Surface.CONFIG | Surface.FILE)


class ModelOptions(BaseModel):
    """One model's settings; None takes the common one."""

    # a key in the wrong place must not come back in the error about it
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)
    OPTION: ClassVar[Option] = Option(on=Surface.FILE)

    model: Annotated[Union[str, None], _CONFIG] = Field(
        default=None, description="the model that a role `model` asks, by the endpoint's name for it"
    )
    base_url: Annotated[Union[str, None], _CONFIG] = Field(
        default=None, description="address of an OpenAI-compatible endpoint: http://localhost:8000/v1"
    )
    key_env: Annotated[Union[str, None], _CONFIG] = Field(
        default=None, description="the environment variable that holds the endpoint's key; never the key"
    )
    key_file: Union[Path, None] = Field(default=None, description="the file that holds the endpoint's key")
    temperature: Annotated[Union[float, None], Option(on=Surface.CONFIG | Surface.FILE, default="the model's own")] = (
        Field(default=None, ge=0, le=2, description="sampling temperature")
    )
    max_tokens: Union[int, None] = Field(default=None, ge=1, description="tokens of a reply")
    top_p: Union[float, None] = Field(
        default=None, gt=0, le=1, description="share of the probability that is sampled from"
    )
    reasoning_effort: Union[str, None] = Field(
        default=None, description="how long a model that reasons may do so, in the server's word: low, medium, high"
    )
    prompt_tokens: Union[int, None] = Field(
        default=None, ge=1000, description="tokens of the longest prompt (16000; 8000 for the Conductor)"
    )
    extra_body: Union[dict[str, Any], None] = Field(
        default=None, description="further entries of each request's body, as the server takes them"
    )
    headers: Union[dict[str, str], None] = Field(
        default=None, description="further headers of each request; never a key, which key_env names"
    )
    organisation: Union[str, None] = Field(default=None, description="sent as OpenAI-Organization")
    seed: Union[int, None] = Field(
        default=None, description="sent with each request, so that a server that honours it answers alike"
    )
