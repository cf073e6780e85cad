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

from ._native import GroupBroken, TradewindError
from ._rank import Rank, join

__all__ = ["GroupBroken", "Rank", "TradewindError", "join"]
