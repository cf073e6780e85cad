"""Scripts of the tests of islands, groups whose model is sharded: `python island_scripts.py NAME` is a rank."""

import os
import signal
import sys
import time
import types
from pathlib import Path

import torch
from torch import nn

from scripts import Lines, killed_once, loss_of
from telling import join
from telling import told_in_training as told

# What process groups use of it, beside what `scripts` has of it.
sys.modules["torch._dynamo"].trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)

from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import Shard  # noqa: E402

import tradewind as tw  # noqa: E402


def model(seed: int = 3) -> nn.Module:
    """Extents that no number of ranks divides, one row, a norm, and statistics."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(8, 13), nn.BatchNorm1d(13), nn.Tanh(), nn.Linear(13, 5), nn.LayerNorm(5), nn.Linear(5, 1)
    )


def without_statistics(seed: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 13), nn.Tanh(), nn.Linear(13, 5), nn.LayerNorm(5), nn.Linear(5, 1))


MODELS = {"statistics": model, "plain": without_statistics}


def sharded(rank: tw.Rank, net: nn.Module) -> nn.Module:
    """By layer and the rest, where the group has several ranks, or `script.sharded` says so."""
    if rank.group_size > 1 or rank.settings.get("sharded"):
        for layer in net:
            if list(layer.parameters()):
                fully_shard(layer, mesh=rank.mesh())
        fully_shard(net, mesh=rank.mesh())
    return net


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Of a parameter all rows: all ranks of the group call it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def tell_state(rank: tw.Rank, net: nn.Module, name: str) -> None:
    state = {name: whole(value).detach().flatten().tolist() for name, value in net.state_dict().items()}
    told(f"{name}-{rank.group}-{rank.rank}", state)


def own_optimizer(rank: tw.Rank, net: nn.Module) -> torch.optim.Optimizer:
    if not rank.settings.get("attach"):
        return rank.optimizer(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5)
    rank.attach(net, opt)
    return opt


def train() -> None:
    """Groups begin with values of their own: one of them creates those of the run."""
    rank = join()
    net = sharded(rank, MODELS[rank.settings.get("model", "plain")](3 + rank.group))
    opt = own_optimizer(rank, net)
    count = rank.settings.get("count", 1)
    taken = 0
    for _ in iter(lambda: rank.done, True):
        for batch in rank.loader(Lines()):
            if taken == 0:
                tell_state(rank, net, "initial")
            if taken % count == 0:
                opt.zero_grad()
            taken += 1
            loss = loss_of(net, batch)
            (loss / count).backward()
            told(f"batches-{rank.group}-{rank.rank}", batch[2].tolist())
            if taken % count == 0:
                if rank.settings.get("norm"):
                    nn.utils.clip_grad_norm_(net.parameters(), rank.settings["norm"])
                opt.step()
            rank.log(loss=loss)
            killed_once(rank, taken)
    tell_state(rank, net, "state")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
