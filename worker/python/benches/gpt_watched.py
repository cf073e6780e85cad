"""examples/pytorch/gpt.py, writing down which samples each step has used: `gpt_watched.py FOLDER`.

Each process of a rank has a file in FOLDER. Before a step it writes the group, the rank and the step's samples with
their epoch; after it, whether the step was applied in the incarnation of the group that has computed it.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples/pytorch"))

import torch
from torch.utils.data import Dataset

import gpt
import tradewind as tw


class Numbered(Dataset):
    """Data with the samples' numbers."""

    def __init__(self, data: Dataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return self.data[number], number


class Watched:
    """The native half of a rank, noting what epoch a batch is of."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.epochs: dict[tuple[int, ...], int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def next_batch(self) -> tuple[int, list[int]]:
        epoch, samples = self.native.next_batch()
        self.epochs[tuple(samples)] = epoch
        return epoch, samples


def main() -> None:
    rank = tw.join()
    watched = rank._native = rank._dealt._native = Watched(rank._native)
    torch.manual_seed(rank.seed)
    model = gpt.model_of(rank.settings)
    opt = rank.optimizer(model)
    data, _ = gpt.reference(rank.settings["context"])
    loader = rank.loader(Numbered(data))
    with open(Path(sys.argv[1]) / f"{rank.group}-{rank.rank}-{os.getpid()}", "w", buffering=1) as file:
        while not rank.done:
            for batch, numbers in loader:
                samples, incarnation = tuple(numbers.tolist()), rank._incarnations
                opt.zero_grad()
                loss = gpt.loss_of(model, batch)
                loss.backward()
                used = {"group": rank.group, "epoch": watched.epochs[samples], "samples": samples, "life": incarnation}
                file.write(json.dumps(used) + "\n")
                opt.step()
                file.write(json.dumps({"applied": rank._incarnations == incarnation}) + "\n")
                rank.log(loss=loss)


main()
