"""``-m kernellab.lens.counters.run FOLDER``: calls the kernel of FOLDER/request.json on the task's inputs, first
outside and then inside the range that ncu profiles. It runs with the person's rights, as ncu needs."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    import torch

    from kernellab.task.module import TaskModule
    from kernellab.verifier.worker.build import candidate

    folder = Path(sys.argv[1])
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    module = TaskModule(request["name"], request["text"])
    inputs = [value.cuda() if isinstance(value, torch.Tensor) else value for value in module.sample()]
    built = candidate({"root": str(folder / "source"), **request["source"]}, "cuda")
    inputs = inputs[: built.taken]
    for _ in range(2):  # the first call compiles and autotunes
        built.function(*inputs)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()  # type: ignore[no-untyped-call]
    built.function(*inputs)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
