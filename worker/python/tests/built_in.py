"""How tests train a built-in task, and read what the run has saved."""

import json
import subprocess
import unittest
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from runs import COMMAND, PATIENCE


def tradewind(test: unittest.TestCase, *arguments: str | Path) -> None:
    """Runs the command, which has to succeed."""
    told = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    test.assertEqual(told.returncode, 0, told.stdout + told.stderr)


def train(test: unittest.TestCase, keys: Mapping[str, object], out: Path) -> None:
    """Trains with these keys, and leaves the folder of the run as `out`."""
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
