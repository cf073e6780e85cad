"""The built-in task `climate-boxes` beside the same network in PyTorch, which is given what a run has saved."""

import json
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from built_in import ScaledChannels, load, pack, saved, train, whole_batches

SHAPE = (3, 16, 32)
SAMPLES = {"train": 12, "validation": 4, "held_out": 6}
LAYOUT = "image=image[samples]:f32,mask=mask[samples]:u8<3"
CLASSES = 2
ENCODER = [8, 12]
PAPER = [128, 256, 512, 768, 1024, 1280]
SEED, LABELLED, RECONSTRUCTION, EVENT_CELLS = 3, 0.5, 10.0, 4
Box = tuple[float, float, float, float]


class Network(nn.Module):
    """Convolutions that look at every second cell, heads of 3×3 cells, and the convolutions transposed."""

    def __init__(self, encoder: list[int], channels: int, classes: int = CLASSES, norm: bool = True) -> None:
        super().__init__()
        pairs = list(zip([channels, *encoder], encoder))
        self.input = ScaledChannels(channels)
        self.encoder = nn.ModuleList(nn.Conv2d(into, out, 5, 2, 2, bias=not norm) for into, out in pairs)
        self.norm = nn.ModuleList(nn.BatchNorm2d(out) if norm else nn.Identity() for out in encoder)
        self.place = nn.Conv2d(encoder[-1], 4, 3, padding=1)
        self.object = nn.Conv2d(encoder[-1], 2, 3, padding=1)
        # `class` is no name in Python.
        self.add_module("class", nn.Conv2d(encoder[-1], classes, 3, padding=1))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
        """The scaled image, what the heads tell, and the reconstruction."""
        x = scaled = self.input(image)
        for layer, norm in zip(self.encoder, self.norm):
            x = functional.leaky_relu(norm(layer(x)), 0.1)
        heads = [head(x) for head in (self.place, self.object, self.get_submodule("class"))]
        for number, layer in reversed(list(enumerate(self.encoder))):
            x = functional.conv_transpose2d(x, layer.weight, None, 2, 2, 1)
            x = functional.leaky_relu(x, 0.1) if number else x
        return scaled, heads, x


def mixed(seed: int, *parts: int) -> int:
    """SplitMix64's mixing of each in turn."""

    def stirred(state: int) -> int:
        z = state + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ z >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return z ^ z >> 31

    state = stirred(seed)
    for part in parts:
        state = stirred(state ^ part)
    return state


def labelled(samples: int) -> list[int]:
    """The maps whose events are known."""
    word = int.from_bytes(b"labelled")
    order = sorted(range(samples), key=lambda sample: mixed(SEED, word, sample))
    return order[: round(LABELLED * samples)]


def drawn(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray, list[list[tuple[int, Box]]]]:
    """Noise with rectangles of two classes, which are bright in the first and in the second channel; and their boxes."""
    generator = np.random.default_rng(seed)
    image = generator.normal(300.0, 5.0, (samples, *SHAPE)).astype("f4")
    mask = np.zeros((samples, *SHAPE[1:]), "u1")
    boxes: list[list[tuple[int, Box]]] = []
    for sample in range(samples):
        boxes.append([])
        # In quarters of the map, so that they do not touch.
        for quarter in range(4):
            kind = int(generator.integers(CLASSES))
            height, width = generator.integers(2, 6, 2)
            top = int(quarter // 2 * 8 + generator.integers(0, 7 - height + 1))
            left = int(quarter % 2 * 16 + generator.integers(0, 15 - width + 1))
            place = np.s_[top : top + height, left : left + width]
            mask[sample][place] = kind + 1
            image[sample, kind][place] += 60.0
            boxes[-1].append((kind, (float(top), float(left), float(height), float(width))))
    return image, mask, boxes


def targets(boxes: list[tuple[int, Box]], size: int) -> torch.Tensor:
    """What the heads are to tell of a map: place, event, class."""
    told = torch.zeros(6, SHAPE[1] // size, SHAPE[2] // size)
    for kind, (top, left, height, width) in sorted(boxes, key=lambda box: box[1][2] * box[1][3]):
        y, x = (top + height / 2) / size, (left + width / 2) / size
        sides = np.log2(height / size), np.log2(width / size)
        told[:, int(y), int(x)] = torch.tensor([y % 1, x % 1, *sides, 1.0, kind])
    return told


def box_loss(heads: list[torch.Tensor], told: torch.Tensor) -> torch.Tensor:
    """Of each map."""
    place, event, kind = heads
    is_event, log = told[:, 4], event.log_softmax(1)
    places = functional.smooth_l1_loss(place, told[:, :4], reduction="none")
    places = 5 * places[:, :2].sum(1) + 7 * places[:, 2:].sum(1)
    kinds = functional.cross_entropy(kind, told[:, 5].long(), reduction="none")
    cells = is_event * (places - log[:, 0] + kinds) - 0.5 * (1 - is_event) * log[:, 1]
    return cells.sum((1, 2))


def overlap(a: Box, b: Box) -> float:
    sides = [min(a[at] + a[at + 2], b[at] + b[at + 2]) - max(a[at], b[at]) for at in (0, 1)]
    both = max(sides[0], 0.0) * max(sides[1], 0.0)
    return both / (a[2] * a[3] + b[2] * b[3] - both)


def told_boxes(heads: list[torch.Tensor], size: int, kind: int) -> list[tuple[float, Box]]:
    """Scores and boxes of a class on one map, those apart that a surer one overlaps."""
    place, event, kinds = (head.double() for head in heads)
    scores = event.softmax(0)[0] * kinds.softmax(0)[kind]
    boxes = []
    for y, x in np.ndindex(*scores.shape):
        middle = ((y + place[0, y, x].item()) * size, (x + place[1, y, x].item()) * size)
        sides = [2 ** place[at, y, x].item() * size for at in (2, 3)]
        edges = []
        for at in (0, 1):
            ends = (middle[at] - sides[at] / 2, middle[at] + sides[at] / 2)
            edges.append([min(max(end, 0.0), SHAPE[at + 1]) for end in ends])
        (top, bottom), (left, right) = edges
        boxes.append((scores[y, x].item(), (top, left, bottom - top, right - left)))
    kept: list[tuple[float, Box]] = []
    for score, box in sorted(boxes, reverse=True):
        if box[2] > 0 and box[3] > 0 and all(overlap(box, other) < 0.5 for _, other in kept):
            kept.append((score, box))
    return kept


def average_precision(told: list[list[tuple[float, Box]]], true: list[list[Box]]) -> float:
    """The sum over events that are found of the best precision at that recall or a higher one."""
    hits = []
    for boxes, events in zip(told, true):
        found = set()
        for score, box in boxes:
            overlaps = [overlap(box, event) for event in events]
            best = int(np.argmax(overlaps)) if overlaps else -1
            hit = best >= 0 and overlaps[best] >= 0.5 and best not in found
            found |= {best} if hit else set()
            hits.append((score, hit))
    right = np.cumsum([hit for _, hit in sorted(hits, reverse=True)])
    precision = right / np.arange(1, len(right) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return float((best * np.diff(right, prepend=0)).sum() / sum(map(len, true)))


class ClimateBoxes(unittest.TestCase):
    def test_a_run_tells_what_pytorch_tells(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.check(Path(folder))

    def check(self, root: Path) -> None:
        for seed, (part, samples) in enumerate(SAMPLES.items()):
            pack(self, root, part, LAYOUT, dict(zip(("image", "mask"), drawn(samples, seed)[:2])))
        batch = SAMPLES["train"]
        keys = {
            "run.seed": SEED,
            "model.name": "climate-boxes",
            "model.encoder": ENCODER,
            "model.norm": True,
            "model.labelled": LABELLED,
            "model.reconstruction": RECONSTRUCTION,
            "data.folder": str(root / "data"),
            "data.augment": False,
            "data.event_cells": EVENT_CELLS,
            **whole_batches(batch),
            "optimizer.learning_rate": 0.05,
        }
        train(self, keys, root / "run")
        network = Network(ENCODER, SHAPE[0])
        load(self, network, root / "run")
        size = 2 ** len(ENCODER)

        # All samples are in the batch of a step.
        image, _, boxes = drawn(batch, 0)
        known = labelled(batch)
        told = torch.stack([targets(boxes[sample], size) for sample in known])
        lines = (root / "run/metrics.jsonl").read_text().splitlines()
        losses = [json.loads(line)["loss"] for line in lines]
        with torch.no_grad():
            scaled, heads, again = network(torch.from_numpy(image))
            loss = box_loss([head[known] for head in heads], told).mean()
            loss += RECONSTRUCTION * functional.mse_loss(again, scaled)
        self.assertAlmostEqual(losses[-1] / loss.item(), 1.0, delta=1e-5)
        self.assertLess(losses[-1], 0.5 * losses[0], "it has learned something")

        # The statistics are those that are saved, and not those that the batch has moved.
        load(self, network, root / "run")
        network.eval()
        image, mask, boxes = drawn(SAMPLES["held_out"], 2)
        with torch.no_grad():
            scaled, heads, again = network(torch.from_numpy(image))
        evaluation = json.loads((root / "run/evaluation.json").read_text())
        maps = range(SAMPLES["held_out"])
        all_told = []
        for kind in range(CLASSES):
            told_of = [told_boxes([head[sample] for head in heads], size, kind) for sample in maps]
            true_of = [[box for of, box in boxes[sample] if of == kind] for sample in maps]
            precision = average_precision(told_of, true_of)
            self.assertAlmostEqual(evaluation["parts"][kind]["value"], precision, delta=1e-5)
            all_told.append(told_of)
        self.assertGreater(evaluation["metric"]["value"], 0.1)
        error = ((again - scaled) ** 2).sum() / (scaled**2).sum()
        self.assertAlmostEqual(evaluation["parts"][CLASSES]["value"], error.item(), delta=1e-5)

        # The picture shows the map with most cells of events, and the boxes of it that are sure.
        shown = int(np.argmax((mask > 0).sum((1, 2))))
        picture = saved(root / "run/forecast.safetensors")
        self.assertLess((picture["forecast"] - again[shown, 0]).abs().max(), 1e-4)
        degrees = [180 / SHAPE[1], 360 / SHAPE[2]]
        want = [
            ((top * degrees[0] - 90, left * degrees[1]), (height * degrees[0], width * degrees[1]), kind + 1)
            for kind, told_of in enumerate(all_told)
            for score, (top, left, height, width) in told_of[shown]
            if score >= 0.5
        ]
        self.assertEqual(len(picture["forecast.outlines"]), len(want))
        for (south, west, north, east, kind), (corner, sides, of) in zip(picture["forecast.outlines"].tolist(), want):
            np.testing.assert_allclose([south, west], corner, atol=1e-3)
            np.testing.assert_allclose([north - south, east - west], sides, atol=1e-3)
            self.assertEqual(kind, of)

    def test_the_papers_network_has_the_known_number_of_parameters(self) -> None:
        for classes, parameters in ((4, 66_525_578), (2, 66_502_536)):
            with torch.device("meta"):
                network = Network(PAPER, 16, classes, norm=False)
            self.assertEqual(sum(parameter.numel() for parameter in network.parameters()), parameters)


if __name__ == "__main__":
    unittest.main()
