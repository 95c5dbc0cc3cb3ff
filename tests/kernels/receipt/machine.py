"""Where kernels run and their operands lie: the memory of a GPU, or host memory where a stand-in for the driver runs kernels on the CPU."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import torch
from numpy.typing import NDArray

#: Bytes before and after an output that no kernel may touch, and what lies there. 256 keeps the alignment that torch gives.
_GUARD, _PATTERN = 256, 0xA5


@attrs.frozen
class Machine:
    """`memory` is "cuda:0" or, for the stand-in, "cpu"; `sm` is the compute capability as a number."""

    memory: torch.device
    device_index: int
    sm: int

    @property
    def is_gpu(self) -> bool:
        return self.memory.type == "cuda"

    @property
    def stream(self) -> int:
        """The handle of the stream to launch on: torch's current one, or the default one."""
        return int(torch.cuda.current_stream(self.memory).cuda_stream) if self.is_gpu else 0

    def synchronize(self) -> None:
        """Wait for what was launched."""
        if self.is_gpu:
            torch.cuda.synchronize(self.memory)

    def put(self, array: NDArray[Any]) -> torch.Tensor:
        """Return a tensor of the same elements; the 16-bit integers that hold BF16 become torch's BF16."""
        if array.dtype == np.uint16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(self.memory)
        return torch.from_numpy(array).to(self.memory)


def take(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's elements; BF16 as the 16-bit integers that hold it."""
    host = tensor.detach().cpu().contiguous()
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(np.uint16)
    return host.numpy()


class GuardedOutput:
    """An output between two guards, filled with a NaN: what a kernel leaves out shows, and what it overruns."""

    def __init__(self, machine: Machine, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        count = int(np.prod(shape))
        self._bytes = torch.full((count * dtype.itemsize + 2 * _GUARD,), 0xFF, dtype=torch.uint8, device=machine.memory)
        self._bytes[:_GUARD] = _PATTERN
        self._bytes[-_GUARD:] = _PATTERN
        self.tensor = self._bytes[_GUARD:-_GUARD].view(dtype).view(shape)

    def guards_hold(self) -> bool:
        """Say whether nothing was written before or after the output."""
        return bool((self._bytes[:_GUARD] == _PATTERN).all() and (self._bytes[-_GUARD:] == _PATTERN).all())
