"""Batches as the run deals them."""

from __future__ import annotations

import ctypes
import signal
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, Dataset

from ._native import GroupBroken, TradewindError

if TYPE_CHECKING:
    from ._rank import Rank

_DECIDED = ("shuffle", "sampler", "batch_sampler", "drop_last")
_PR_SET_PDEATHSIG = 1


class Loader:
    """A `torch.utils.data.DataLoader` over the samples that the run deals to this rank."""

    def __init__(self, rank: Rank, data: Dataset[Any], batch_size: int | None, arguments: dict[str, Any]) -> None:
        for name in _DECIDED:
            if name in arguments:
                raise TradewindError(f"{name} is the run's to decide: leave it out")
        batch = rank._native.batch
        if batch_size not in (None, batch):
            raise TradewindError(f"batch_size is {batch_size}, and train.batch of the run's file {batch}: make them equal")
        ahead = arguments.get("num_workers", 0) * (arguments.get("prefetch_factor") or 2)
        most = rank._native.batches_ahead
        if most is not None and ahead > most:
            raise TradewindError(
                f"num_workers times prefetch_factor is {ahead}, and a group may ask for {most} batches ahead: lower "
                "them, or raise train.chunk_samples in the run's file"
            )
        rank._needs_samples(len(data))  # type: ignore[arg-type]
        self._rank = rank
        self._ahead, self._most = ahead, most
        rank._dealt = rank._dealt or Dealt(rank)
        self._dealt = rank._dealt
        if arguments.get("num_workers", 0) > 0:
            arguments["worker_init_fn"] = _Dies(arguments.get("worker_init_fn"))
        self._loader = DataLoader(data, batch_sampler=self._dealt, **arguments)

    def __iter__(self) -> Iterator[Any]:
        """An epoch, or what is left of the run.

        What an iteration that was broken off has fetched ahead comes first in the next one.
        """
        rank = self._rank
        rank._refuse_forked()
        rank._enter()
        rank._iterations += 1
        iteration = rank._iterations
        while not rank.done:
            incarnation = rank._incarnations
            self._dealt.begin()
            try:
                batches = iter(self._loader)
                while True:
                    if rank._iterations != iteration:
                        raise TradewindError(
                            "another iteration over a loader of this rank has begun: one at a time goes over the "
                            "run's samples; a torch.utils.data.DataLoader serves others, such as validation"
                        )
                    try:
                        batch = next(batches)
                    except StopIteration:
                        return
                    if rank._left_out > 0:
                        # Dealt to a clock that the group has been told to leave out.
                        rank._left_out -= 1
                        self._dealt.pending.popleft()
                        continue
                    rank._native.handed_out()
                    rank._handed.append(len(self._dealt.pending.popleft().samples))
                    self._refuse_too_many()
                    yield batch
                    if rank.done or rank._incarnations != incarnation:
                        break
            except GroupBroken as error:
                rank._reform(str(error))
        rank._leave()

    def _refuse_too_many(self) -> None:
        """A group holds only so many samples that it has not trained on."""
        handed = len(self._rank._handed)
        if self._most is not None and handed > 1 and handed + self._ahead > self._most + 1:
            raise TradewindError(
                f"{handed} batches were taken since the last step, beside {self._ahead} that are fetched ahead, and a "
                f"group may hold {self._most + 1}: take a step sooner, lower num_workers or prefetch_factor, or raise "
                "train.chunk_samples in the run's file"
            )


@dataclass(frozen=True)
class _Batch:
    """Samples by number, and their epoch."""

    epoch: int
    samples: list[int]


class Dealt:
    """Numbers of samples, batch by batch, for a DataLoader to fetch ahead."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._incarnation = 0
        #: Batches that were dealt, and that the DataLoader at hand has not asked for.
        self._next: deque[_Batch] = deque()
        #: Those that it has asked for and not handed out.
        self.pending: deque[_Batch] = deque()

    def begin(self) -> None:
        """A DataLoader begins to ask. What was dealt in an earlier incarnation is nobody's."""
        if self._incarnation != self._rank._incarnations:
            self._incarnation = self._rank._incarnations
            self._next.clear()
        else:
            self._next.extendleft(reversed(self.pending))
        self.pending.clear()

    def __iter__(self) -> Iterator[list[int]]:
        epoch = None
        while True:
            batch = self._next.popleft() if self._next else _Batch(*self._rank._native.next_batch())
            if epoch is not None and batch.epoch != epoch:
                # The first batch of the next epoch was asked for in this one.
                self._next.appendleft(batch)
                return
            epoch = batch.epoch
            self.pending.append(batch)
            yield batch.samples


class _Dies:
    """Has a worker of a DataLoader die with its rank: it would hold the rank's connections open."""

    def __init__(self, init: Callable[[int], None] | None) -> None:
        self._init = init

    def __call__(self, worker: int) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if self._init is not None:
            self._init(worker)
