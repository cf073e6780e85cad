"""A character-level GPT of 1 M parameters, trained on the language reference that every Python ships.

    tradewind run examples/pytorch/gpt.toml -- python examples/pytorch/gpt.py

The text is `pydoc_data.topics`: what `help("for")` and the like print, 0.5 MB. It shows `num_workers` of the loader
and clipping of the group's averaged gradient.
"""

import pydoc_data.topics
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import tradewind as tw

#: What the model knows; all else is read as a question mark.
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))


class Text(Dataset):
    """Windows of a text: `context` characters, and for each the next one, as two tensors `[context]` of numbers."""

    def __init__(self, text: str, context: int) -> None:
        known = {character: number for number, character in enumerate(ALPHABET)}
        self.characters = torch.tensor([known.get(character, known["?"]) for character in text])
        self.context = context

    def __len__(self) -> int:
        return (len(self.characters) - 1) // self.context

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        begin = number * self.context
        window = self.characters[begin : begin + self.context + 1]
        return window[:-1], window[1:]


def reference(context: int) -> tuple[Text, Text]:
    """Python's language reference: nine tenths to train on, and the rest."""
    text = "\n\n".join(pydoc_data.topics.topics.values())
    kept = len(text) * 9 // 10
    return Text(text[:kept], context), Text(text[kept:], context)


class Block(nn.Module):
    """Attention to what came before, and two layers for each character by itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """From `[n, context, width]` to the same."""
        n, context, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, context, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """As GPT-2 (Radford et al. 2019), small."""

    def __init__(self, context: int = 128, width: int = 128, depth: int = 5, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(len(ALPHABET), width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                # What is added to the residual stream is smaller, the more is added.
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / ((2 * depth) ** 0.5 if last else 1))

    def forward(self, characters: Tensor) -> Tensor:
        """From characters `[n, context]` to the logits of the next ones, `[n, context, len(ALPHABET)]`."""
        x = self.tokens(characters) + self.places.weight[: characters.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def model_of(settings: dict[str, Any]) -> GPT:
    """The model that section `script` of the run's file describes."""
    return GPT(settings["context"], settings["width"], settings["depth"], settings["heads"])


def loss_of(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Cross-entropy of the next character, in nats."""
    device = next(model.parameters()).device
    characters, following = (part.to(device) for part in batch)
    return F.cross_entropy(model(characters).flatten(0, 1), following.flatten())


@torch.no_grad()
def evaluate(model: nn.Module, data: Text) -> float:
    """The loss on a text, in nats a character."""
    batches = torch.utils.data.DataLoader(data, batch_size=64, drop_last=len(data) > 64)
    return sum(float(loss_of(model, batch)) for batch in batches) / len(batches)


def main() -> None:
    rank = tw.join()
    torch.manual_seed(rank.seed)
    model = model_of(rank.settings).to(rank.device)
    opt = rank.optimizer(model)
    data, held_out = reference(rank.settings["context"])

    @rank.evaluate
    def held_out_loss(model: nn.Module) -> float:
        return evaluate(model, held_out)

    loader = rank.loader(data, num_workers=rank.settings["workers"])
    while not rank.done:
        for batch in loader:
            opt.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            rank.log(loss=loss)


if __name__ == "__main__":
    main()
