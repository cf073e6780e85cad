"""The built-in task `cosmoflow` beside the same network in PyTorch, which is given what a run has saved."""

import json
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
from torch import nn

from built_in import load, tradewind, train

#: A record of a packed file: int16 counts, then four f32; it begins at a multiple of 64 bytes.
VOLUME = (4, 32, 32, 32)
RECORD = np.dtype([("volume", "<i2", VOLUME), ("target", "<f4", 4), ("rest", "V48")])
SMALL = {"convolutions": [8, 12, 16], "hidden": [10], "pooling": "mean", "stem": True, "norm": True, "dropout": 0.25}
PAPER = {"convolutions": [32, 64, 128, 256, 512], "hidden": [128, 64], "pooling": "max", "stem": False, "norm": False, "dropout": 0.5}


class Network(nn.Module):
    """As MLPerf HPC's reference, and smaller ones."""

    def __init__(self, model: dict, size: int, redshifts: int = 4, told: int = 4) -> None:
        super().__init__()
        widths, self.stem = [redshifts, *model["convolutions"]], model["stem"]
        pairs = list(zip(widths, widths[1:]))
        stride = [2 if self.stem and number == 0 else 1 for number in range(len(pairs))]
        self.conv = nn.ModuleList(
            nn.Conv3d(*pair, 3, step, 1, bias=not model["norm"]) for pair, step in zip(pairs, stride)
        )
        self.norm = nn.ModuleList(nn.BatchNorm3d(out) if model["norm"] else nn.Identity() for _, out in pairs)
        self.pool = {"max": nn.MaxPool3d(2), "mean": nn.AvgPool3d(2)}[model["pooling"]]
        self.flat = {"max": nn.Flatten(), "mean": nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Flatten())}[model["pooling"]]
        cells = 1 if model["pooling"] == "mean" else (size // 2 ** len(pairs)) ** 3
        units = [widths[-1] * cells, *model["hidden"], told]
        self.fc = nn.ModuleList(nn.Linear(*pair) for pair in zip(units, units[1:]))
        self.dropout = nn.Dropout(model["dropout"])

    def forward(self, counts: torch.Tensor) -> torch.Tensor:
        hidden = counts.float().log1p()
        for number, (conv, norm) in enumerate(zip(self.conv, self.norm)):
            hidden = nn.functional.leaky_relu(norm(conv(hidden)), 0.3)
            if not (self.stem and number == 0):
                hidden = self.pool(hidden)
        hidden = self.flat(hidden)
        for fc in self.fc[:-1]:
            hidden = self.dropout(nn.functional.leaky_relu(fc(hidden), 0.3))
        return 1.2 * torch.tanh(self.fc[-1](hidden))


class Cosmoflow(unittest.TestCase):
    def test_a_run_tells_what_pytorch_tells(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.check(Path(folder))

    def check(self, root: Path) -> None:
        # Three boxes: one for each split.
        tradewind(self, "data", "make", "cosmology", "--samples", "24", "--out", root / "data")
        keys = {
            "model.name": "cosmoflow",
            "data.folder": str(root / "data"),
            "train.samples": 64,
            "train.batch": 4,
            "optimizer.learning_rate": 0.002,
            **{f"model.{key}": value for key, value in SMALL.items()},
        }
        train(self, keys, root / "run")
        network = Network(SMALL, VOLUME[-1])
        load(self, network, root / "run")
        network.eval()
        held_out = np.fromfile(root / "data/held_out/00000.pack", RECORD, count=8, offset=64)
        with torch.no_grad():
            told = network(torch.from_numpy(held_out["volume"].astype("i2")))
        errors = (told - torch.from_numpy(held_out["target"].copy())).abs().mean(0)
        evaluation = json.loads((root / "run/evaluation.json").read_text())
        for part, want in zip(evaluation["parts"], errors.tolist(), strict=True):
            self.assertAlmostEqual(part["value"], want, delta=1e-5, msg=part["name"])
        # It has learned something: the network of before the first step tells other numbers.
        self.assertGreater((told.max(0).values - told.min(0).values).max().item(), 1e-3)

    def test_the_papers_network_has_the_known_number_of_parameters(self) -> None:
        with torch.device("meta"):
            network = Network(PAPER, 128)
        self.assertEqual(sum(parameter.numel() for parameter in network.parameters()), 8_907_556)


if __name__ == "__main__":
    unittest.main()
