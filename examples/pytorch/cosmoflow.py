"""Which universe is it? Tells four cosmological parameters from cubes of matter, which are read from packed files.

    make data-cosmology                            # simulates the cubes, once: 2.2 GB in .deps/data/cosmology
    tradewind run examples/pytorch/cosmoflow.toml -- python examples/pytorch/cosmoflow.py

The data are those of deploy/configs/cosmoflow.toml, which docs/tasks/cosmoflow.md describes: counts of particles,
4 × 32³, at four redshifts, and Ωm, σ8, ns and h, scaled to [-1, 1]. The network is a small one of the kind of
CosmoFlow (Mathuriya et al. 2018). `tradewind data` makes such files of other data.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import tradewind as tw

REDSHIFTS, PARAMETERS = 4, 4


def prepared(sample: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Of a sample as it is in the file: what the network sees, and what it is to tell."""
    return np.log1p(sample["volume"], dtype=np.float32), sample["target"]


class Network(nn.Module):
    """Convolutions of 3³, the first of which looks at every second cell; then the mean of the whole cube."""

    def __init__(self, widths: list[int], hidden: int) -> None:
        super().__init__()
        layers = convolution(REDSHIFTS, widths[0], stride=2)
        for inputs, outputs in zip(widths, widths[1:]):
            layers += [*convolution(inputs, outputs), nn.AvgPool3d(2)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(widths[-1], hidden), nn.LeakyReLU(0.3), nn.Linear(hidden, PARAMETERS))

    def forward(self, volume: Tensor) -> Tensor:
        told: Tensor = 1.2 * torch.tanh(self.head(self.features(volume).mean((2, 3, 4))))
        return told


def convolution(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm3d(outputs), nn.LeakyReLU(0.3)]


def model_of(settings: dict[str, Any]) -> Network:
    """What section `script` of the run's file describes."""
    return Network(settings["widths"], settings["hidden"])


@torch.no_grad()
def evaluate(model: nn.Module, samples: tw.Samples) -> float:
    """Mean absolute error of the scaled parameters. One that always tells the middle is at 0.48."""
    model.eval()
    device = next(model.parameters()).device
    batches = DataLoader(samples, batch_size=16)
    errors = [(model(volume.to(device)).cpu() - target).abs() for volume, target in batches]
    return float(torch.cat(errors).mean())


def main() -> None:
    rank = tw.join()
    torch.manual_seed(rank.seed)
    folder = Path(rank.settings["folder"])
    model = model_of(rank.settings).to(rank.device)
    opt = rank.optimizer(model)

    @rank.evaluate
    def held_out_error(model: nn.Module) -> float:
        return evaluate(model, tw.Samples(folder / "held_out", rank=rank, transform=prepared))

    train = tw.Samples(folder / "train", rank=rank, transform=prepared)
    loader = rank.loader(train, num_workers=1)
    while not rank.done:
        for volume, target in loader:
            opt.zero_grad()
            loss = F.mse_loss(model(volume.to(rank.device)), target.to(rank.device))
            loss.backward()
            opt.step()
            rank.log(loss=loss)


if __name__ == "__main__":
    main()
