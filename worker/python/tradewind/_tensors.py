"""Which tensors of a model are trained, travel, or stay."""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ._native import TradewindError

_TRAINED = (torch.float32, torch.bfloat16, torch.float16)


def trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters that are trained, each once, by name, in the model's order.

    Raises:
        TradewindError: For a parameter of another type than f32, bf16 or f16, or on another device than the others.
    """
    found = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not found:
        raise TradewindError("the model has no parameter that is trained (requires_grad)")
    device = found[0][1].device
    for name, parameter in found:
        if parameter.dtype not in _TRAINED:
            raise TradewindError(
                f"parameter {name} is {parameter.dtype}: train in torch.float32, torch.bfloat16 or torch.float16, or "
                "freeze it with requires_grad_(False)"
            )
        if parameter.dtype != torch.float32 and not hasattr(parameter, "grad_dtype"):
            raise TradewindError(
                f"parameter {name} is {parameter.dtype}, and PyTorch {torch.__version__} gives it no gradient of f32: "
                "update it until tensors have grad_dtype, or train in f32 and compute under torch.autocast"
            )
        if parameter.device != device:
            raise TradewindError(f"parameter {name} is on {parameter.device}, and {found[0][0]} on {device}: move the "
                                 "model to rank.device")
    return found


@dataclass(frozen=True)
class Place:
    """Where a parameter stands in a model."""

    module: nn.Module
    name: str


def places(model: nn.Module, parameters: list[tuple[str, nn.Parameter]]) -> list[Place]:
    """Of each of the parameters the first place."""
    found: dict[int, Place] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            found.setdefault(id(parameter), Place(module, name))
    return [found[id(parameter)] for _, parameter in parameters]


def buffers(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Statistics: persistent buffers of f32 that are finite. A mask with −inf is none."""
    kept = set(model.state_dict(keep_vars=True))
    found = [(name, buffer) for name, buffer in model.named_buffers() if name in kept]
    return [
        (name, buffer)
        for name, buffer in found
        if buffer.dtype == torch.float32 and buffer.numel() > 0 and bool(torch.isfinite(buffer).all())
    ]


def frozen(model: nn.Module) -> list[tuple[str, int]]:
    """Parameters that are not trained, each once, with a digest of type, shape and values."""
    stay = [(name, parameter) for name, parameter in model.named_parameters() if not parameter.requires_grad]
    return [(name, _digest(parameter.detach())) for name, parameter in stay]


def _digest(tensor: Any) -> int:
    # Of one that is sharded all ranks have the digest of the whole.
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    here = whole.cpu().contiguous()
    digest = hashlib.sha256(f"{here.dtype} {list(here.shape)}".encode())
    if here.numel() > 0:
        digest.update((ctypes.c_char * (here.numel() * here.element_size())).from_address(here.data_ptr()))
    return int.from_bytes(digest.digest()[:8], "little")
