"""Scripts of the tests: `python scripts.py NAME` is a rank."""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import eager  # noqa: F401
import torch
from torch import nn
from torch.utils.data import Dataset

import tradewind as tw
from telling import join, told, told_in_training

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


def returns_when_the_others_are_done() -> None:
    """Rank 1 is killed with its fifth batch, and its next process takes longer to begin than rank 0 has left to do."""
    dead, events = Path(os.environ["TOLD"], "dead"), Path(os.environ["TOLD"], "run/events.jsonl")
    while dead.exists() and "is done and has left" not in events.read_text():
        time.sleep(0.05)
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    taken = 0
    while not rank.done:
        for batch in rank.loader(Lines()):
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()
            taken += 1
            if rank.rank == 1 and taken == 5:
                dead.touch()
                os.kill(os.getpid(), signal.SIGKILL)
    told_in_training(f"ended-{rank.rank}", taken)


def hangs_and_loses_a_server() -> None:
    """With its tenth batch rank 1 stops for good. With the twentieth rank 0 kills the server that has the coordinator,
    and with the fortieth it waits for the next process of rank 1.
    """
    hung, back, killed = (Path(os.environ["TOLD"], name) for name in ("hung", "back", "killed"))
    rank = join()
    if rank.rank == 1 and hung.exists():
        back.touch()
    net = model()
    opt = rank.optimizer(net)
    taken = 0
    while not rank.done:
        for batch in rank.loader(Lines()):
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()
            taken += 1
            if rank.rank == 1 and taken == 10 and not hung.exists():
                hung.touch()
                os.kill(os.getpid(), signal.SIGSTOP)
            elif rank.rank == 0 and taken == 20 and not killed.exists():
                killed.touch()
                processes = json.loads(Path(os.environ["TOLD"], "run/processes.json").read_text())
                (server,) = [at["pid"] for at in processes if at["role"] == "server" and at["index"] == 0]
                os.kill(server, signal.SIGKILL)
            elif rank.rank == 0 and taken == 40:
                while not back.exists():
                    time.sleep(0.05)
    values = [parameter.detach().flatten().tolist() for parameter in net.parameters()]
    told_in_training(f"values-{rank.group}-{rank.rank}", values)


def computes_while_it_waits() -> None:
    """Group 1 comes when a thread of group 0 says so, whose own rank waits for group 1 by then."""
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    come, events = Path(os.environ["TOLD"], "come"), Path(os.environ["TOLD"], "run/events.jsonl")

    def call() -> None:
        while "group 0 is together" not in events.read_text():
            time.sleep(0.05)
        come.touch()

    if not rank.evaluating and rank.group == 0:
        threading.Thread(target=call).start()
    elif not rank.evaluating:
        while not come.exists():
            time.sleep(0.05)
    while not rank.done:
        for batch in rank.loader(Lines()):
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()


def is_interrupted() -> None:
    """Ctrl-C, while it waits for another group, which does not come."""
    rank = join()
    net = model()
    rank.optimizer(net)
    if rank.group == 1:
        time.sleep(3600)
    told("waits", os.getpid())
    try:
        next(iter(rank.loader(Lines())))
    except KeyboardInterrupt:
        told("interrupted", True)
        raise


class Signals(Lines):
    """Samples that tell which signal their process gets when the one that has started it ends."""

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        PR_GET_PDEATHSIG = 2
        found = ctypes.c_int(0)
        ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(found))
        x, y, _ = super().__getitem__(number)
        return x, y, found.value


def tells_signals() -> None:
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    for batch in rank.loader(Signals(), num_workers=1, worker_init_fn=lambda number: told("began", number)):
        told("signals", sorted(set(batch[2].tolist())))
        opt.zero_grad()
        loss_of(net, batch).backward()
        opt.step()


def tells_threads() -> None:
    """How many it computes with, in training and in its evaluation."""
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    for batch in rank.loader(Lines()):
        opt.zero_grad()
        loss_of(net, batch).backward()
        opt.step()
    told("evaluation" if rank.evaluating else "training", [os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads()])


def few_samples() -> None:
    """`script.samples` of them, of which `script.workers` fetch ahead."""
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    few = torch.utils.data.Subset(Lines(), range(rank.settings["samples"]))
    while not rank.done:
        for batch in rank.loader(few, num_workers=rank.settings["workers"]):
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()


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
