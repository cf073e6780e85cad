"""What tests of groups share whose model is sharded by FSDP2, in real runs."""

import unittest
from collections.abc import Iterator

import torch
from torch import nn

from runs import Keys, Run, RunCase
from scripts import Lines, loss_of

try:
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    import island_scripts
except ImportError:
    # Of a torch before 2.6.
    HuggingFaceStorageReader = island_scripts = None

#: So small that tensors span blocks.
SMALL: Keys = {"exchange.block_bytes": 64, "exchange.bucket_bytes": 128}
ALONE: Keys = {"script.sharded": True}

State = dict[str, torch.Tensor]


@unittest.skipIf(island_scripts is None, "this torch has no fully_shard")
class IslandCase(RunCase):
    scripts = "island_scripts.py"

    def trained(self, groups: list[int], keys: Keys, steps: int) -> Run:
        keys = {"cluster.servers": 2, **SMALL, **keys}
        run = self.launch("train", keys, groups=groups, samples=8 * sum(groups) * steps)
        run.text = self.completes(run)
        return run

    def state(self, run: Run, name: str, rank: str) -> State:
        """What the rank has told last."""
        lines = run.lines(f"{name}-{rank}")
        self.assertTrue(lines, f"{name} of {rank}: {run.logs()}")
        return {name: torch.tensor(values) for name, values in lines[-1].items()}

    def same(self, run: Run, name: str, groups: list[int]) -> State:
        """All ranks have told the same, bit for bit."""
        first, *others = (self.state(run, name, rank) for rank in ranks(groups))
        for other in others:
            for name, values in first.items():
                self.assertTrue(torch.equal(other[name], values), name)
        return first

    def in_one_process(self, run: Run, groups: list[int]) -> Iterator[nn.Module]:
        """The model of `without_statistics` after each step, of plain PyTorch on the union of the batches."""
        # One group has created the values, and the others have them.
        initial = self.same(run, "initial", groups)
        net, data = island_scripts.without_statistics(), Lines()
        net.load_state_dict({name: initial[name].view(values.shape) for name, values in net.state_dict().items()})
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        for numbers in zip(*(run.lines(f"batches-{rank}") for rank in ranks(groups)), strict=True):
            union = [number for batch in numbers for number in batch]
            opt.zero_grad()
            loss_of(net, [data.x[union], data.y[union], None]).backward()
            opt.step()
            yield net


def error_of(net: nn.Module) -> float:
    """What the scripts evaluate."""
    data = Lines()
    net.eval()
    with torch.no_grad():
        error = float(loss_of(net, [data.x, data.y, None]))
    net.train()
    return error


def ranks(groups: list[int]) -> list[str]:
    return [f"{group}-{rank}" for group, size in enumerate(groups) for rank in range(size)]


def distance(got: State, want: State, names: list[str]) -> float:
    """Relative, in L2."""
    ours, theirs = (torch.cat([state[name].flatten() for name in names]).double() for state in (got, want))
    return float((ours - theirs).norm() / theirs.norm())
