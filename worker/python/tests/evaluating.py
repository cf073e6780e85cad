"""Scripts of the tests of evaluation, of what a rank keeps and saves, and of running alone."""

import os
import resource
import sys
from collections.abc import Callable
from typing import Any

import eager  # noqa: F401
import torch
from torch import nn

import tradewind as tw
from scripts import Lines, killed_once, loss_of, model
from telling import join, told
from tradewind import _keep


class Net(nn.Module):
    """Has what a model may have beside trained parameters: a frozen one, tied ones, integers, a mask."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.into = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.into.weight
        self.scale = nn.Parameter(torch.full((8,), 2.0), requires_grad=False)
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
        self.out = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.tied(torch.tanh(self.norm(self.into(x)))) * self.scale)


def loss(net: nn.Module) -> float:
    data = Lines()
    return loss_of(net, [data.x, data.y, None]).item()


def train(rank: tw.Rank, net: nn.Module, each: Callable[[], Any] = lambda: None) -> None:
    opt = rank.optimizer(net)
    loader = rank.loader(Lines())
    while not rank.done:
        for batch in loader:
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()
            each()


def measures() -> None:
    """A function's name is the metric's."""
    rank = join()
    net = Net()

    @rank.evaluate
    def held_out_loss(model: nn.Module) -> torch.Tensor:
        told("modes", [model.training, torch.is_grad_enabled(), rank.evaluating])
        return torch.tensor(loss(model))

    train(rank, net)
    told("model", [net.training, loss(net.eval())])


def says_more() -> None:
    rank = join()

    @rank.evaluate
    def evaluate(net: nn.Module) -> tw.Evaluation:
        return tw.Evaluation(
            tw.Measure("held-out loss", loss(net), "K"),
            validation=tw.Measure("validation loss", loss(net) / 2, "K"),
            baselines=[tw.Measure("mean", 4.0, "K")],
            parts=[tw.Part("first", 1.5, [5.0])],
        )

    train(rank, model())


def twice() -> None:
    rank = join()
    rank.evaluate(loss)
    rank.evaluate(loss)


def sideways() -> None:
    join().evaluate(better="up")(loss)


def counts() -> None:
    """Keeps a number of steps and an average, and tells what it began with."""
    rank = join()
    net = model()
    steps = rank.keep("steps", 0)
    average = rank.keep("average", torch.optim.swa_utils.AveragedModel(net))
    if not rank.evaluating:
        told(f"began-{rank.group}-{rank.rank}", [steps.value, int(average.n_averaged)])

    def step() -> None:
        steps.value += 1
        average.update_parameters(net)
        told(f"steps-{rank.group}-{rank.rank}", steps.value)
        killed_once(rank, steps.value)

    # Written after every step: a test kills it.
    _keep._PAUSE_SECONDS = _keep._PAUSE_TIMES = 0.0
    train(rank, net, step)
    rank.evaluate(lambda _: {"steps": steps.value})


def keeps_twice() -> None:
    rank = join()
    rank.keep("steps", 0)
    rank.keep("steps", 0)


def keeps_an_object() -> None:
    join().keep("loader", Lines())


def saves() -> None:
    """Where the test says, at the end of training."""
    rank = join()
    net = Net()
    train(rank, net)
    rank.save(os.environ["TOLD"] + "/own.safetensors")
    rank.save(os.environ["TOLD"] + "/sharded", max_shard_bytes=300)
    torch.save(net.state_dict(), os.environ["TOLD"] + "/state.pt")


def saves_nowhere() -> None:
    rank = join()
    rank.optimizer(model())
    rank.save("/nowhere/model.safetensors")


def saves_where_it_is_full() -> None:
    rank = join()
    rank.optimizer(model())
    # To a process that is at its limit the disk is full.
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        rank.save(os.environ["TOLD"] + "/own.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def alone() -> None:
    rank = tw.join(os.environ["RUN"])
    net = model()

    @rank.evaluate
    def held_out_loss(net: nn.Module) -> float:
        return loss(net)

    train(rank, net, lambda: told("batches", rank.group_size))
    told("alone", [rank.group, rank.rank, rank.settings["width"], rank.done])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
