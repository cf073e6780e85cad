"""Scripts of the tests of what a model may be made of: `python tensor_scripts.py NAME` is a rank."""

import functools
import sys

import eager  # noqa: F401
import torch
from torch import nn

from scripts import Lines
from telling import join
from telling import told_in_training as told


def plain() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def mixed(dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """Layers of `dtype`, and a norm of f32 between."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Linear(8, 16, dtype=dtype), nn.LayerNorm(16)
            self.last = nn.Linear(16, 1, dtype=dtype)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.norm(self.first(x.to(dtype)).float()).to(dtype)).float()

    torch.manual_seed(3)
    return Mixed()


def statistics() -> nn.Module:
    """A model with statistics, a mask that is not finite, and a table."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 1))
    net.register_buffer("mask", torch.full((3,), float("-inf")))
    net.register_buffer("table", torch.tensor([0.1, 0.2, 0.7]))
    return net


def tied() -> nn.Module:
    """Two names for one weight, and one weight that is frozen."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.first = nn.Linear(8, 8), nn.Linear(8, 8)
            self.last, self.out = nn.Linear(8, 8), nn.Linear(8, 1)
            self.last.weight = self.first.weight
            self.base.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.last(torch.tanh(self.first(self.base(x)))))

    torch.manual_seed(3)
    return Tied()


MODELS = {"plain": plain, "mixed": mixed, "statistics": statistics, "tied": tied}


def loss_of(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (net(x) - y).square().mean()


def train() -> None:
    rank = join()
    if rank.settings.get("staged", False):
        import tradewind._replica as replica

        replica.Replica = functools.partial(replica.Replica, staged=True)
    net = MODELS[rank.settings["model"]]()
    opt = rank.optimizer(net)
    # Of every second step, from the first.
    clip = rank.settings.get("clip")
    taken = 0
    while not rank.done:
        for x, y, numbers in rank.loader(Lines()):
            opt.zero_grad()
            loss_of(net, x, y).backward()
            if clip is not None and taken % 2 == 0:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            opt.step()
            taken += 1
            told(f"batches-{rank.group}-{rank.rank}", numbers.tolist())
    state = {name: tensor.tolist() for name, tensor in net.state_dict().items()}
    told(f"state-{rank.group}-{rank.rank}", state)


def backward_twice() -> None:
    rank = join()
    net = plain()
    rank.optimizer(net)
    for x, y, _ in rank.loader(Lines()):
        loss_of(net, x, y).backward()
        loss_of(net, x, y).backward()


def doubles() -> None:
    join().optimizer(plain().double())


def _differs(change) -> None:
    """Ranks or groups whose models differ."""
    rank = join()
    net = tied()
    if rank.group == 1 or rank.rank == 1:
        change(net)
    opt = rank.optimizer(net)
    for x, y, _ in rank.loader(Lines()):
        opt.zero_grad()
        loss_of(net, x, y).backward()
        opt.step()


def other_base() -> None:
    def change(net: nn.Module) -> None:
        net.base.bias.data[3] += 1

    _differs(change)


def other_shape() -> None:
    def change(net: nn.Module) -> None:
        net.out = nn.Linear(8, 1, bias=False)

    _differs(change)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
