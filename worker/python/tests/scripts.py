"""Scripts of the tests: `python scripts.py NAME` is a rank."""

import json
import os
import sys

import torch
from torch import nn
from torch.utils.data import Dataset

import tradewind as tw

SAMPLES = 256


class Lines(Dataset):
    """Points of a plane, with their number."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(SAMPLES, 8, generator=generator)
        self.y = self.x @ torch.arange(8.0)[:, None] / 8 + 1

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.x[number], self.y[number], number


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def loss_of(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    x, y, _ = batch
    return (net(x) - y).square().mean()


def told(name: str, value: object) -> None:
    """Writes a line for the test."""
    with open(os.path.join(os.environ["TOLD"], name), "a") as file:
        file.write(json.dumps(value) + "\n")


def told_in_training(name: str, value: object) -> None:
    """The same, but for the process that evaluates, which comes by the same lines."""
    if "evaluate" not in json.loads(os.environ["TRADEWIND_WORKER"])[:1]:
        told(name, value)


def train() -> None:
    rank = tw.join()
    net = model()
    opt = rank.optimizer(net)
    loader = rank.loader(Lines(), num_workers=rank.settings.get("workers", 0))
    while not rank.done:
        for batch in loader:
            opt.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            opt.step()
            rank.log(loss=loss)
            told_in_training(f"batches-{rank.group}-{rank.rank}", batch[2].tolist())
    values = [parameter.detach().flatten().tolist() for parameter in net.parameters()]
    told_in_training(f"values-{rank.group}-{rank.rank}", values)


def loader_each_epoch() -> None:
    """Every epoch has a loader of its own, and the first is given up in the midst."""
    rank = tw.join()
    net = model()
    opt = rank.optimizer(net)
    steps = 0
    while not rank.done:
        for batch in rank.loader(Lines(), num_workers=1):
            told(f"batches-{rank.group}-{rank.rank}", batch[2].tolist())
            loss_of(net, batch).backward()
            opt.step()
            opt.zero_grad()
            steps += 1
            if steps == 5:
                break


def stops_early() -> None:
    rank = tw.join()
    net = model()
    opt = rank.optimizer(net)
    for batch in rank.loader(Lines()):
        opt.zero_grad()
        loss_of(net, batch).backward()
        opt.step()
        break


def leaves() -> None:
    rank = tw.join()
    net = model()
    opt = rank.optimizer(net)
    for batch in rank.loader(Lines()):
        opt.zero_grad()
        loss_of(net, batch).backward()
        opt.step()
        break
    rank.leave()


def without_backward() -> None:
    rank = tw.join()
    opt = rank.optimizer(model())
    for _ in rank.loader(Lines()):
        opt.step()


def unused() -> None:
    rank = tw.join()
    net = nn.ModuleDict({"used": nn.Linear(8, 1), "unused": nn.Linear(8, 1)})
    opt = rank.optimizer(net)
    for x, y, _ in rank.loader(Lines()):
        (net["used"](x) - y).square().mean().backward()
        opt.step()


def twice() -> None:
    tw.join()
    tw.join()


def own_rate() -> None:
    rank = tw.join()
    net = model()
    opt = rank.optimizer(net)
    for batch in rank.loader(Lines()):
        loss_of(net, batch).backward()
        opt.param_groups[0]["lr"] = 0.5
        opt.step()


def another_batch() -> None:
    rank = tw.join()
    rank.optimizer(model())
    rank.loader(Lines(), batch_size=5)


def diverges() -> None:
    rank = tw.join()
    net = model()
    opt = rank.optimizer(net)
    while not rank.done:
        for batch in rank.loader(Lines()):
            opt.zero_grad()
            (loss_of(net, batch) * float("nan")).backward()
            opt.step()


def far_ahead() -> None:
    rank = tw.join()
    rank.optimizer(model())
    rank.loader(Lines(), num_workers=50)


def shuffles() -> None:
    rank = tw.join()
    rank.optimizer(model())
    rank.loader(Lines(), shuffle=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
