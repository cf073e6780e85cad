"""The GPT of `gpt.py`, sharded over the ranks of each group that has several; a group of one rank has it whole.

    tradewind run examples/pytorch/islands_gpt.toml -- python examples/pytorch/islands_gpt.py

It shows FSDP2 inside groups, of different sizes, and Tradewind between them. Kill a rank on the way (`kill -9`, with a
process of `processes.json` in the run's folder): its group begins anew with the servers' values, and the others go on.
"""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import tradewind as tw
from gpt import GPT, evaluate, loss_of, model_of, reference


def sharded(model: GPT, rank: tw.Rank) -> GPT:
    """The rows of each block, and of the rest, over the ranks of the group."""
    if rank.group_size > 1:
        for block in model.blocks:
            fully_shard(block, mesh=rank.mesh())
        fully_shard(model, mesh=rank.mesh())
    return model


def main() -> None:
    rank = tw.join()
    torch.manual_seed(rank.seed)
    model = sharded(model_of(rank.settings).to(rank.device), rank)
    opt = rank.optimizer(model)
    data, held_out = reference(rank.settings["context"])

    @rank.evaluate
    def held_out_loss(model: nn.Module) -> float:
        return evaluate(model, held_out)

    loader = rank.loader(data)
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
