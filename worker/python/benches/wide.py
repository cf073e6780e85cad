"""A rank that trains 25 million parameters with little computation: `wide.py tradewind|ddp|island|islands|fsdp`.

Before backward a rank sleeps until `PACE` seconds of the step have passed, so that several ranks hold on few cores. DDP
and FSDP2 are plain PyTorch, over Gloo; a step of them is a line of its output. An island has its model sharded by
FSDP2; of `islands` groups of one rank have it whole. With `MEMORY`, a folder, a rank of an island tells there in a file
of its own the most memory that it had, in bytes, beyond what it had before its model; one that evaluates as well.
`WIDTH` and `LAYERS` make another model.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

WIDTH, LAYERS = int(os.environ.get("WIDTH", 2500)), int(os.environ.get("LAYERS", 4))
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


def sharded_net(mesh: Any) -> nn.Module:
    """The same in rows over the ranks, of which none has it whole at any time."""
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = net()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    for layer in model:
        layer.reset_parameters()
    return model


def begin_to_measure(mesh: Any) -> int:
    """What the process has once all is imported, in bytes; from here on the kernel notes the most."""
    from torch.distributed.fsdp import fully_shard

    small = fully_shard(nn.Linear(4, 4), mesh=mesh)
    small(torch.ones(1, 4)).sum().backward()
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split(f"{name}:")[1].split()[0])


def with_tradewind(island: bool = False, from_size: int = 1) -> None:
    """An island is a group of `from_size` ranks or more."""
    import tradewind as tw

    rank = tw.join()
    island = island and rank.group_size >= from_size
    folder = os.environ.get("MEMORY")
    before = begin_to_measure(rank.mesh()) if island and folder else 0
    model = sharded_net(rank.mesh()) if island else net()
    opt = rank.optimizer(model)

    @rank.evaluate
    def loss(model: nn.Module) -> float:
        return float(model(Noise().x[:BATCH]).square().mean())

    while not rank.done:
        for x in rank.loader(Noise()):
            opt.zero_grad()
            gradient(model, x)
            opt.step()
    if before > 0:
        kind = "evaluation" if rank.evaluating else "training"
        Path(folder, f"{kind}-{rank.group}-{rank.rank}").write_text(str(memory("VmHWM") - before))


def with_torch(shards: bool) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = sharded_net(init_device_mesh("cpu", (dist.get_world_size(),))) if shards else DistributedDataParallel(net())
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
    {
        "tradewind": with_tradewind,
        "island": lambda: with_tradewind(island=True),
        "islands": lambda: with_tradewind(island=True, from_size=2),
        "ddp": lambda: with_torch(shards=False),
        "fsdp": lambda: with_torch(shards=True),
    }[sys.argv[1]]()
