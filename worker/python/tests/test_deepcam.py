"""The built-in task `deepcam` beside the same network in PyTorch, which is given what a run has saved."""

import json
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
from torch import nn

from built_in import ScaledChannels, load, pack, train, whole_batches

SHAPE = (5, 16, 32)
SAMPLES = {"train": 8, "validation": 4, "held_out": 6}
LAYOUT = "image=image[samples]:f32,mask=mask[samples]:u8<3"
SMALL = {
    "stride": 2,
    "first": [4, 6],
    "entry": [8, 10],
    "middle": 1,
    "exit": [12, 14],
    "rates": [1, 2],
    "context": 8,
    "detail": 4,
}
PAPER = {
    "stride": 2,
    "first": [32, 64],
    "entry": [128, 256, 728],
    "middle": 16,
    "exit": [1024, 1536, 1536, 2048],
    "rates": [6, 12, 18],
    "context": 256,
    "detail": 48,
}


class Layer(nn.Module):
    """A convolution, of all channels or separable, with batch normalisation if it is to have one."""

    def __init__(
        self, into: int, out: int, kernel: int = 3, stride: int = 1, rate: int = 1, separable: bool = False, norm: bool = True
    ) -> None:
        super().__init__()
        options = {"stride": stride, "padding": rate * (kernel - 1) // 2, "dilation": rate, "bias": False}
        if separable:
            self.depth = nn.Conv2d(into, into, kernel, groups=into, **options)
            self.point = nn.Conv2d(into, out, 1, bias=False)
        else:
            self.conv = nn.Conv2d(into, out, kernel, **options)
        self.separable = separable
        self.norm = nn.BatchNorm2d(out) if norm else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.point(self.depth(x)) if self.separable else self.conv(x))


class Larger(nn.Module):
    """A transposed convolution that doubles the size, with batch normalisation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, channels, 3, 2, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


class Block(nn.Module):
    """A chain of layers, added to what comes in, which is rectified first where `is_first` is not set."""

    def __init__(self, layers: list[Layer], skip: Layer | None, is_first: bool = False) -> None:
        super().__init__()
        self.layers, self.is_first = nn.ModuleList(layers), is_first
        self.skip = skip or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = x = x if self.is_first else x.relu()
        for number, layer in enumerate(self.layers):
            if number > 0 and not isinstance(layer.norm, nn.Identity):
                own = own.relu()
            own = layer(own)
        return own + self.skip(x)


def halving(into: int, out: int, first: bool) -> Block:
    layers = [
        Layer(into, out, separable=True),
        Layer(out, out, separable=True),
        Layer(out, out, stride=2, separable=True, norm=False),
    ]
    return Block(layers, Layer(into, out, 1, 2), first)


def growing(into: int, out: int) -> Block:
    layers = [
        Layer(into, into, separable=True),
        Layer(into, out, separable=True),
        Layer(out, out, separable=True, norm=False),
    ]
    return Block(layers, Layer(into, out, 1))


class Pooled(nn.Module):
    """The mean of all cells, with a scale and a bias."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(into, out, 1, bias=False)
        self.weight, self.bias = nn.Parameter(torch.ones(out)), nn.Parameter(torch.zeros(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        told = self.conv(x.mean((2, 3), keepdim=True))
        return (told * self.weight[:, None, None] + self.bias[:, None, None]).relu().expand(-1, -1, *x.shape[2:])


class Network(nn.Module):
    """DeepLabv3+ on Xception with transposed convolutions, as in MLPerf HPC's reference."""

    def __init__(self, model: dict, channels: int, classes: int = 3) -> None:
        super().__init__()
        wide, fine = model["context"], model["detail"]
        one, two = model["first"]
        entry, (grown, *rest) = [two, *model["entry"]], model["exit"]
        self.input = ScaledChannels(channels)
        self.first = nn.ModuleList([Layer(channels, one, stride=model["stride"]), Layer(one, two)])
        blocks = [halving(*pair, number == 0) for number, pair in enumerate(zip(entry, entry[1:]))]
        middle = entry[-1]
        blocks += [Block([Layer(middle, middle, separable=True) for _ in range(3)], None) for _ in range(model["middle"])]
        self.blocks = nn.ModuleList([*blocks, growing(middle, grown)])
        exits = list(zip([grown, *rest], rest))
        self.exit = nn.ModuleList(Layer(*pair, rate=2, separable=True) for pair in exits)
        into = model["exit"][-1]
        holes = [Layer(into, wide, rate=rate) for rate in model["rates"]]
        self.context = nn.ModuleList([Layer(into, wide, 1), *holes])
        self.pooled = Pooled(into, wide)
        self.joined = Layer((len(holes) + 2) * wide, wide, 1)
        self.detail = Layer(model["entry"][0], fine, 1)
        self.larger = nn.ModuleList(Larger(wide) for _ in model["entry"][1:])
        self.decoder = nn.ModuleList([Layer(wide + fine, wide), Layer(wide, wide)])
        self.mixed = nn.Conv2d(wide, wide, 1)
        self.is_strided = model["stride"] == 2
        if self.is_strided:
            self.largest = Larger(wide)
        self.last = nn.ConvTranspose2d(wide, classes, 3, 2, 1, 1, bias=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.input(image)
        for layer in self.first:
            x = layer(x).relu()
        fine = x = self.blocks[0](x)
        for block in self.blocks[1:]:
            x = block(x)
        for layer in self.exit:
            x = layer(x).relu()
        x = torch.cat([*(layer(x).relu() for layer in self.context), self.pooled(x)], 1)
        x = self.joined(x).relu()
        for layer in self.larger:
            x = layer(x).relu()
        x = torch.cat([x, self.detail(fine).relu()], 1)
        for layer in self.decoder:
            x = layer(x).relu()
        x = self.mixed(x)
        return self.last(self.largest(x).relu() if self.is_strided else x)


def maps(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise, with a class where the first channel is high and another where the second is."""
    image = np.random.default_rng(seed).normal(300.0, 20.0, (samples, *SHAPE)).astype("f4")
    mask = np.where(image[:, 0] > 320, 1, np.where(image[:, 1] > 320, 2, 0)).astype("u1")
    return image, mask


class Deepcam(unittest.TestCase):
    def test_a_run_tells_what_pytorch_tells(self) -> None:
        for stride in (2, 1):
            with self.subTest(stride=stride), tempfile.TemporaryDirectory() as folder:
                self.check(Path(folder), SMALL | {"stride": stride})

    def check(self, root: Path, small: dict) -> None:
        for seed, (part, samples) in enumerate(SAMPLES.items()):
            pack(self, root, part, LAYOUT, dict(zip(("image", "mask"), maps(samples, seed))))
        batch = SAMPLES["train"]
        keys = {
            "model.name": "deepcam",
            "data.folder": str(root / "data"),
            "data.augment": False,
            **whole_batches(batch),
            "optimizer.learning_rate": 0.01,
            **{f"model.{key}": value for key, value in small.items()},
        }
        train(self, keys, root / "run")
        network = Network(small, SHAPE[0])
        load(self, network, root / "run")

        # All samples are in the batch of a step.
        image, mask = (torch.from_numpy(values) for values in maps(batch, 0))
        parts = torch.bincount(mask.flatten().long(), minlength=3) / mask.numel()
        lines = (root / "run/metrics.jsonl").read_text().splitlines()
        losses = [json.loads(line)["loss"] for line in lines]
        with torch.no_grad():
            each = nn.functional.cross_entropy(network(image), mask.long(), parts**-0.125, reduction="none")
        self.assertAlmostEqual(losses[-1], each.mean().item(), delta=1e-5)
        self.assertLess(losses[-1], losses[0] - 0.1, "it has learned something")

        # The statistics are those that are saved, and not those that the batch has moved.
        load(self, network, root / "run")
        network.eval()
        image, mask = (torch.from_numpy(values) for values in maps(SAMPLES["held_out"], 2))
        with torch.no_grad():
            told = network(image).argmax(1)
        evaluation = json.loads((root / "run/evaluation.json").read_text())
        for number, part in enumerate(evaluation["parts"]):
            both = ((told == number) & (mask == number)).sum().item()
            either = ((told == number) | (mask == number)).sum().item()
            # One cell may be so close that rounding decides.
            self.assertAlmostEqual(part["value"], both / either, delta=1.5 / either)

    def test_the_papers_network_has_the_known_number_of_parameters(self) -> None:
        with torch.device("meta"):
            network = Network(PAPER, 16)
        self.assertEqual(sum(parameter.numel() for parameter in network.parameters()), 56_454_720)


if __name__ == "__main__":
    unittest.main()
