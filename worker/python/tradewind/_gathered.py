"""A sharded model as files of safetensors: the first rank of the group writes them, the others send it their rows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ._group import FOREVER
from ._native import TradewindError
from ._saving import DTYPES, bytes_of
from ._shards import rows

if TYPE_CHECKING:
    from ._island import IslandRanks

#: Most bytes of a tensor that are under way, and so in memory beside the model.
_PIECE_BYTES = 4 << 20
#: Of messages: others of an island have other ones.
_TAG = 3 << 20
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


@dataclass(frozen=True)
class Entry:
    """A tensor as a file has it."""

    name: str
    tensor: Any
    bytes: int


def save(model: nn.Module, path: str | os.PathLike[str], shard_bytes_max: int | None, ranks: IslandRanks) -> None:
    """Writes the whole state of the model, as `tradewind.Rank.save` says. All ranks of the group call it.

    Raises:
        TradewindError: On all ranks, for a tensor of a type that no file has, and if the first cannot write.
        RuntimeError: If the group breaks.
    """
    entries, notes = _entries(model)
    writer = _Writer() if ranks.rank == 0 else None
    target = Path(path)
    if shard_bytes_max is None:
        _file(target, entries, notes, writer, ranks)
    else:
        _files(target, entries, notes, shard_bytes_max, writer, ranks)
    failed = writer is not None and writer.error is not None
    if ranks.all_reduce_sum([float(failed)])[0] > 0:
        why = writer.error if writer is not None else "the group's first rank could not write it, and says why"
        raise TradewindError(f"cannot save {target}: {why}")


class _Writer:
    """Writes, until something cannot be written: what follows is passed over, so that no rank waits for this one."""

    def __init__(self) -> None:
        self.error: OSError | None = None

    def try_to(self, act: Any) -> None:
        if self.error is None:
            try:
                act()
            except OSError as error:
                self.error = error


def _entries(model: nn.Module) -> tuple[list[Entry], dict[str, str]]:
    """Tied tensors once, with notes of their other names; in the order of a file: what is aligned most comes first."""
    found: list[Entry] = []
    notes = {"format": "pt"}
    first: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            continue
        if tensor.dtype not in DTYPES:
            raise TradewindError(f"{name} is of {tensor.dtype}, which safetensors cannot store")
        # Of a shard without rows the memory tells nothing.
        twin = first.setdefault(id(tensor), name)
        if twin != name:
            notes[name] = twin
            continue
        found.append(Entry(name, tensor.detach(), prod(tensor.shape) * tensor.element_size()))
    return sorted(found, key=lambda entry: (-entry.tensor.element_size(), entry.name)), notes


def _files(
    folder: Path,
    entries: list[Entry],
    notes: dict[str, str],
    most: int,
    writer: _Writer | None,
    ranks: IslandRanks,
) -> None:
    parts: list[list[Entry]] = [[]]
    for entry in entries:
        if parts[-1] and sum(other.bytes for other in parts[-1]) + entry.bytes > most:
            parts.append([])
        parts[-1].append(entry)
    names = [f"model-{number:05}-of-{len(parts):05}.safetensors" for number in range(1, len(parts) + 1)]
    if writer is not None:
        writer.try_to(lambda: folder.mkdir(exist_ok=True))
        # Nobody takes shards of two models for one.
        writer.try_to(lambda: (folder / _INDEX).unlink(missing_ok=True))
    for name, part in zip(names, parts):
        _file(folder / name, part, notes, writer, ranks)
    if writer is not None:
        places = {entry.name: name for name, part in zip(names, parts) for entry in part}
        total = sum(entry.bytes for entry in entries)
        index = json.dumps({"metadata": {**notes, "total_size": total}, "weight_map": places}, indent=2)
        writer.try_to(lambda: _whole(folder / _INDEX, iter([index.encode()])))
        writer.try_to(lambda: _delete_others(folder, names))


def _delete_others(folder: Path, names: list[str]) -> None:
    for path in folder.iterdir():
        if _SHARD.fullmatch(path.name) and path.name not in names:
            path.unlink()


def _file(
    path: Path, entries: list[Entry], notes: dict[str, str], writer: _Writer | None, ranks: IslandRanks
) -> None:
    pieces = (piece for entry in entries for piece in _gathered(entry.tensor, ranks))
    if writer is None:
        # The others send.
        for _ in pieces:
            pass
        return
    header: dict[str, Any] = {"__metadata__": notes}
    at = 0
    for entry in entries:
        kind, shape = DTYPES[entry.tensor.dtype], list(entry.tensor.shape)
        header[entry.name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + entry.bytes]}
        at += entry.bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)

    def content() -> Iterator[Any]:
        yield len(text).to_bytes(8, "little") + text
        yield from pieces

    writer.try_to(lambda: _whole(path, content()))
    for _ in pieces:
        # What is left if that could not be written.
        pass


def _whole(path: Path, content: Iterator[Any]) -> None:
    """The file is there with all of it, or as it was."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            for piece in content:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _gathered(tensor: Any, ranks: IslandRanks) -> Iterator[Any]:
    """On the first rank the memory of all of a tensor, in order, piece by piece; on others nothing, but they send."""
    if not isinstance(tensor, DTensor):
        if ranks.rank == 0:
            yield bytes_of(tensor)
        return
    row = prod(tensor.shape[1:])
    piece = max(_PIECE_BYTES // tensor.element_size(), 1)
    own = tensor.to_local().reshape(-1)
    for holder, (first, behind) in enumerate(rows(tensor.shape[0], ranks.size)):
        for begin in range(0, (behind - first) * row, piece):
            length = min(piece, (behind - first) * row - begin)
            if holder == ranks.rank == 0:
                yield bytes_of(own[begin : begin + length])
            elif holder == ranks.rank:
                ranks.send(own[begin : begin + length].cpu(), 0, _TAG).wait(FOREVER)
            elif ranks.rank == 0:
                room = torch.empty(length, dtype=tensor.dtype)
                ranks.receive(room, holder, _TAG).wait(FOREVER)
                yield bytes_of(room)
