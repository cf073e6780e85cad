"""A model's tensors as files of safetensors, and back."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ._native import TradewindError
from ._stored import Model, Stored

#: How a file calls what torch calls otherwise.
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}


def of_model(model: nn.Module) -> Model:
    """The whole state of a model: see `of_state`."""
    return of_state(model.state_dict())


def of_state(state: Mapping[str, Any]) -> Model:
    """The whole state of a model: parameters, frozen ones too, and persistent buffers; tied ones once.

    Raises:
        TradewindError: For a tensor of a type that no file has, by its name.
    """
    tensors: list[Stored] = []
    notes = {"format": "pt"}
    first: dict[tuple[Any, ...], str] = {}
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            sys.stderr.write(f"tradewind: {name} is no tensor and is not saved; rank.keep keeps such a state\n")
            continue
        if tensor.dtype not in DTYPES:
            raise TradewindError(f"{name} is of {tensor.dtype}, which safetensors cannot store")
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        twin = first.setdefault(place, name) if tensor.numel() > 0 else name
        if twin != name:
            notes[name] = twin
            continue
        tensors.append(Stored(name, DTYPES[tensor.dtype], list(tensor.shape), bytes_of(tensor)))
    return Model(tensors, notes)


def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Reads a file: see `tradewind.load`."""
    types = {name: dtype for dtype, name in DTYPES.items()}
    with open(path, "rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            length = int.from_bytes(content[:8], "little")
            header = json.loads(content[8 : 8 + length])
            notes = header.pop("__metadata__", {})
            data = memoryview(content)[8 + length :]
            state = {}
            for name, tensor in header.items():
                begin, end = tensor["data_offsets"]
                state[name] = _tensor(data[begin:end], types[tensor["dtype"]], tensor["shape"])
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise TradewindError(f"{os.fspath(path)} is no whole file of safetensors: {error}") from None
    return state | {name: state[twin] for name, twin in notes.items() if twin in state}


def _tensor(data: memoryview, dtype: torch.dtype, shape: list[int]) -> Tensor:
    if len(data) == 0:
        return torch.empty(shape, dtype=dtype)
    # Elements may lie anywhere in the file.
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def bytes_of(tensor: Tensor) -> Any:
    """The tensor's memory, or that of a copy, in C order on the CPU; it lives as long as what is returned."""
    own = tensor.detach().cpu().contiguous()
    if own.numel() == 0:
        return memoryview(b"")
    array = (ctypes.c_uint8 * (own.numel() * own.element_size())).from_address(own.data_ptr())
    array.owner = own  # type: ignore[attr-defined]
    return memoryview(array).cast("B")
