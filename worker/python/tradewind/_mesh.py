"""The ranks of a group as torch's DeviceMesh. Imports torch."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ._group import FOREVER
from ._native import TradewindError

if TYPE_CHECKING:
    from ._rank import Rank

#: The first torch whose fully_shard (FSDP2) is public.
_OLDEST = (2, 6)
#: Memory of an allocation of this size or more goes back to the system when it is freed: 1 MiB.
_RETURNED_BYTES = 1 << 20
#: `M_MMAP_THRESHOLD` of glibc's malloc.h.
_M_MMAP_THRESHOLD = -3


def mesh_of(rank: Rank) -> DeviceMesh:
    """A mesh of one dimension with all ranks of the group, in their order. They have met, and have torch's names.

    Raises:
        TradewindError: If torch is too old, or has a process group of other ranks already.
    """
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _OLDEST:
        raise TradewindError(
            f"rank.mesh() needs PyTorch 2.6 or newer, whose fully_shard (FSDP2) shards a model, and this is "
            f"{torch.__version__}: update it, or train without sharding"
        )
    size = rank._native.ranks
    device = rank.device
    if device.type == "cpu":
        _return_freed_memory()
    if not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl", timeout=FOREVER)
    if dist.get_world_size() != size:
        raise TradewindError(
            f"torch's process group has {dist.get_world_size()} ranks, and the group {size}: leave "
            "init_process_group to rank.mesh()"
        )
    return init_device_mesh(device.type, (size,), mesh_dim_names=("shard",))


def _return_freed_memory() -> None:
    """Has glibc give large memory back to the system as it is freed.

    FSDP2 gathers and frees a layer after the other. What stays between them, such as activations, keeps glibc from using
    the freed memory again, and a rank would come to hold more than the whole model. glibc raises its own threshold up to 32 MiB
    as memory is freed, unless it is told one. Other allocators are left as they are, and so is a threshold of the user's.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ or "mmap_threshold" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _RETURNED_BYTES)
