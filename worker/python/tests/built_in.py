"""How tests train a built-in task, and read what the run has saved."""

import json
import subprocess
import unittest
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from runs import COMMAND, PATIENCE


class ScaledChannels(torch.nn.Module):
    """The channels of maps with mean 0 and deviation 1, as a run has saved both."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean[:, None, None]) / self.deviation[:, None, None]


def tradewind(test: unittest.TestCase, *arguments: str | Path) -> None:
    """Runs the command, which has to succeed."""
    told = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    test.assertEqual(told.returncode, 0, told.stdout + told.stderr)


def pack(test: unittest.TestCase, root: Path, part: str, layout: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Makes packed samples of arrays by name, as `root`/data/`part`."""
    folder = root / "arrays" / part
    folder.mkdir(parents=True)
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    tradewind(test, "data", "pack", folder, root / "data" / part, "--layout", layout)


def whole_batches(samples: int) -> dict[str, object]:
    """Keys of 24 steps on all training samples. The last ones change nothing: their loss is that of the parameters
    that are saved."""
    return {
        "train.samples": 24 * samples,
        "train.batch": samples,
        "schedule.decay": "step",
        "schedule.milestones": [20 * samples],
        "schedule.gamma": 0.0,
    }


def train(test: unittest.TestCase, keys: Mapping[str, object], out: Path) -> None:
    """Trains one rank on the CPU with these keys, and leaves the folder of the run as `out`."""
    keys = {
        "run.name": keys["model.name"],
        "cluster.groups": [1],
        "compute.device": "cpu",
        "train.consistency": "sync",
        "optimizer.name": "adam",
        **keys,
    }
    file = out.with_suffix(".toml")
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    tradewind(test, "run", file, "--out", out)


def load(test: unittest.TestCase, network: torch.nn.Module, run: Path) -> None:
    """Gives a network the parameters and statistics that a run has saved, all of which it must have."""
    missing = network.load_state_dict(saved(run / "model.safetensors"), strict=False)
    test.assertEqual(missing.unexpected_keys, [])
    test.assertTrue(all(name.endswith("num_batches_tracked") for name in missing.missing_keys), missing)


def saved(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, of in json.loads(content[8:begin]).items():
        if name != "__metadata__":
            first, last = (begin + at for at in of["data_offsets"])
            values = np.frombuffer(content[first:last], "<f4").reshape(of["shape"])
            tensors[name] = torch.from_numpy(values.copy())
    return tensors
