"""The GPT of gpt.py under PyTorch Lightning, without a strategy of its own.

    pip install lightning
    tradewind run examples/pytorch/lightning_gpt.toml -- python examples/pytorch/lightning_gpt.py

To Lightning each rank is a training on one device: the group and the servers are behind the optimizer.
"""

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

import tradewind as tw
from gpt import evaluate, loss_of, model_of, reference

__all__ = ["Module", "evaluate"]


class Module(pl.LightningModule):
    """Trains a GPT as a rank."""

    def __init__(self, rank: tw.Rank) -> None:
        super().__init__()
        self.rank = rank
        self.model = model_of(rank.settings)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.rank.optimizer(self.model)

    def train_dataloader(self) -> Any:
        return self.rank.loader(reference(self.rank.settings["context"])[0])

    def training_step(self, dataloader_iter: Iterator[Any]) -> Tensor:
        # With this argument Lightning does not read ahead: a batch is taken for a step.
        batch, _, _ = next(dataloader_iter)
        return loss_of(self.model, batch)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.rank.log(loss=outputs["loss"])

    def on_train_epoch_end(self) -> None:
        self.trainer.should_stop = self.rank.done


def main() -> None:
    rank = tw.join()
    pl.seed_everything(rank.seed)
    _, held_out = reference(rank.settings["context"])

    @rank.evaluate
    def held_out_loss(model: nn.Module) -> float:
        return evaluate(model, held_out)

    # The run ends when its budget is applied; its folder has snapshots and metrics.
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=-1, gradient_clip_val=1.0, barebones=True)
    trainer.fit(Module(rank))


if __name__ == "__main__":
    main()
