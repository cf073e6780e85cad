"""Batches as the run deals them. Imports torch only for a DataLoader."""

from __future__ import annotations

import ctypes
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native
from ._native import GroupBroken, TradewindError
from ._samples import Samples

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from ._rank import Rank

_DECIDED = ("shuffle", "sampler", "batch_sampler", "drop_last")
_PR_SET_PDEATHSIG = 1


class Batches:
    """Batches of the samples that the run deals to this rank."""

    #: What makes batches of numbers of samples.
    _loader: Iterable[Any]
    #: Batches that it asks for ahead of the one at hand.
    _ahead = 0

    def __init__(self, rank: Rank, samples: int) -> None:
        rank._needs_samples(samples)
        self._rank = rank
        self._dealt = rank._dealt
        self._most = rank._native.batches_ahead(samples)

    def __iter__(self) -> Iterator[Any]:
        """An epoch, or what is left of the run.

        Raises:
            TradewindError: A later iteration over batches of this rank has begun meanwhile.
        """
        rank, dealt = self._rank, self._dealt
        rank._refuse_forked()
        rank._enter()
        while not rank.done:
            incarnation = rank._incarnations
            iteration = dealt.begin()
            try:
                batches = iter(self._loader)
                while True:
                    rank._keeper.stepped()
                    begun = time.monotonic()
                    try:
                        batch = next(batches)
                    except StopIteration:
                        return
                    dealt.check(iteration)
                    samples = dealt.hand_out()
                    if rank._left_out > 0:
                        # Dealt to a clock that the group has been told to leave out.
                        rank._left_out -= 1
                        continue
                    rank._native.handed_out(time.monotonic() - begun)
                    rank._handed.append(samples)
                    self._refuse_too_many()
                    yield batch
                    if rank.done or rank._incarnations != incarnation:
                        break
            except GroupBroken as error:
                assert rank._replica is not None
                rank._reform(str(error), rank._replica.backwards)
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


class Loader(Batches):
    """A `torch.utils.data.DataLoader` over the samples that the run deals to this rank."""

    def __init__(self, rank: Rank, data: Dataset[Any], batch_size: int | None, arguments: dict[str, Any]) -> None:
        from torch.utils.data import DataLoader, default_collate

        for name in _DECIDED:
            if name in arguments:
                raise TradewindError(f"{name} is the run's to decide: leave it out")
        batch = rank._native.batch
        if batch_size not in (None, batch):
            raise TradewindError(f"batch_size is {batch_size}, and train.batch of the run's file {batch}: make them equal")
        ahead = arguments.get("num_workers", 0) * (arguments.get("prefetch_factor") or 2)
        super().__init__(rank, len(data))  # type: ignore[arg-type]
        if self._most is not None and ahead > self._most:
            raise TradewindError(
                f"num_workers times prefetch_factor is {ahead}, and a group may ask for {self._most} batches ahead, of "
                f"data of {len(data)} samples: lower them, or raise train.chunk_samples in the run's file"  # type: ignore[arg-type]
            )
        if isinstance(data, Samples):
            _stage(rank._native, data)
        self._ahead = ahead
        if arguments.get("num_workers", 0) > 0:
            arguments["worker_init_fn"] = _Dies(arguments.get("worker_init_fn"))
        has_cache = rank._native.cache is not None
        if has_cache:
            arguments["collate_fn"] = _AndCopied(arguments.get("collate_fn") or default_collate)
        loader = DataLoader(data, batch_sampler=self._dealt, **arguments)
        self._loader = _Heard(rank._native, loader) if has_cache else loader


def _stage(native: _native.Rank, data: Samples) -> None:
    """These are the run's training data: files of the group's sets are copied ahead of their use."""
    if (data._cache, data._replaces_damaged) != (native.cache, native.replaces_damaged):
        raise TradewindError(
            "the run's file has loader.cache or loader.damaged, which these samples would not follow: open them with "
            "tradewind.Samples(path, rank=rank)"
        )
    native.stage(data._opened())


class _AndCopied:
    """Makes a batch, and says what the process that reads it has copied meanwhile to the machine's disk."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: list[Any]) -> tuple[Any, tuple[int, float]]:
        return self._collate(samples), _native.take_copied()


class _Heard:
    """Batches as the script has them; the rank is told what was copied for them."""

    def __init__(self, native: _native.Rank, batches: Iterable[Any]) -> None:
        self._native, self._batches = native, batches

    def __iter__(self) -> Iterator[Any]:
        for batch, (copied, seconds) in self._batches:
            self._native.copied(copied, seconds)
            yield batch


class Batch(NamedTuple):
    """Samples that a step is for."""

    epoch: int
    samples: list[int]


class Dealt:
    """Numbers of samples, batch by batch, for a DataLoader to fetch ahead. A rank has one of these.

    Iterating over it gives an epoch. What an iteration has fetched ahead and not handed out, the next one gives
    first.
    """

    def __init__(self, native: _native.Rank) -> None:
        self._native = native
        #: Asked for and not handed out.
        self._asked: deque[Batch] = deque()
        #: How many were handed out before those.
        self._handed_out = 0
        self._iterations = 0

    def restart(self) -> None:
        """The group has entered another incarnation: what was asked for is dealt again, to anybody."""
        self._asked.clear()
        self._iterations += 1

    def begin(self) -> int:
        """An iteration begins; its number."""
        self._iterations += 1
        return self._iterations

    def check(self, iteration: int) -> None:
        """Refuses an iteration after which another one has begun."""
        if iteration != self._iterations:
            raise TradewindError(
                "another iteration over this rank's batches has begun: finish a loop over rank.loader(data) before "
                "the next one begins"
            )

    def hand_out(self) -> int:
        """The script takes the first that was asked for; how many samples it has."""
        self._handed_out += 1
        return len(self._asked.popleft().samples)

    def __iter__(self) -> Iterator[list[int]]:
        epoch = None
        at, iteration = self._handed_out, self._iterations
        while True:
            self.check(iteration)
            ahead = at - self._handed_out
            if ahead == len(self._asked):
                self._asked.append(Batch(*self._native.next_batch()))
            batch = self._asked[ahead]
            if epoch is not None and batch.epoch != epoch:
                return
            epoch = batch.epoch
            at += 1
            yield batch.samples


class _Dies:
    """Has a worker of a DataLoader die with its rank: it would hold the rank's connections open."""

    def __init__(self, init: Callable[[int], None] | None) -> None:
        self._init = init

    def __call__(self, worker: int) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if self._init is not None:
            self._init(worker)
