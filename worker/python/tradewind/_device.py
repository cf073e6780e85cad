"""What a rank computes on."""

from __future__ import annotations

import torch

from ._native import TradewindError


def choose(asked: str, local_rank: int) -> torch.device:
    """The device that `compute.device` asks for, by the rank's number among those of its machine.

    Raises:
        TradewindError: If there is no such GPU.
    """
    found = torch.cuda.device_count() if asked != "cpu" and torch.cuda.is_available() else 0
    if asked == "cpu" or (asked == "auto" and found == 0):
        return torch.device("cpu")
    _, _, number = asked.partition(":")
    # Who sees one GPU takes it: schedulers show each rank its own.
    wanted = int(number) if number else (0 if found == 1 else local_rank)
    if wanted >= found:
        raise TradewindError(
            f'compute.device = "{asked}" asks for GPU {wanted}, and torch.cuda sees {found}: start fewer ranks on this '
            'machine, or set compute.device = "cpu"'
        )
    return torch.device("cuda", wanted)
