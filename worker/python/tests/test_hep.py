"""The built-in task `hep` beside the same network in PyTorch, which is given what a run has saved."""

import json
import tempfile
import unittest
from pathlib import Path

import eager  # noqa: F401
import numpy as np
import torch
from torch import nn

from built_in import load, pack, train, whole_batches

SIZE = 16
SAMPLES = {"train": 48, "validation": 16, "held_out": 300}
LAYOUT = "data=data[samples],label=label[samples]:u8<2"
SMALL = {"width": 6, "layers": 3}
PAPER = {"width": 128, "layers": 5, "norm": False}


class Network(nn.Module):
    """As in Kurth et al. 2017, and smaller ones."""

    def __init__(self, width: int, layers: int, norm: bool, dropout: float = 0.5) -> None:
        super().__init__()
        into = [3, *[width] * (layers - 1)]
        self.conv = nn.ModuleList(nn.Conv2d(channels, width, 3, 1, 1, bias=not norm) for channels in into)
        self.norm = nn.ModuleList(nn.BatchNorm2d(width) if norm else nn.Identity() for _ in into)
        self.fc = nn.Linear(width, 2)
        self.dropout = nn.Dropout(dropout)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        energy, part, tracks = image.float().split(1, 1)
        hidden = torch.cat([energy.log1p(), part, tracks.log1p()], 1)
        for number, (conv, norm) in enumerate(zip(self.conv, self.norm)):
            if number > 0:
                hidden = self.dropout(nn.functional.max_pool2d(hidden, 2))
            hidden = torch.relu(norm(conv(hidden)))
        return self.fc(hidden.mean((2, 3)))


def collisions(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images with more tracks where they are signal, and their labels."""
    draw = np.random.default_rng(seed)
    label = np.arange(samples, dtype="u1") % 2
    energy = draw.exponential(5.0, (samples, SIZE, SIZE)) * (draw.random((samples, SIZE, SIZE)) < 0.2)
    part = draw.random((samples, SIZE, SIZE)) * (energy > 0)
    tracks = draw.poisson(0.2 + 0.04 * label[:, None, None], (samples, SIZE, SIZE))
    return np.stack([energy, part, tracks], 1).astype("f2"), label


class Hep(unittest.TestCase):
    def test_a_run_tells_what_pytorch_tells(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.data(Path(folder))
            for norm in (False, True):
                with self.subTest(norm=norm):
                    self.check(Path(folder), norm)

    def data(self, root: Path) -> None:
        for seed, (part, samples) in enumerate(SAMPLES.items()):
            pack(self, root, part, LAYOUT, dict(zip(("data", "label"), collisions(samples, seed))))

    def check(self, root: Path, norm: bool) -> None:
        out = root / f"run-{norm}"
        batch = SAMPLES["train"]
        keys = {
            "model.name": "hep",
            "model.norm": norm,
            "model.dropout": 0.0,
            "data.folder": str(root / "data"),
            "data.augment": False,
            **whole_batches(batch),
            "optimizer.learning_rate": 0.02,
            **{f"model.{key}": value for key, value in SMALL.items()},
        }
        train(self, keys, out)
        network = Network(**SMALL, norm=norm, dropout=0.0)
        load(self, network, out)

        # All samples are in the batch of a step.
        image, label = (torch.from_numpy(values) for values in collisions(batch, 0))
        losses = [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]
        with torch.no_grad():
            loss = nn.functional.cross_entropy(network(image), label.long()).item()
        self.assertAlmostEqual(losses[-1], loss, delta=1e-5)
        self.assertLess(loss, losses[0] - 0.01, "it has learned something")

        # The statistics are those that are saved, and not those that the batch has moved.
        load(self, network, out)
        network.eval()
        image, label = (torch.from_numpy(values) for values in collisions(SAMPLES["held_out"], 2))
        with torch.no_grad():
            told = network(image).double()
        score = told[:, 1] - told[:, 0]
        signal, background = score[label == 1], score[label == 0]
        above = (signal[:, None] > background).double() + (signal[:, None] == background) / 2
        evaluation = json.loads((out / "evaluation.json").read_text())
        # Two of 22,500 pairs may be so close that rounding decides.
        self.assertAlmostEqual(evaluation["metric"]["value"], above.mean().item(), delta=2.1 / above.numel())
        # Two of 150 are a rate of more than 1 %: one may pass.
        threshold = background.sort().values[-2]
        rate = (signal > threshold).double().mean().item()
        [part] = evaluation["parts"]
        self.assertEqual(part["name"], "TPR at 1 % FPR")
        self.assertAlmostEqual(part["value"], rate, delta=1.1 / len(signal))

    def test_the_papers_network_has_the_known_number_of_parameters(self) -> None:
        with torch.device("meta"):
            network = Network(**PAPER)
        self.assertEqual(sum(parameter.numel() for parameter in network.parameters()), 594_178)


if __name__ == "__main__":
    unittest.main()
