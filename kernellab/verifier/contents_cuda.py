"""Contents of timed calls on a CUDA device, made there: nobody has seen them before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernellab.verifier.contents import Contents
from kernellab.verifier.rules import TIMING

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: elements of a tensor that its support is read from
_SEEN = 1 << 22


class DeviceContents(Contents):
    """As :class:`~kernellab.verifier.contents.Contents`, made on the device: each free tensor is turned by a random
    number of places and shrunk by a random factor, a random sixteenth of it by another and from another place."""

    def _fresh(self, base: Tensor, key: tuple[int, int]) -> Tensor:
        import torch

        flat = base.reshape(-1)
        count = flat.numel()
        if count < 2:
            return base * self.random.uniform(0.5, 1.5)
        new = self._buffers.get(key)
        if new is None:
            new = self._buffers[key] = torch.empty_like(flat)
        turn, factor = self.random.randrange(1, count), self.random.uniform(0.9, 1.0)
        torch.mul(flat[turn:], factor, out=new[: count - turn])
        torch.mul(flat[:turn], factor, out=new[count - turn :])
        part = max(1, count // TIMING.fresh)
        start, source = (self.random.randrange(0, count - part + 1) for _ in range(2))
        torch.mul(flat[source : source + part], self.random.uniform(0.9, 1.0), out=new[start : start + part])
        return new.reshape(base.shape)


def part(value: Any) -> Any:
    """Enough of a tensor to tell what its values may be."""
    if not hasattr(value, "numel") or value.numel() <= _SEEN or not value.dim():
        return value
    rows = max(1, _SEEN * value.shape[0] // value.numel())
    return value[:rows]
