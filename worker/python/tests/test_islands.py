"""Groups whose model is sharded by FSDP2, in real runs."""

import unittest

import torch

import island_scripts
from runs import ASYNC, Keys, Run, RunCase
from scripts import Lines, loss_of

#: So small that tensors span blocks.
SMALL: Keys = {"exchange.block_bytes": 64, "exchange.bucket_bytes": 128}


class Islands(RunCase):
    scripts = "island_scripts.py"

    def ranks(self, groups: list[int]) -> list[str]:
        return [f"{group}-{rank}" for group, size in enumerate(groups) for rank in range(size)]

    def state(self, run: Run, name: str, rank: str) -> dict[str, torch.Tensor]:
        lines = run.lines(f"{name}-{rank}")
        self.assertTrue(lines, rank)
        return {name: torch.tensor(values) for name, values in lines[-1].items()}

    def distance(self, run: Run, groups: list[int], net: torch.nn.Module) -> float:
        """Relative L2 of the values of all ranks to those of one process, at most."""
        want = torch.cat([parameter.detach().flatten() for parameter in net.parameters()]).double()
        most = 0.0
        for rank in self.ranks(groups):
            state = self.state(run, "state", rank)
            got = torch.cat([state[name] for name, _ in net.named_parameters()]).double()
            most = max(most, float((got - want).norm() / want.norm()))
        return most

    def one_process(self, run: Run, groups: list[int], steps: int) -> torch.nn.Module:
        """Plain SGD on the union of the batches of all ranks, from the values that the run was created with."""
        net, data = island_scripts.without_statistics(), Lines()
        initial = self.state(run, "initial", "0-0")
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                parameter.copy_(initial[name].view(parameter.shape))
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        batches = list(zip(*(run.lines(f"batches-{rank}") for rank in self.ranks(groups)), strict=True))
        self.assertEqual(len(batches), steps)
        for numbers in batches:
            union = [number for batch in numbers for number in batch]
            opt.zero_grad()
            loss_of(net, [data.x[union], data.y[union], None]).backward()
            opt.step()
        return net

    def check_equal(self, groups: list[int], keys: Keys = {}) -> None:
        samples = 50 * 8 * sum(groups)
        run = self.launch("train", {"cluster.servers": 2, **SMALL, **keys}, groups=groups, samples=samples)
        self.completes(run)
        created = [self.state(run, "initial", rank) for rank in self.ranks(groups)]
        for other in created[1:]:
            for name, values in other.items():
                self.assertTrue(torch.equal(values, created[0][name]), name)
        self.assertLess(self.distance(run, groups, self.one_process(run, groups, 50)), 1e-6)

    def test_two_islands_of_two_equal_one_process(self) -> None:
        self.check_equal([2, 2])


if __name__ == "__main__":
    unittest.main()
