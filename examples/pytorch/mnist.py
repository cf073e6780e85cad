"""MNIST: the network, the initial values' distribution and the settings of the built-in task `mnist`, in PyTorch.

    make mnist                                     # fetches the images, once
    tradewind run examples/pytorch/mnist.toml -- python examples/pytorch/mnist.py

It shows a data set that is a few tensors in memory: `__getitems__` takes a whole batch at once, which is much
faster than stacking samples.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import tradewind as tw

#: Mean and standard deviation of the pixels of the training images, in the pixels' unit.
PIXELS = (33.32, 78.57)
#: The last one of so many training images is for validation.
VALIDATION_PART = 6


class Digits(Dataset):
    """Images `[n, 1, 28, 28]`, 0 for paper to 255 for ink, and digits `[n]`, from MNIST's IDX files."""

    def __init__(self, folder: str, split: str = "train") -> None:
        file = "t10k" if split == "test" else "train"
        images = _bytes(folder, f"{file}-images-idx3-ubyte", 16).view(-1, 1, 28, 28)
        digits = _bytes(folder, f"{file}-labels-idx1-ubyte", 8).long()
        kept = len(images) if split == "test" else len(images) - len(images) // VALIDATION_PART
        self.images, self.digits = images[:kept], digits[:kept]

    def __len__(self) -> int:
        return len(self.digits)

    def __getitems__(self, numbers: list[int]) -> tuple[Tensor, Tensor]:
        return self.images[numbers], self.digits[numbers]


def _bytes(folder: str, name: str, header: int) -> Tensor:
    return torch.frombuffer(bytearray(Path(folder, name).read_bytes()), dtype=torch.uint8)[header:]


class Net(nn.Module):
    """Two convolutions with pooling and one hidden layer: 80 KB."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 5)
        self.fc1, self.fc2 = nn.Linear(256, 64), nn.Linear(64, 10)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu")
            else:
                nn.init.zeros_(parameter)
        # Small, so that at first all digits are about as likely.
        nn.init.normal_(self.fc2.weight, std=0.01)

    def forward(self, images: Tensor) -> Tensor:
        """Logits `[n, 10]`."""
        mean, deviation = PIXELS
        maps = (images.float() - mean) / deviation
        for conv in (self.conv1, self.conv2):
            maps = F.max_pool2d(conv(maps), 2).relu()
        return self.fc2(self.fc1(maps.flatten(1)).relu())


@torch.no_grad()
def evaluate(model: nn.Module, data: Digits) -> float:
    """Per cent of the images whose digit is told."""
    device = next(model.parameters()).device
    right = [(model(images.to(device)).argmax(1).cpu() == digits).sum() for images, digits in _batches(data)]
    return 100 * float(sum(right)) / len(data)


def _batches(data: Digits) -> list[tuple[Tensor, Tensor]]:
    return list(zip(data.images.split(500), data.digits.split(500)))


def main() -> None:
    rank = tw.join()
    torch.manual_seed(rank.seed)
    model = Net().to(rank.device)
    opt = rank.optimizer(model)
    data = Digits(rank.settings["folder"])

    @rank.evaluate(better="higher")
    def test_accuracy(model: nn.Module) -> float:
        return evaluate(model, Digits(rank.settings["folder"], "test"))

    # What __getitems__ returns is a batch already.
    loader = rank.loader(data, collate_fn=lambda batch: batch)
    while not rank.done:
        for images, digits in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(images.to(rank.device)), digits.to(rank.device))
            loss.backward()
            opt.step()
            rank.log(loss=loss)


if __name__ == "__main__":
    main()
