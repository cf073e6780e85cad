"""LoRA (Hu et al. 2021): fine-tunes the GPT of gpt.py, frozen, on another text, through small matrices beside its own.

    tradewind run examples/pytorch/gpt.toml -- python examples/pytorch/gpt.py
    tradewind export --out gpt.safetensors
    tradewind run examples/pytorch/lora.toml -- python examples/pytorch/lora.py

The text is source code of Python's standard library. Parameters with `requires_grad` False stay what the script has
loaded: only the small matrices, 3 % of the parameters, are exchanged and kept by servers.
"""

import argparse
import inspect
import tarfile
import typing

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tradewind as tw
from gpt import GPT, Text, evaluate, loss_of, model_of

__all__ = ["evaluate", "sources", "with_lora"]


class LoRA(nn.Module):
    """A linear layer that stays as it is, plus the product of two matrices of rank `rank`, which is 0 at first."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + F.linear(F.linear(x, self.down), self.up)


def with_lora(model: GPT, rank: int) -> GPT:
    """Freezes a model, in place, and puts matrices of rank `rank` beside those of its attention."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("qkv", "out"):
            setattr(block, name, LoRA(getattr(block, name), rank))
    return model


def sources(context: int) -> tuple[Text, Text]:
    """Source code: two modules to train on, and one."""
    training, held_out = inspect.getsource(argparse) + inspect.getsource(tarfile), inspect.getsource(typing)
    return Text(training, context), Text(held_out, context)


def main() -> None:
    from safetensors.torch import load_file

    rank = tw.join()
    torch.manual_seed(rank.seed)
    model = model_of(rank.settings)
    model.load_state_dict(load_file(rank.settings["base"]))
    with_lora(model, rank.settings["lora_rank"]).to(rank.device)
    opt = rank.optimizer(model)
    data, held_out = sources(rank.settings["context"])

    @rank.evaluate
    def held_out_loss(model: nn.Module) -> float:
        return evaluate(model, held_out)

    loader = rank.loader(data)
    while not rank.done:
        for batch in loader:
            opt.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            opt.step()
            rank.log(loss=loss)


if __name__ == "__main__":
    main()
