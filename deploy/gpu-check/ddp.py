#!/usr/bin/env python3
"""PyTorch's own DistributedDataParallel on the network that `tradewind-gpu-check` trains: ResNet-50
of torchvision, one rank, SGD with momentum, f32 without TF32 or autocast to bf16. Writes what a step
takes, seconds, as JSON.

On the CPU the network is the tiny one with which the check itself is tested.
"""

import argparse
import json
import os
import resource
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


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


class Images(Dataset):
    """Images that cost as much to make as those of the plain loop: the pattern of a kind, 4 x 4
    squares, with noise of a table over it."""

    SQUARES = 4
    PLACES = 65521

    def __init__(self, size, classes, samples):
        self.size, self.classes, self.samples = size, classes, samples
        self.patterns = torch.randn(classes, 3, self.SQUARES, 1, self.SQUARES, 1)
        self.noise = torch.randn(self.PLACES + 3 * size * size)

    def __len__(self):
        return self.samples

    def __getitems__(self, samples):
        """A batch: images `[samples, 3, y, x]` and their kinds."""
        squares, edge = self.SQUARES, self.size // self.SQUARES
        images = torch.empty(len(samples), 3, squares, edge, squares, edge)
        kinds = torch.tensor([sample * 7919 % self.classes for sample in samples])
        for image, kind, sample in zip(images, kinds, samples):
            place = sample * 104729 % self.PLACES
            noise = self.noise[place : place + image.numel()].view(image.shape)
            torch.add(noise, self.patterns[kind], out=image)
        return images.view(len(samples), 3, self.size, self.size), kinds


def as_they_are(batch):
    return batch


def read_ahead(images, told):
    """By whom batches are read ahead, in words; and the batches, in page-locked memory for a GPU."""
    cuda = told.device == "cuda"
    shared = os.statvfs("/dev/shm")
    free = shared.f_bavail * shared.f_frsize
    if free > 2 * told.ahead * told.batch * 4 * 3 * told.pixels**2:
        loader = DataLoader(
            images,
            batch_size=told.batch,
            collate_fn=as_they_are,
            num_workers=told.readers,
            prefetch_factor=told.ahead // told.readers,
            pin_memory=cuda,
            persistent_workers=True,
        )
        return f"DataLoader, {told.readers} workers", iter(loader)
    # Workers of a DataLoader hand batches over in shared memory.
    why = f"{told.readers} threads: /dev/shm has {free >> 20} MiB, too few for a DataLoader"
    return why, by_threads(images, told)


def by_threads(images, told):
    def batch(begin):
        batch = images.__getitems__(range(begin, begin + told.batch))
        return [t.pin_memory() for t in batch] if told.device == "cuda" else batch

    with ThreadPoolExecutor(told.readers) as pool:
        begins = iter(range(0, len(images), told.batch))
        waiting = deque(pool.submit(batch, begin) for begin in islice(begins, told.ahead))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(batch, begin) for begin in islice(begins, 1))


def cpu_seconds():
    """Of this process, without workers."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--precision", choices=["f32", "bf16"], required=True)
    for name in ["pixels", "batch", "warmup", "steps", "readers", "ahead"]:
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--tuned", action="store_true", help="channels last, and cuDNN tries its ways to convolve")
    parser.add_argument("--out", required=True)
    told = parser.parse_args()

    cuda = told.device == "cuda"
    device = torch.device("cuda:0" if cuda else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = told.tuned
    layout = torch.channels_last if told.tuned else torch.contiguous_format
    if not cuda:
        torch.set_num_threads(1)
    torch.manual_seed(1)
    blocks, width, classes = ([3, 4, 6, 3], 64, 1000) if cuda else ([1, 1, 1, 1], 4, 10)
    # Some more batches than steps, so that the last ones are read ahead, too.
    count = told.warmup + told.steps + told.ahead
    images = Images(told.pixels, classes, count * told.batch)
    readers, batches = read_ahead(images, told)
    # One rank needs no peer, and no port of this machine.
    store = dist.HashStore()
    dist.init_process_group("nccl" if cuda else "gloo", store=store, rank=0, world_size=1)
    network = ResNet(blocks, width, classes).to(device, memory_format=layout)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    network = DistributedDataParallel(network, device_ids=[0] if cuda else None)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    autocast = torch.autocast(told.device, dtype=torch.bfloat16, enabled=told.precision == "bf16")

    loss = torch.zeros(())
    begin, used, waited = time.perf_counter(), cpu_seconds(), 0.0
    for step in range(told.warmup + told.steps):
        if step == told.warmup:
            # Reading the loss waits for the device.
            loss.item()
            begin, used, waited = time.perf_counter(), cpu_seconds(), 0.0
        waits = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - waits
        pixels, kinds = (t.to(device, non_blocking=True) for t in batch)
        pixels = pixels.contiguous(memory_format=layout)
        optimizer.zero_grad(set_to_none=True)
        with autocast:
            loss = nn.functional.cross_entropy(network(pixels), kinds)
        loss.backward()
        optimizer.step()
    loss.item()
    seconds = time.perf_counter() - begin
    used = cpu_seconds() - used
    dist.destroy_process_group()
    found = {
        "step_seconds": seconds / told.steps,
        "data_seconds": waited / told.steps,
        "cpu_seconds": used / told.steps,
        "parameters": parameters,
        "readers": readers,
        "torch": torch.__version__,
    }
    # Readers see the whole file or none.
    with open(told.out + ".part", "w") as file:
        json.dump(found, file)
    os.rename(told.out + ".part", told.out)


if __name__ == "__main__":
    main()
