"""The servers' optimizer, as a script sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ._attached import refuse_others, unscale
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
        refuse_others(replica.parameters, self)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if self.param_groups:
            raise TradewindError("servers have one group of parameters; optimizer.decay_exempt spares some from decay")
        # What torch does here imports its compiler first: two seconds of every start of a rank.
        self.param_groups.append({**self.defaults, **param_group})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Zeroes the gradient, which stays where it is in memory."""
        self._replica.zero()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
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
        batches = rank._batches(self._replica.backwards)
        self._refuse_options()
        scaled = unscale(self, self._replica.gradients)
        try:
            self._replica.ready()
            self._replica.lay_buffers()
            stepped = rank._native.step(
                sum(batches), len(batches), scaled.overflowed, scaled.scale, rank._take_loss()
            )
            self._replica.fresh()
        except GroupBroken as error:
            rank._reform(str(error), len(batches))
            return
        rank._used(batches)
        rank._took(stepped)
        self._shown = self.param_groups[0]["lr"] = stepped.rate

    def _refuse_options(self) -> None:
        """The one group has the servers' rate, and nothing else that would mean something."""
        (group,) = self.param_groups
        if group["lr"] != self._shown:
            raise TradewindError(
                "the learning rate is the servers': set optimizer.learning_rate and schedule.* in the run's file, "
                "instead of a scheduler"
            )
        for name in group.keys() - {"params", "lr", "initial_lr"}:
            raise TradewindError(
                f"{name} of a group of parameters means nothing here: optimizer.* of the run's file has it, and "
                "optimizer.decay_exempt spares some parameters from decay"
            )
