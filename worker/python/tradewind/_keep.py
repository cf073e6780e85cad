"""What a script keeps for its next process. Imports torch only once something is kept."""

from __future__ import annotations

import io
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from . import _native
from ._native import TradewindError

if TYPE_CHECKING:
    from ._rank import Rank

#: Seconds from one writing to the next, at least; and at least so many times what a writing takes.
_PAUSE_SECONDS, _PAUSE_TIMES = 10.0, 20.0

T = TypeVar("T")


@runtime_checkable
class Stateful(Protocol):
    """A scheduler, an average of the model, or whatever else has a state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


S = TypeVar("S", bound=Stateful)


class Kept(Generic[T]):
    """A plain value that is kept: read and set `value`."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Kept({self.value!r})"

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value = state_dict["value"]


class Keeper:
    """All that a rank keeps, in one file of the run's folder."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        folder = rank._native.folder
        name = f"kept/group-{rank.group}-rank-{rank.rank}.pt"
        #: A rank that is alone keeps nothing beyond its process.
        self._path = None if folder is None else os.path.join(folder, name)
        self._kept: dict[str, Stateful] = {}
        self._restored: dict[str, Any] | None = None
        self._next = 0.0
        self._complaint = ""

    def keep(self, name: str, value: Any) -> Any:
        if name in self._kept:
            raise TradewindError(f"{name!r} is kept already: call rank.keep once for each name")
        kept = value if isinstance(value, Stateful) else Kept(value)
        try:
            own = _dumped(kept.state_dict())
            _load(own)
        except Exception as error:
            raise TradewindError(
                f"{name!r} cannot be kept: {error}; its state may have tensors, numbers, texts, lists and dicts"
            ) from error
        if len(own) > _native.KEPT_BYTES_MAX:
            raise TradewindError(f"{name!r} has {len(own)} bytes, and {_native.KEPT_BYTES_MAX} are the most to be kept")
        if self._restored is None:
            self._restored = self._read()
        if name in self._restored:
            try:
                kept.load_state_dict(self._restored[name])
            except Exception as error:
                raise TradewindError(
                    f"what an earlier process has kept as {name!r} does not fit: {error}; to begin without it, "
                    f"delete {self._path}"
                ) from error
        self._kept[name] = kept
        return kept

    def stepped(self) -> None:
        """The script has finished a step: writes if the last time is long enough ago."""
        if self._kept and time.monotonic() >= self._next:
            self.write()

    def write(self) -> None:
        """Writes everything. That it cannot is told, and stops nothing."""
        if self._path is None or not self._kept or self._rank._native.evaluating:
            return
        began = time.monotonic()
        complaint = ""
        try:
            states = {name: kept.state_dict() for name, kept in self._kept.items()}
            _native.write_kept(self._path, _dumped(states))
        except TradewindError as error:
            complaint = f"tradewind: what rank.keep was given is not on disk: {error}\n"
        if complaint != self._complaint:
            self._complaint = complaint
            sys.stderr.write(complaint or "tradewind: what rank.keep was given is on disk again\n")
        ended = time.monotonic()
        self._next = ended + max(_PAUSE_SECONDS, _PAUSE_TIMES * (ended - began))

    def _read(self) -> dict[str, Any]:
        """What an earlier process has kept; nothing, if its file is damaged."""
        if self._path is None:
            return {}
        try:
            content = _native.read_kept(self._path)
            return {} if content is None else _load(content)
        except Exception as error:
            sys.stderr.write(f"tradewind: what was kept is passed over: {error}\n")
            return {}


def _dumped(states: dict[str, Any]) -> bytes:
    import torch
    from torch.utils._pytree import tree_map

    def alone(value: Any) -> Any:
        # A view would be written with all that it is a view of.
        is_view = isinstance(value, torch.Tensor) and value.untyped_storage().nbytes() != value.nbytes
        return value.detach().clone() if is_view else value

    into = io.BytesIO()
    torch.save(tree_map(alone, states), into)
    return into.getvalue()


def _load(content: bytes) -> Any:
    import torch

    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
