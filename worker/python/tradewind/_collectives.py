"""The collectives of a sharded model on CPUs, in the place of those that FSDP2 asks Gloo for.

torch's Gloo gathers into memory of its own, fresh each time, and copies from there; it reduces from a copy. Here ranks
send each other what they need, straight from where it is to where it belongs, and what FSDP2 asks memory for is used again.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import math
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

#: Buffers that wait to be used again, at most: FSDP2 has two gathered parts at once, or a gathered one and a gradient
#: that is sent, beside which others are received.
_KEPT_MAX = 3
#: Smaller memory is the allocator's, bytes.
_KEPT_BYTES_MIN = 1 << 20
#: Tags of messages in the group of the mesh, above those that a script will take.
_GATHER, _SCATTER = 1 << 23, (1 << 23) + 1


def send_directly(model: nn.Module, memory: Reused) -> None:
    """From now on the parts of a model on the CPU that `fully_shard` was called for do so.

    Older versions of torch have no way to say it: there Gloo's own are used.
    """
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule) and hasattr(module, "set_custom_reduce_scatter"):
            comms: Any = module
            comms.set_custom_all_gather(AllGather(memory))
            comms.set_custom_reduce_scatter(ReduceScatter(memory))


class Reused:
    """Memory that is kept when no tensor lies there any more."""

    def __init__(self) -> None:
        # A heap of (bytes, number, memory). Tensors may end in any thread, also while another is made: the functions of
        # heapq are one act each.
        self._kept: list[tuple[int, int, Tensor]] = []
        self._numbers = itertools.count()

    def tensor(self, elements: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """An uninitialised vector, in the smallest memory that fits."""
        length = elements * dtype.itemsize
        if length < _KEPT_BYTES_MIN:
            return torch.empty(elements, dtype=dtype, device="cpu")
        memory = self._fitting(length)
        if memory is None:
            memory = torch.empty(length, dtype=torch.uint8, device="cpu")
        # Every tensor that lies there, views of views as well, keeps this alive, and nobody else does.
        lent = (ctypes.c_uint8 * length).from_address(memory.data_ptr())
        weakref.finalize(lent, self._keep, memory).atexit = False
        return torch.frombuffer(lent, dtype=dtype)

    def _fitting(self, length: int) -> Tensor | None:
        small = []
        try:
            while True:
                kept = heapq.heappop(self._kept)
                if kept[0] >= length:
                    return kept[2]
                small.append(kept)
        except IndexError:
            return None
        finally:
            for kept in small:
                heapq.heappush(self._kept, kept)

    def _keep(self, memory: Tensor) -> None:
        heapq.heappush(self._kept, (memory.numel(), next(self._numbers), memory))
        while len(self._kept) > _KEPT_MAX:
            # The smallest one.
            heapq.heappop(self._kept)


class AllGather:
    """Each rank has a part of a vector, and then all of it: `torch.distributed.fsdp`'s `AllGather`."""

    def __init__(self, memory: Reused) -> None:
        self._memory = memory

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """What is gathered into."""
        return self._memory.tensor(math.prod(size), dtype).view(size)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> None:
        """Has ended on return, also where that need not be."""
        parts = output_tensor.chunk(group.size())
        own = group.rank()
        if parts[own].data_ptr() != input_tensor.data_ptr():
            parts[own].copy_(input_tensor)
        others = [rank for rank in range(group.size()) if rank != own]
        works = [group.recv([parts[rank]], rank, _GATHER) for rank in others]
        works += [group.send([parts[own]], rank, _GATHER) for rank in others]
        for work in works:
            work.wait()


class ReduceScatter:
    """Each rank has a vector, and then its part of the sum or mean: `torch.distributed.fsdp`'s `ReduceScatter`."""

    def __init__(self, memory: Reused) -> None:
        self._memory = memory
        self._input = 0

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """What is reduced, then what comes of it, in turn. The latter is a gradient, which stays."""
        elements, self._input = math.prod(size), 0 if self._input else math.prod(size)
        if self._input:
            return self._memory.tensor(elements, dtype).view(size)
        return torch.empty(size, dtype=dtype, device="cpu")

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any = dist.ReduceOp.SUM,
        async_op: bool = False,
    ) -> None:
        """Has ended on return, also where that need not be."""
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            dist.reduce_scatter_tensor(output_tensor, input_tensor, op, group)
            return
        parts = input_tensor.chunk(group.size())
        own = group.rank()
        others = [rank for rank in range(group.size()) if rank != own]
        room = self._memory.tensor(len(others) * parts[own].numel(), input_tensor.dtype).chunk(len(others))
        works = [group.recv([part], rank, _SCATTER) for part, rank in zip(room, others)]
        works += [group.send([parts[rank]], rank, _SCATTER) for rank in others]
        for work in works:
            work.wait()
        # In the order of ranks, so that bits repeat.
        addends = [*room[:own], parts[own], *room[own:]]
        torch.add(addends[0], addends[1], out=output_tensor)
        for part in addends[2:]:
            output_tensor += part
        if op == dist.ReduceOp.AVG:
            output_tensor /= group.size()
