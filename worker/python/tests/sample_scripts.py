"""Scripts of the tests of samples in files: `python sample_scripts.py NAME` is a rank."""

import sys
from typing import Any

import eager  # noqa: F401
import torch
from torch import nn

import tradewind as tw
from scripts import killed_once
from telling import join, told_in_training


def prepared(sample: dict[str, Any]) -> tuple[Any, Any]:
    """Of one with a number and an image of that number: the image, and the number."""
    return sample["image"].astype("f4") / 64, sample["number"]


def train() -> None:
    """`script.samples` is where they are; with `script.spawn` the loader's workers are spawned."""
    rank = join()
    settings = rank.settings
    data = tw.Samples(settings["samples"], rank=rank, transform=prepared)
    torch.manual_seed(1)
    net = nn.Linear(data[0][0].size, 1)
    opt = rank.optimizer(net)
    context = "spawn" if settings.get("spawn") else None
    loader = rank.loader(data, num_workers=settings.get("workers", 0), multiprocessing_context=context)
    taken = 0
    killed_once(rank, taken)
    while not rank.done:
        for images, numbers in loader:
            opt.zero_grad()
            loss = (net(images.flatten(1)).squeeze(1) - numbers / 64).square().mean()
            loss.backward()
            opt.step()
            # By what was read.
            read = (images.mean((1, 2)) * 64).round().int().tolist()
            told_in_training(f"read-{rank.group}-{rank.rank}", list(zip(numbers.tolist(), read)))
            taken += 1
            killed_once(rank, taken)


def of_no_rank() -> None:
    rank = join()
    rank.optimizer(nn.Linear(6, 1))
    rank.loader(tw.Samples(rank.settings["samples"]))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
