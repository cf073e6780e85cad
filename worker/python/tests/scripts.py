"""Scripts of the tests: `python scripts.py NAME` is a rank."""

import os
import signal
import sys
import time
import types
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

import tradewind as tw
from telling import join, told, told_in_training

# Optimizers import torch._dynamo to tell it that they are not to be compiled. Nothing is compiled here, and the
# import takes nearly as long as that of torch: this is what they use of it.
_dynamo = types.ModuleType("torch._dynamo")
_dynamo.disable = lambda function, *_, **__: function
_dynamo.graph_break = lambda: None
sys.modules[_dynamo.__name__] = torch._dynamo = _dynamo

SAMPLES = 256
#: Seconds that a sample of SlowLines takes.
SLOW = 0.004


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


class SlowLines(Lines):
    """The same, each of which takes a while to be read."""

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        time.sleep(SLOW)
        return super().__getitem__(number)


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def loss_of(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    x, y, _ = batch
    return (net(x) - y).square().mean()


def killed_once(rank: tw.Rank, taken: int) -> None:
    """The rank that `script.killed` names is killed with its 20th batch. Other groups wait with their 25th until its
    next process is there.
    """
    killed = rank.settings.get("killed")
    if killed is None:
        return
    dead, back = Path(os.environ["TOLD"], "dead"), Path(os.environ["TOLD"], "back")
    if [rank.group, rank.rank] == killed:
        if dead.exists():
            back.touch()
        elif taken == 20:
            dead.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    elif rank.group != killed[0] and taken == 25:
        while not back.exists():
            time.sleep(0.05)


def train() -> None:
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    data = SlowLines() if rank.settings.get("slow") else Lines()
    loader = rank.loader(data, num_workers=rank.settings.get("workers", 0))
    taken = 0
    # The others may have done all by now: it may get no batch.
    killed_once(rank, taken)
    while not rank.done:
        for batch in loader:
            opt.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            opt.step()
            rank.log(loss=loss)
            told_in_training(f"batches-{rank.group}-{rank.rank}", batch[2].tolist())
            taken += 1
            killed_once(rank, taken)
    values = [parameter.detach().flatten().tolist() for parameter in net.parameters()]
    told_in_training(f"values-{rank.group}-{rank.rank}", values)


def finishes_while_another_returns() -> None:
    """Rank 1 is killed with its fifth batch. Its next process joins when rank 0 has taken its last step, alone, and
    has not left yet.
    """
    dead, done = Path(os.environ["TOLD"], "dead"), Path(os.environ["TOLD"], "done")
    while dead.exists() and not done.exists():
        time.sleep(0.05)
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    events = Path(os.environ["TOLD"], "run/events.jsonl")
    taken = 0
    while not rank.done:
        for batch in rank.loader(Lines()):
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()
            taken += 1
            if rank.rank == 1 and taken == 5 and not dead.exists():
                dead.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if rank.rank == 0 and rank.done:
                done.touch()
                while "rank 1 has joined" not in events.read_text():
                    time.sleep(0.05)
    told_in_training(f"ended-{rank.rank}", taken)


def pauses() -> None:
    """Rank 1 takes longer than its lease for a step; a thread of its own goes on telling that it lives."""
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    taken = 0
    while not rank.done:
        for batch in rank.loader(Lines()):
            taken += 1
            if taken == 3 and rank.rank == 1:
                time.sleep(rank.settings["pause"])
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()


def loader_each_epoch() -> None:
    """Every epoch has a loader of its own, and the first is given up in the midst."""
    rank = join()
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
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    for batch in rank.loader(Lines()):
        opt.zero_grad()
        loss_of(net, batch).backward()
        opt.step()
        break


def leaves() -> None:
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    for batch in rank.loader(Lines()):
        opt.zero_grad()
        loss_of(net, batch).backward()
        opt.step()
        break
    rank.leave()


def without_backward() -> None:
    rank = join()
    opt = rank.optimizer(model())
    for _ in rank.loader(Lines()):
        opt.step()


def unused() -> None:
    rank = join()
    net = nn.ModuleDict({"used": nn.Linear(8, 1), "unused": nn.Linear(8, 1)})
    opt = rank.optimizer(net)
    for x, y, _ in rank.loader(Lines()):
        (net["used"](x) - y).square().mean().backward()
        opt.step()


def twice() -> None:
    join()
    join()


def own_rate() -> None:
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    for batch in rank.loader(Lines()):
        loss_of(net, batch).backward()
        opt.param_groups[0]["lr"] = 0.5
        opt.step()


def another_batch() -> None:
    rank = join()
    rank.optimizer(model())
    rank.loader(Lines(), batch_size=5)


def diverges() -> None:
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    while not rank.done:
        for batch in rank.loader(Lines()):
            opt.zero_grad()
            (loss_of(net, batch) * float("nan")).backward()
            opt.step()


def far_ahead() -> None:
    rank = join()
    rank.optimizer(model())
    rank.loader(Lines(), num_workers=50)


def shuffles() -> None:
    rank = join()
    rank.optimizer(model())
    rank.loader(Lines(), shuffle=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
