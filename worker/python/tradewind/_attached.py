"""The script's own optimizer, whose steps are exchanged after some of them."""

from __future__ import annotations

import copy
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ._native import GroupBroken, TradewindError

if TYPE_CHECKING:
    from . import _native
    from ._rank import Rank
    from ._replica import Replica

#: What the native half compares of the options of the ranks' optimizers.
_OPTION_BITS = 18


@dataclass(frozen=True)
class Scaled:
    """What a GradScaler has said of the gradient of a step."""

    overflowed: bool
    #: What the loss was multiplied by, if the gradient was not divided by it before the step.
    scale: float | None


def unscale(optimizer: torch.optim.Optimizer, gradients: list[Tensor | None]) -> Scaled:
    """Divides the gradient by the scale of a GradScaler, if there is one that has not done so itself."""
    found = getattr(optimizer, "found_inf", None)
    scale = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        for gradient in gradients:
            if gradient is not None:
                gradient.div_(scale)
    return Scaled(found is not None and bool(found), None if scale is None else float(scale))


def refuse_others(parameters: list[tuple[str, nn.Parameter]], own: torch.optim.Optimizer) -> None:
    """From now on no other optimizer takes a step with these parameters."""
    names = {id(parameter): name for name, parameter in parameters}

    def refuse(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if optimizer is own:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in names:
                    raise TradewindError(
                        f"a step of another optimizer would change {names[id(parameter)]}, which belongs to the "
                        "optimizer of this rank: step with the one that rank.optimizer(model) has returned or "
                        "rank.attach(model, opt) was given"
                    )

    register_optimizer_step_pre_hook(refuse)


class Attached:
    """Has the steps of an optimizer agreed on in the group, and exchanged as `local.*` of the run's file says."""

    def __init__(self, rank: Rank, replica: Replica, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        _refuse_unfit(replica, model, optimizer)
        self._rank = rank
        self._replica = replica
        self._optimizer = optimizer
        self._initial = [(parameter, copy.deepcopy(state)) for parameter, state in optimizer.state.items()]
        #: What the group has agreed on for the step at hand.
        self._agreed: _native.InnerStep | None = None
        # torch.amp.GradScaler calls step on an overflow as well, so that the group skips together.
        optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)
        refuse_others(replica.parameters, optimizer)

    def entered(self, again: bool) -> None:
        """The model has the servers' values. In a later incarnation of the group (`again`) all its optimizers
        begin anew, as that of a rank that was started again does.
        """
        if again:
            self._anew()
        self._replica.keep_buffers()

    def _anew(self) -> None:
        self._optimizer.state.clear()
        for parameter, state in self._initial:
            self._optimizer.state[parameter] = copy.deepcopy(state)

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        rank, replica = self._rank, self._replica
        self._agreed = None
        if rank.done:
            return self._leave_out()
        if len(args) > 1 and args[1] is not None or kwargs.get("closure") is not None:
            raise TradewindError("a closure cannot be called again and again: compute the gradient, then call step()")
        batches = rank._batches(replica.backwards)
        scaled = unscale(optimizer, replica.gradients)
        if hasattr(optimizer, "grad_scale"):
            # It is done: some optimizers would do it again, others refuse to.
            optimizer.grad_scale = optimizer.found_inf = None  # type: ignore[attr-defined]
        try:
            replica.ready()
            overflowed = scaled.overflowed or not replica.finite()
            self._agreed = rank._native.inner_step(
                sum(batches), len(batches), overflowed, scaled.scale, rank._take_loss(), _options(optimizer)
            )
        except GroupBroken as error:
            rank._reform(str(error), len(batches))
            return self._leave_out()
        rank._used(batches)
        if self._agreed.skipped:
            replica.put_buffers_back()
            self._leave_out()

    def _leave_out(self) -> None:
        """The optimizer's step does nothing: no parameter has a gradient."""
        for _, parameter in self._replica.parameters:
            parameter.grad = None

    def _after(self, *_: Any) -> None:
        rank, replica = self._rank, self._replica
        replica.show_gradients()
        agreed, self._agreed = self._agreed, None
        if agreed is not None and agreed.exchange:
            try:
                replica.lay_buffers()
                replica.bring_values()
                stepped = rank._native.exchange_steps()
                replica.fresh()
            except GroupBroken as error:
                rank._reform(str(error), 0)
                return
            if stepped.lost:
                self._anew()
            rank._took(stepped)
        if agreed is not None:
            replica.keep_buffers()


def _refuse_unfit(replica: Replica, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The optimizer has the parameters of the model that are trained, and none of another."""
    for name, parameter in replica.parameters:
        if parameter.dtype != torch.float32:
            raise TradewindError(
                f"parameter {name} is {parameter.dtype}, and your own optimizer would step without a master of f32: "
                "train in torch.float32 and compute under torch.autocast"
            )
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [name for name, parameter in replica.parameters if id(parameter) not in own]
    if missing:
        raise TradewindError(
            f"the optimizer lacks {', '.join(missing[:5])}{' …' * (len(missing) > 5)}: give it all parameters of "
            "the model that is attached, or freeze those with requires_grad_(False)"
        )
    strangers = own - {id(parameter) for parameter in model.parameters()}
    shapes = [
        f"group {number}, shape {list(parameter.shape)}"
        for number, group in enumerate(optimizer.param_groups)
        for parameter in group["params"]
        if id(parameter) in strangers
    ]
    if shapes:
        raise TradewindError(
            f"the optimizer has parameters that are not the model's ({'; '.join(shapes[:5])}): attach the model that "
            "it was made for, or an optimizer of this model alone"
        )


def _options(optimizer: torch.optim.Optimizer) -> int:
    """A number that is the same for optimizers of the same options: their steps do the same."""

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.tolist()
        return value if isinstance(value, (bool, int, float, str, tuple)) else None

    options = [
        [(name, plain(value)) for name, value in sorted(group.items()) if name != "params"]
        for group in optimizer.param_groups
    ]
    return zlib.crc32(repr(options).encode()) & ((1 << _OPTION_BITS) - 1)
