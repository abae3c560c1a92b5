"""A user's words for a verification, in a terminal or a cell, as options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import ValidationError

from kernellab.dsls.sources import read_source
from kernellab.errors import KernellabError, SessionError, refused
from kernellab.options.design import LEVEL_WORDS, LEVELS, VerificationOptions
from kernellab.options.fidelity import FRAMEWORK, STRICT
from kernellab.records import Source
from kernellab.verifier.protocol.options import Baseline, Fidelity, VerifyOptions


def verify_options(asked: VerificationOptions = VerificationOptions(), dsl: str | None = None) -> VerifyOptions:
    """The verifier's options. A baseline that is not a known word is a kernel's file or folder, in ``dsl`` if that is
    not detected; if there are only such baselines, eager is measured too.

    Raises:
        KernellabError: names the wrong option.
    """
    if asked.level not in LEVELS:
        choices = ", ".join((*LEVELS, *LEVEL_WORDS))
        raise KernellabError(f"--level {asked.level!r} is not a level.", f"Choose one of {choices}.")
    fields: dict[str, Any] = asked.model_dump(include={"level", "repeat", "allow_library", "sanitize"})
    fields["precision"] = fidelity(asked.precision)
    fields["baselines"] = tuple(dict.fromkeys(n for n in asked.baseline if n in get_args(Baseline))) or ("eager",)
    rivals = _rivals(asked.baseline, dsl)
    if rivals:
        fields["rivals"] = rivals
    try:
        return VerifyOptions.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = "--" + str(first["loc"][0]).replace("_", "-").removesuffix("s")
        raise KernellabError(f"{where} {first['input']!r} cannot be used.", f"{refused(first)}.") from None


def for_design(asked: VerificationOptions) -> dict[str, Any]:
    """The verifier options of a design that differ from the defaults, by name.

    Raises:
        KernellabError: names the wrong option; SessionError: a level that runs no kernel.
    """
    if asked.level == LEVELS[0]:
        raise SessionError("--level T0 runs no kernel, so it verifies none.", "Choose T1, T2, T3 or T4.")
    return verify_options(asked).model_dump(mode="json", exclude_defaults=True)


def fidelity(word: str | None) -> Fidelity:
    """The value of ``--precision``. Raises KernellabError for words other than strict and framework."""
    if word in (None, "", STRICT, FRAMEWORK):
        return cast(Fidelity, word or "")
    raise KernellabError(
        f"--precision {word!r} is not known.",
        "Choose strict (right to 1e-4 compared with float32 eager) or framework (what torch's flags allow).",
    )


def plain_dsl() -> str:
    """The DSL assumed for a source that shows none (plain PyTorch): the one that this machine designs in."""
    from kernellab.dsls.triton import has_cuda_device

    return "triton" if has_cuda_device() else "cpp"


def _rivals(names: Sequence[str], dsl: str | None) -> dict[str, Source]:
    """The baselines that are files, by the name of their figures."""
    choices = get_args(Baseline)
    rivals: dict[str, Source] = {}
    for name in names:
        if name in choices:
            continue
        path = Path(name)
        if not path.exists():
            remedy = f"Give {', '.join(choices)}, or the file of a kernel."
            raise KernellabError(f"--baseline {name}: there is no such baseline or file.", remedy)
        rivals[path.name if path.name not in (*rivals, "") else name] = read_source(path, dsl, plain_dsl())
    return rivals
