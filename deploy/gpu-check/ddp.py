#!/usr/bin/env python3
"""PyTorch's own DistributedDataParallel on the network that `tradewind-gpu-check` trains: ResNet-50
of torchvision, one rank, SGD with momentum, f32 without TF32. Writes samples per second, as JSON.

On the CPU the network is the tiny one with which the check itself is tested.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Bottleneck(nn.Module):
    """He et al. 2015, figure 5; the stride is at the 3x3 convolution."""

    def __init__(self, into, middle, stride):
        super().__init__()
        out = 4 * middle
        self.conv1 = nn.Conv2d(into, middle, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, middle, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(middle)
        self.conv3 = nn.Conv2d(middle, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or into != out:
            self.downsample = nn.Sequential(
                nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x):
        hidden = torch.relu(self.bn1(self.conv1(x)))
        hidden = torch.relu(self.bn2(self.conv2(hidden)))
        hidden = self.bn3(self.conv3(hidden))
        shortcut = x if self.downsample is None else self.downsample(x)
        return torch.relu(hidden + shortcut)


class ResNet(nn.Module):
    def __init__(self, blocks, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        layers, into = [], width
        for stage, count in enumerate(blocks):
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                layers.append(Bottleneck(into, width << stage, stride))
                into = 4 * (width << stage)
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(into, classes)

    def forward(self, x):
        hidden = torch.relu(self.bn1(self.conv1(x)))
        hidden = nn.functional.max_pool2d(hidden, 3, 2, 1)
        return self.fc(self.layers(hidden).mean((2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    for name in ["pixels", "batch", "warmup", "steps"]:
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--out", required=True)
    told = parser.parse_args()

    cuda = told.device == "cuda"
    device = torch.device("cuda:0" if cuda else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if not cuda:
        torch.set_num_threads(1)
    torch.manual_seed(1)
    # One rank needs no peer, and no port of this machine.
    store = dist.HashStore()
    dist.init_process_group("nccl" if cuda else "gloo", store=store, rank=0, world_size=1)
    blocks, width, classes = ([3, 4, 6, 3], 64, 1000) if cuda else ([1, 1, 1, 1], 4, 10)
    network = ResNet(blocks, width, classes).to(device)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    network = DistributedDataParallel(network, device_ids=[0] if cuda else None)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    # Page-locked batches in turn: as quick as data can be had.
    def batch():
        images = torch.randn(told.batch, 3, told.pixels, told.pixels)
        kinds = torch.randint(classes, (told.batch,))
        return (images.pin_memory(), kinds.pin_memory()) if cuda else (images, kinds)

    batches = [batch() for _ in range(4)]
    loss = torch.zeros(())
    begin = time.perf_counter()
    for step in range(told.warmup + told.steps):
        if step == told.warmup:
            # Reading the loss waits for the device.
            loss.item()
            begin = time.perf_counter()
        images, kinds = (t.to(device, non_blocking=True) for t in batches[step % len(batches)])
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(network(images), kinds)
        loss.backward()
        optimizer.step()
    loss.item()
    seconds = time.perf_counter() - begin
    dist.destroy_process_group()
    found = {
        "samples_per_second": told.steps * told.batch / seconds,
        "step_seconds": seconds / told.steps,
        "parameters": parameters,
        "torch": torch.__version__,
    }
    # Readers see the whole file or none.
    with open(told.out + ".part", "w") as file:
        json.dump(found, file)
    os.rename(told.out + ".part", told.out)


if __name__ == "__main__":
    main()
