"""A script of yours as a rank of a Tradewind run.

    import torch, tradewind as tw

    rank = tw.join()
    model = Net()
    opt = rank.optimizer(model)
    for batch in rank.loader(data, num_workers=4):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step()
        rank.log(loss=loss)

Start it with ``tradewind run run.toml -- python train.py``. `docs/pytorch.md` of Tradewind explains every line.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ._evaluate import Evaluation, Measure, Part
from ._keep import Kept
from ._native import GroupBroken, TradewindError, Unavailable
from ._rank import Rank, join
from ._samples import Samples

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Evaluation",
    "GroupBroken",
    "Kept",
    "Measure",
    "Part",
    "Rank",
    "Samples",
    "TradewindError",
    "Unavailable",
    "join",
    "load",
]


def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Reads a file such as a run's `model.safetensors`: what `load_state_dict` takes.

    Tensors that are tied, which the file has once, are there under all their names.

    Raises:
        TradewindError: For a file that is none of safetensors.
        OSError: If it cannot be read.
    """
    from ._saving import load

    return load(path)
