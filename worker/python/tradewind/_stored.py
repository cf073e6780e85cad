"""Tensors as the native half writes them into files. Imports no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from . import _native


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

    def save(self, path: str | os.PathLike[str], shard_bytes_max: int | None) -> None:
        """Writes a file; with `shard_bytes_max` a folder of several, as Hugging Face has it."""
        if shard_bytes_max is None:
            _native.save(os.fspath(path), self.tensors, self.notes)
        else:
            _native.save_sharded(os.fspath(path), self.tensors, self.notes, shard_bytes_max)
