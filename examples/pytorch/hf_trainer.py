"""Hugging Face's Trainer: a small GPT-2 of its own configuration, on the text of gpt.py.

    pip install transformers accelerate
    tradewind run examples/pytorch/hf_trainer.toml -- python examples/pytorch/hf_trainer.py

To Trainer each rank is a training on one device: the group and the servers are behind the optimizer. No weights are
downloaded.
"""

from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

import tradewind as tw
from gpt import ALPHABET, Text, reference


class Servers(LRScheduler):
    """Leaves the learning rate to the servers."""

    def get_lr(self) -> list[float | Tensor]:
        return [group["lr"] for group in self.optimizer.param_groups]


class Epochs:
    """Batches of all epochs, until the run's budget is applied."""

    def __init__(self, rank: tw.Rank, loader: Any, trainer: transformers.Trainer) -> None:
        self.rank, self.loader, self.trainer = rank, loader, trainer

    def __iter__(self) -> Iterator[Any]:
        while not self.rank.done:
            yield from self.loader
        self.trainer.control.should_training_stop = True


class Trainer(transformers.Trainer):
    """Takes its batches from the run and tells it the loss."""

    def __init__(self, rank: tw.Rank, model: nn.Module, data: Text, args: TrainingArguments) -> None:
        self.rank, self.data = rank, data
        opt = rank.optimizer(model)
        super().__init__(model, args, optimizers=(opt, Servers(opt)))

    def get_train_dataloader(self) -> Any:
        return Epochs(self.rank, self.rank.loader(self.data, collate_fn=collate), self)

    def training_step(self, *arguments: Any, **named: Any) -> Tensor:
        loss = super().training_step(*arguments, **named)
        self.rank.log(loss=loss)
        return loss


def collate(samples: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    # The model itself compares what it says at a character with the next one.
    characters = torch.stack([characters for characters, _ in samples])
    return {"input_ids": characters, "labels": characters}


def model_of(settings: dict[str, Any]) -> GPT2LMHeadModel:
    """The model that section `script` of the run's file describes."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(ALPHABET),
            n_positions=settings["context"],
            n_embd=settings["width"],
            n_layer=settings["depth"],
            n_head=settings["heads"],
            bos_token_id=0,
            eos_token_id=0,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


@torch.no_grad()
def evaluate(model: nn.Module, data: Text) -> float:
    """The loss on a text, in nats a character."""
    model.eval()
    losses = [float(model(**batch).loss) for batch in DataLoader(data, batch_size=64, collate_fn=collate)]
    return sum(losses) / len(losses)


def main() -> None:
    rank = tw.join()
    transformers.set_seed(rank.seed)
    model = model_of(rank.settings)
    data, held_out = reference(rank.settings["context"])

    @rank.evaluate
    def held_out_loss(model: nn.Module) -> float:
        return evaluate(model, held_out)

    with TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            use_cpu=True,
            max_steps=10**9,  # the run ends when its budget is applied
            max_grad_norm=1.0,
            # The run's folder has snapshots and metrics.
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        Trainer(rank, model, data, args).train()


if __name__ == "__main__":
    main()
