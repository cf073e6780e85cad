"""The servers' optimizer, as a script sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ._native import GroupBroken, TradewindError

if TYPE_CHECKING:
    from ._rank import Rank
    from ._replica import Replica


class Optimizer(torch.optim.Optimizer):
    """Its step exchanges the gradient for fresh values: `optimizer.*` and `schedule.*` of the run's file say how
    servers make them. `lr` shows the servers' rate.
    """

    # torch.amp.GradScaler calls step on an overflow as well, so that the group skips together.
    _step_supports_amp_scaling = True

    def __init__(self, rank: Rank, replica: Replica) -> None:
        self._rank = rank
        self._replica = replica
        super().__init__([parameter for _, parameter in replica.parameters], {"lr": 0.0})
        self._shown = 0.0

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if self.param_groups:
            raise TradewindError("servers have one group of parameters; optimizer.decay_exempt spares some from decay")
        super().add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Zeroes the gradient, which stays where it is in memory."""
        self._replica.zero()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Exchanges the gradient: on return the model has fresh values.

        Where the group breaks, the step is dropped, the group forms again, and the values are the servers'.

        Args:
            closure: Computes the gradient and returns the loss; called once, before. PyTorch Lightning gives one.

        Returns:
            What the closure returns.
        """
        told = None if closure is None else closure()
        self._exchange()
        return told

    def _exchange(self) -> None:
        rank = self._rank
        if rank.done:
            return
        if not rank._entered:
            raise TradewindError("no batch was taken yet: iterate over rank.loader(data)")
        if self.param_groups[0]["lr"] != self._shown:
            raise TradewindError(
                "the learning rate is the servers': set optimizer.learning_rate and schedule.* in the run's file"
            )
        if len(rank._handed) != 1:
            raise TradewindError(
                f"{len(rank._handed)} batches were taken since the last step, and a step is for one: raise "
                "train.batch to accumulate"
            )
        finite = self._unscale()
        loss = rank._take_loss()
        now, before = (loss, None) if rank._loss_is_of_next else (None, loss)
        rank._loss_is_of_next = False
        try:
            self._replica.ready()
            stepped = rank._native.step(rank._handed[0], finite, now, before)
        except GroupBroken as error:
            rank._reform(str(error))
            return
        rank._handed.clear()
        rank._left_out = stepped.left_out
        rank._took(stepped)
        self._shown = self.param_groups[0]["lr"] = stepped.rate

    def _unscale(self) -> bool | None:
        """Divides by the scale of a GradScaler that has not done so; whether it found everything finite."""
        found = getattr(self, "found_inf", None)
        scale = getattr(self, "grad_scale", None)
        if scale is not None:
            for gradient in self._replica._grads:
                gradient.div_(scale)
        return None if found is None else not bool(found)
