"""A rank that trains 25 million parameters with little computation: `wide.py tradewind|ddp`.

Before backward a rank sleeps until `PACE` seconds of the step have passed, so that several ranks hold on few cores. DDP
is plain PyTorch, over Gloo; a step of it is a line of its output.
"""

import os
import sys
import time

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

WIDTH, LAYERS = 2500, 4
BATCH, STEPS = 2, int(os.environ["STEPS"])
PACE = float(os.environ["PACE"])


class Noise(Dataset):
    """Inputs that are not worth learning."""

    def __init__(self) -> None:
        self.x = torch.randn(256, WIDTH)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, number: int) -> Tensor:
        return self.x[number]


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def gradient(model: nn.Module, x: Tensor) -> None:
    """Computes a step's gradient, at the pace."""
    begin = time.perf_counter()
    loss = model(x).square().mean()
    time.sleep(max(0.0, PACE - (time.perf_counter() - begin)))
    loss.backward()


def with_tradewind() -> None:
    import tradewind as tw

    rank = tw.join()
    model = net()
    opt = rank.optimizer(model)
    while not rank.done:
        for x in rank.loader(Noise()):
            opt.zero_grad()
            gradient(model, x)
            opt.step()


def with_ddp() -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(net())
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = Noise()
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data))
    step = 0
    while step < STEPS:
        for x in loader:
            opt.zero_grad()
            gradient(model, x)
            opt.step()
            print(time.time(), flush=True)
            step += 1
            if step == STEPS:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    {"tradewind": with_tradewind, "ddp": with_ddp}[sys.argv[1]]()
