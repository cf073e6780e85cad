"""Tensors as the native half writes them into files. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stored:
    """A tensor: its type as safetensors calls it, and its bytes in C order, by Python's buffer protocol."""

    name: str
    dtype: str
    shape: list[int]
    memory: Any


@dataclass(frozen=True)
class Model:
    """What a file of a model has."""

    tensors: list[Stored]
    #: `format`, and for each tensor that is another one's twin the name under which that is stored.
    notes: dict[str, str]
