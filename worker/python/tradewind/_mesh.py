"""The ranks of a group as torch's DeviceMesh. Imports torch."""

from __future__ import annotations

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
