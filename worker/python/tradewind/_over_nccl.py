"""NCCL for a group whose ranks compute on GPUs, beside Gloo."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import PrefixStore, ProcessGroupNCCL, Store

from ._native import TradewindError

if TYPE_CHECKING:
    from collections.abc import Callable

#: How long NCCL may take at least to connect the ranks: with hundreds of them, or a GPU that many share, it takes
#: longer than a lease.
CONNECTS = timedelta(seconds=60)
#: c10d's watchdog would end the process in which it sees an error of NCCL's, or abort what others wait for: the
#: group could not be formed again by those who are left. Here nobody aborts but the group itself, which says so
#: first. Built-in models have the same (worker/csrc/settings.cpp).
_SETTINGS = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_DESYNC_DEBUG": "0",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
}
_DEFAULTS = {
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_FR_BUFFER_SIZE": "0",
}


def connect(
    store: Store,
    prefix: str,
    place: tuple[int, int],
    device: torch.device,
    lease: timedelta,
    forever: timedelta,
    begun: Callable[[Any], None],
) -> None:
    """Connects the ranks of a group; returns when a first sum over them is there.

    Args:
        store: Where the group meets.
        prefix: A name that no other group has there.
        place: This rank's number in the group, and the group's size.
        device: Its GPU.
        lease: Length of a rank's lease.
        forever: What collectives have as their time-out.
        begun: Told of the `ProcessGroupNCCL`, which is to be aborted with the group, before ranks connect.

    Raises:
        TradewindError: If torch is too old.
        RuntimeError: If the ranks do not connect.
    """
    if not hasattr(ProcessGroupNCCL, "eager_connect_single_device") or not hasattr(ProcessGroupNCCL, "abort"):
        raise TradewindError(
            f"groups of several ranks on GPUs need PyTorch 2.6 or newer, and this is {torch.__version__}: take a newer "
            'one, groups of one rank, or compute.device = "cpu"'
        )
    patience = max(lease, CONNECTS)
    os.environ.update(_SETTINGS)
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("TORCH_NCCL_NONBLOCKING_TIMEOUT", str(int(patience.total_seconds())))
    over_nccl: Any = ProcessGroupNCCL
    options = over_nccl.Options()
    options._timeout = forever
    if "TORCH_NCCL_USE_COMM_NONBLOCKING" not in os.environ:
        # A blocking one cannot be aborted while its ranks connect.
        options.config.blocking = 0
    rank, size = place
    nccl = over_nccl(PrefixStore(f"{prefix}/nccl", store), rank, size, options)
    begun(nccl)
    nccl.eager_connect_single_device(device)
    first = torch.ones(1, device=device)
    work = nccl.allreduce([first])
    end = time.monotonic() + patience.total_seconds()
    while not work.is_completed():
        if time.monotonic() > end:
            raise RuntimeError(f"the peers were not all there after {patience.total_seconds():.0f} s")
        time.sleep(0.001)
    work.wait()
    if float(first) != size:
        raise RuntimeError(f"a sum over {size} ranks came to {float(first)}: the group was broken, or a peer is gone")
