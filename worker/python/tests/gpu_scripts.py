"""Scripts of ranks on GPUs that are played (tests/fake/gpu): `python gpu_scripts.py NAME` is a rank."""

import ctypes
import sys

import eager  # noqa: F401
import torch
from torch import nn
from torch.utils.data import Dataset

from telling import join
from telling import told_in_training as told


class Ones(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.ones(8)


class Product(nn.Module):
    """Of operations whose kernels need no library of NVIDIA's. What is computed is not looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.a * self.b).sum()


def contexts() -> list[int]:
    """The GPUs that this process has a context on."""
    made_by = ctypes.CDLL(None).fake_context
    made_by.restype = ctypes.c_char_p
    return [device for device in range(2) if made_by(device, ctypes.byref(ctypes.c_int()))]


def train() -> None:
    rank = join()
    net = Product().to(rank.device)
    opt = rank.optimizer(net)
    while not rank.done:
        for batch in rank.loader(Ones()):
            opt.zero_grad()
            net(batch.to(rank.device)).backward()
            opt.step()
    told(f"contexts-{rank.group}", contexts())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
