"""The ranks of one incarnation of a group: over Gloo, and on GPUs over NCCL as well."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed import PrefixStore, ProcessGroupGloo, Store

from ._native import GroupBroken, TradewindError
from ._sealed import SealedStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from . import _native
    from ._flat import Flat

Range = tuple[int, int]

#: Collectives have no time-out, so that no rank is too slow for its group: whoever holds a rank's lease decides when it
#: is gone. The largest numbers overflow.
FOREVER = timedelta(days=24)


class Ranks:
    """They average, and agree on numbers."""

    def __init__(
        self,
        joined: _native.Joined,
        store: Store,
        lease: timedelta,
        device: torch.device,
        breaks: Callable[[Callable[[], None]], None],
    ) -> None:
        """Meets the other ranks.

        Args:
            joined: What the coordinator says of the group.
            store: Where its ranks meet.
            lease: Length of a rank's lease, which bounds the wait for a peer.
            device: Where what they average lies.
            breaks: Told what breaks the group, as soon as there is something to break.
        """
        self.rank, self.size = joined.group_rank, joined.group_size
        # Stubs of torch lack what it can.
        # What others write there is not believed. Kept, as C++ calls it.
        self._sealed = SealedStore(store, bytes(joined.store_key))
        self._gloo: Any = ProcessGroupGloo(PrefixStore(joined.prefix, self._sealed), self.rank, self.size, lease)
        # That was for the meeting. (Gloo of torch 2.4 takes no notice.)
        self._gloo._set_default_timeout(FOREVER)
        self._nccl: Any = None
        breaks(self.break_off)
        on_gpus = self.all_reduce_sum([float(device.type == "cuda")])[0]
        if on_gpus not in (0, self.size):
            raise TradewindError("some ranks of the group compute on GPUs and some do not: set compute.device")
        if on_gpus:
            from ._over_nccl import connect

            # Not sealed: threads of NCCL's may ask the store when the interpreter has ended.
            connect(store, joined.prefix, (self.rank, self.size), device, lease, FOREVER, self._begun)

    def _begun(self, nccl: Any) -> None:
        self._nccl = nccl

    def reduce(self, part: Tensor) -> Reduction:
        """Begins to average over the ranks, in place."""
        group = self._nccl if part.is_cuda else self._gloo
        return Reduction(part, group.allreduce([part]), self.size)

    def average(self, part: Tensor) -> None:
        """Averages over the ranks, in place."""
        guard("averaging buffers", lambda: self.reduce(part).wait())

    # Collectives that the native half asks for, from its own thread.

    def all_reduce_sum(self, values: list[float]) -> list[float]:
        sums = torch.tensor(values, dtype=torch.float64)
        self._gloo.allreduce([sums]).wait()
        return sums.tolist()

    def broadcast(self, values: list[int]) -> list[int]:
        told = torch.tensor(values, dtype=torch.int64)
        self._gloo.broadcast(told, 0).wait()
        return told.tolist()

    def break_off(self) -> None:
        """Frees whoever waits in a collective: a receive that runs out of time ends the group's connections."""
        for peer in range(self.size):
            if peer == self.rank:
                continue
            try:
                self._gloo.recv([torch.zeros(1)], peer, _BREAK).wait(timedelta(milliseconds=1))
            except RuntimeError:
                pass
        if self._nccl is not None:
            self._nccl.abort()


class Group(Ranks):
    """Averages gradients, and shares what each rank has exchanged of the values."""

    def __init__(
        self,
        joined: _native.Joined,
        store: Store,
        lease: timedelta,
        flat: Flat,
        breaks: Callable[[Callable[[], None]], None],
    ) -> None:
        """Meets the other ranks, as `Ranks` does.

        Args:
            flat: The model's values.
        """
        device = flat.values.device
        super().__init__(joined, store, lease, device, breaks)
        self._slices = joined.slices
        self._flat = flat
        lengths = [sum(end - begin for begin, end in ranges) for ranges in self._slices]
        self._own = torch.zeros(max(lengths), device=device)
        self._all = torch.zeros(self.size, max(lengths), device=device)
        # What exchanges bring is packed where it comes.
        own = lengths[self.rank]
        self._packed = torch.zeros(own, pin_memory=True) if self._nccl else self._own[:own]
        self._fresh = _pieces(flat.host_values, self._slices[self.rank])
        self._received = {rank: self._all[rank, : lengths[rank]] for rank in range(self.size) if rank != self.rank}
        #: What is copied where, when all have sent.
        self._places: list[Tensor] = []
        self._gathered: list[Tensor] = []
        for rank, ranges in enumerate(self._slices):
            if rank != self.rank or flat.staged:
                self._places += _pieces(flat.values, ranges)
                self._gathered += _packed(self._own if rank == self.rank else self._all[rank], ranges)

    def scatter(self, gradient: Tensor, bucket: Range, number: int) -> Scattered:
        """Begins to average a bucket over the ranks: each gets the mean of what it exchanges of it.

        Args:
            gradient: The whole vector.
            bucket: Its range there.
            number: Tells it from other buckets.
        """
        pieces = [_pieces(gradient, _within(ranges, bucket)) for ranges in self._slices]
        own = sum(piece.numel() for piece in pieces[self.rank])
        received, works, kept = torch.empty(self.size, own), [], []
        for rank in range(self.size):
            if rank == self.rank:
                if own > 0:
                    torch.cat(pieces[rank], out=received[rank])
            elif own > 0:
                works.append(self._gloo.recv([received[rank]], rank, number))
        for rank in range(self.size):
            if rank != self.rank and pieces[rank]:
                kept.append(torch.cat(pieces[rank]))
                works.append(self._gloo.send([kept[-1]], rank, number))
        return Scattered(received, pieces[self.rank], works, kept)

    def own_square(self, gradient: Tensor) -> float:
        """The square of the norm of a gradient of which each rank has the mean of what it exchanges. Buffers, which
        lie behind it, are not in it.
        """
        pieces = _pieces(gradient, _within(self._slices[self.rank], (0, gradient.numel())))
        own = sum(float(torch.linalg.vector_norm(piece, dtype=torch.float64)) ** 2 for piece in pieces)
        return guard("measuring the gradient", lambda: self.all_reduce_sum([own]))[0]

    def gather(self) -> None:
        """Shares the slices: in main memory the own one is fresh, and on return all of the model's values are."""
        flat = self._flat
        if self._fresh:
            torch.cat(self._fresh, out=self._packed)
        if self._nccl is None:
            self._gather_over_gloo()
        else:
            with torch.cuda.device(flat.values.device):
                self._own[: len(self._packed)].copy_(self._packed, non_blocking=True)
                self._nccl._allgather_base(self._all, self._own).wait()
        if self._places:
            torch._foreach_copy_(self._places, self._gathered)
        if flat.staged:
            # Norms are measured there.
            flat.host_values.copy_(flat.values)

    def _gather_over_gloo(self) -> None:
        # Gloo's own all-gather takes three times as long.
        works = [self._gloo.recv([room], rank, _GATHER) for rank, room in self._received.items() if len(room) > 0]
        if len(self._packed) > 0:
            works += [self._gloo.send([self._packed], rank, _GATHER) for rank in self._received]
        for work in works:
            work.wait()


#: Tags of messages; buckets have the numbers below.
_GATHER, _BREAK = 1 << 29, 1 << 20


class Reduction:
    """A part of the gradient on its way to the mean over the ranks."""

    def __init__(self, part: Tensor, work: Any, size: int) -> None:
        self._part, self._work, self._size = part, work, size

    def is_done(self) -> bool:
        """Whether `wait` would not wait."""
        return self._work.is_completed()

    def wait(self) -> None:
        """On return the part is the mean; on a GPU, once its current stream is there."""
        self._work.wait()
        self._part.div_(self._size)


class Scattered:
    """The same where each rank has the mean of its own pieces only."""

    def __init__(self, received: Tensor, own: list[Tensor], works: list[Any], sent: list[Tensor]) -> None:
        self._received, self._own, self._works, self._sent = received, own, works, sent

    def is_done(self) -> bool:
        return False

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        if not self._own:
            return
        # In the order of ranks, so that bits repeat.
        mean = self._received[0]
        for other in self._received[1:]:
            mean += other
        mean /= len(self._received)
        torch._foreach_copy_(self._own, list(mean.split([piece.numel() for piece in self._own])))


def guard(what: str, act: Callable[[], Any]) -> Any:
    """Does something with the group; that it fails breaks the group."""
    try:
        return act()
    except TradewindError:
        raise
    except RuntimeError as error:
        raise GroupBroken(f"{what}: {error}") from None


def _within(ranges: list[Range], bucket: Range) -> list[Range]:
    parts = [(max(begin, bucket[0]), min(end, bucket[1])) for begin, end in ranges]
    return [(begin, end) for begin, end in parts if begin < end]


def _pieces(vector: Tensor, ranges: list[Range]) -> list[Tensor]:
    return [vector[begin:end] for begin, end in ranges]


def _packed(packed: Tensor, ranges: list[Range]) -> list[Tensor]:
    lengths = [end - begin for begin, end in ranges]
    return list(packed[: sum(lengths)].split(lengths)) if lengths else []
