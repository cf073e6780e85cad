"""Arrays that a run trains, for scripts without PyTorch. Imports NumPy, no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ._loader import Batches
from ._native import GroupBroken, TradewindError
from ._stored import Model, Stored

if TYPE_CHECKING:
    from . import _native
    from ._rank import Rank


class Arrays:
    """Arrays by name, which are views of one vector."""

    #: A loss that is logged apart is that of the last exchange.
    has_gradient = False
    #: What a script computes itself is not seen.
    backwards = 0
    #: There is nobody to average with, so that `rank.no_sync` changes nothing.
    synchronizes = True
    #: A group of one rank does, in any process.
    forms_again = True
    #: Nobody else has a part of them.
    is_whole = True

    def __init__(self, rank: Rank, arrays: Mapping[str, Any], samples: int) -> None:
        if rank.group_size > 1:
            raise TradewindError(
                f"group {rank.group} has {rank.group_size} ranks, and ranks without PyTorch cannot average among "
                "themselves: make each a group, as in cluster.groups = [1, 1]"
            )
        self._rank = rank
        initial = {name: _array(name, array) for name, array in arrays.items()}
        specs = [(name, list(array.shape), False) for name, array in initial.items()]
        elements, placed = rank._native.describe(specs, samples, [])
        self._vector = np.zeros(elements, np.float32)
        self._gradient = np.zeros(elements, np.float32)
        self.values: dict[str, np.ndarray] = {}
        self._gradients: dict[str, np.ndarray] = {}
        names = list(initial)
        for place in sorted(placed, key=lambda place: place.tensor):
            name = names[place.tensor]
            at = slice(place.begin, place.begin + place.elements)
            shape = initial[name].shape
            self.values[name] = self._vector[at].reshape(shape)
            self.values[name][...] = initial[name]
            self._gradients[name] = self._gradient[at].reshape(shape)
        rank._native.bind(self._vector, self._gradient)

    def begin(self, samples: int) -> None:
        """They are laid out already."""

    def form(self) -> _native.Stepped:
        """Joins, and brings the servers' values."""
        self._rank._native.join("")
        return self._rank._native.enter(None)

    def part(self) -> None:
        """Nobody else is in the group."""

    def fresh(self) -> None:
        """What has come lies in the arrays."""

    def deal(self, slices: list[list[tuple[int, int]]]) -> None:
        """The only rank has all."""

    @property
    def library(self) -> str:
        """What computes with them, as far as is known."""
        return f"NumPy {np.__version__}"

    def stored(self) -> Model:
        """All of them, as files have them."""
        tensors = [
            Stored(name, "F32", list(array.shape), array.reshape(-1).data.cast("B"))
            for name, array in self.values.items()
        ]
        return Model(tensors, {})

    def save(self, path: str | os.PathLike[str], shard_bytes_max: int | None) -> None:
        """Writes them, as `tradewind.Rank.save` says."""
        self.stored().save(path, shard_bytes_max)

    @contextmanager
    def evaluating(self) -> Iterator[dict[str, np.ndarray]]:
        """The arrays, by name."""
        yield self.values

    def exchange(self, gradients: Mapping[str, Any], loss: float | None) -> None:
        """Exchanges gradients for fresh values, in place."""
        rank = self._rank
        if rank.done:
            return
        batches = rank._batches(len(rank._handed))
        if gradients.keys() != self.values.keys():
            raise TradewindError(f"gradients are of {_names(gradients)}, and rank.share has {_names(self.values)}")
        for name, gradient in gradients.items():
            array = _array(name, gradient)
            if array.shape != self.values[name].shape:
                raise TradewindError(
                    f"the gradient of {name} has shape {array.shape}, and {name} has {self.values[name].shape}"
                )
            self._gradients[name][...] = array
        if loss is not None:
            rank._losses_of_next.append(float(loss))
        try:
            stepped = rank._native.step(sum(batches), len(batches), loss_before=rank._take_loss())
        except GroupBroken as error:
            rank._reform(str(error), len(batches))
            return
        rank._used(batches)
        rank._took(stepped)


class NumberedBatches(Batches):
    """Batches as numbers of samples."""

    def __init__(self, rank: Rank, samples: int) -> None:
        super().__init__(rank, samples)
        self._loader = self._dealt


def _array(name: str, values: Any) -> np.ndarray:
    """What has Python's buffer protocol, or DLPack's."""
    by_dlpack = hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray)
    try:
        array = np.from_dlpack(values) if by_dlpack else np.asarray(values)
    except (BufferError, TypeError, RuntimeError) as error:
        raise TradewindError(f"{name} cannot be read in main memory: {error}") from None
    if array.dtype != np.float32:
        raise TradewindError(f"{name} is {array.dtype}, not float32: give it as float32")
    return array


def _names(of: Mapping[str, Any]) -> str:
    return ", ".join(of) or "nothing"
