"""Scripts of the tests of islands, groups whose model is sharded: `python island_scripts.py NAME` is a rank."""

import os
import signal
import sys
import time
from pathlib import Path
from unittest import mock

import eager  # noqa: F401
import torch
import torch._meta_registrations  # DTensors need it.
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import tradewind as tw
from scripts import Lines, killed_once, loss_of
from telling import join
from telling import told as told_always
from telling import told_in_training as told


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


def held_of(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of it."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


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
    told(f"began-{rank.group}-{rank.rank}", os.getpid())
    net = MODELS[rank.settings.get("model", "plain")](3 + rank.group)
    if not rank.settings.get("whole"):
        sharded(rank, net)
    opt = own_optimizer(rank, net)
    count = rank.settings.get("count", 1)
    taken = 0

    @rank.evaluate
    def error(net: nn.Module) -> float:
        held = sum(held_of(parameter).numel() for parameter in net.parameters())
        told_always(f"evaluated-{rank.group}-{rank.rank}", held)
        if rank.evaluating and rank.settings.get("fails") and rank.rank == 1:
            raise RuntimeError("no good")
        data = Lines()
        return float(loss_of(net, [data.x, data.y, None]))

    while not rank.done:
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
            hangs_once(rank, taken)
    tell_state(rank, net, "state")
    if rank.settings.get("saves") and not rank.evaluating and rank.group == 0:
        rank.save(Path(os.environ["TOLD"], "own.safetensors"))
        rank.save(Path(os.environ["TOLD"], "own"), max_shard_bytes=300)


def counts_collectives() -> None:
    """How often FSDP2 has asked for torch's own, once the rank has the model."""
    rank = join()
    net = sharded(rank, without_statistics())
    opt = rank.optimizer(net)
    own = [
        mock.patch.object(torch.distributed, name, wraps=getattr(torch.distributed, name))
        # The last two are in the newest torch.
        for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_gather_single", "reduce_scatter_single")
        if hasattr(torch.distributed, name)
    ]
    asked = [each.start() for each in own]
    while not rank.done:
        for batch in rank.loader(Lines()):
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()
    told(f"asked-{rank.group}-{rank.rank}", sum(each.call_count for each in asked))


def hangs_once(rank: tw.Rank, taken: int) -> None:
    """The rank that `script.hung` names is stopped with its tenth batch. Other groups wait with their 25th until its
    next process is there.
    """
    hung = rank.settings.get("hung")
    if hung is None:
        return
    stopped, back = Path(os.environ["TOLD"], "stopped"), Path(os.environ["TOLD"], "back")
    if [rank.group, rank.rank] == hung:
        if stopped.exists():
            back.touch()
        elif taken == 10:
            stopped.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
    elif rank.group != hung[0] and taken == 25:
        while not back.exists():
            time.sleep(0.05)


def is_another() -> None:
    """The model of group 1 has another shape."""
    rank = join()
    net = without_statistics()
    if rank.group == 1:
        net[0], net[2] = nn.Linear(8, 11), nn.Linear(11, 5)
    opt = rank.optimizer(sharded(rank, net))
    while not rank.done:
        for batch in rank.loader(Lines()):
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()


def is_not_the_groups_mesh() -> None:
    rank = join()
    rank.mesh()
    net = without_statistics()
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("copies", "shards"))
    for layer in net:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    rank.optimizer(net)


def has_no_mesh() -> None:
    """FSDP2 makes a mesh of all ranks of torch's process group."""
    rank = tw.join(os.environ.get("RUN"), torch_names=True)
    net = without_statistics()
    fully_shard(net, mesh=init_device_mesh("cpu", (1,)))
    rank.optimizer(net)


def is_tensor_parallel() -> None:
    """Shards that look like those of FSDP2; but all ranks would need the same batches."""
    rank = join()
    net = without_statistics()
    parallelize_module(net, rank.mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    rank.optimizer(net)


def shards_columns() -> None:
    rank = join()
    net = without_statistics()
    fully_shard(net, mesh=rank.mesh(), shard_placement_fn=lambda p: Shard(p.dim() - 1))
    rank.optimizer(net)


def shards_a_part() -> None:
    rank = join()
    net = without_statistics()
    fully_shard(net[0], mesh=rank.mesh())
    rank.optimizer(net)


def shards_halves() -> None:
    rank = join()
    net = without_statistics().to(torch.bfloat16)
    fully_shard(net, mesh=rank.mesh(), mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
    rank.optimizer(net)


def waits_for_a_mesh() -> None:
    """Torch is too old, as far as it says."""
    torch.__version__ = "2.5.1"
    join().mesh()


def takes_a_step() -> None:
    """So that what needs the run's settings is refused."""
    rank = join()
    net = sharded(rank, without_statistics())
    opt = rank.optimizer(net)
    for batch in rank.loader(Lines()):
        loss_of(net, batch).backward()
        if rank.settings.get("forgets"):
            net.zero_grad()
        opt.step()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
