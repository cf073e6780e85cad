"""A rank of a run: what `join` returns. Imports no torch."""

from __future__ import annotations

import atexit
import json
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from . import _native
from ._native import GroupBroken, TradewindError

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset

    from ._loader import Loader
    from ._optimizer import Optimizer
    from ._replica import Replica

#: Statuses with which a rank's process ends; docs/run-folder.md has the table.
FAILED, GIVEN_UP, LEFT = 1, 4, 5

_joined: Rank | None = None


def join() -> Rank:
    """Takes part in the run whose launcher has started this process.

    Returns:
        The rank. Nothing is sent before the script has named its model and its data.

    Raises:
        TradewindError: Without a launcher, or when called twice.
    """
    global _joined
    if _joined is not None:
        raise TradewindError("this process has joined already: call tradewind.join() once and keep the rank")
    native = _native.Rank.from_environment()
    if native is None:
        raise TradewindError(
            "no launcher has started this process; start it with: tradewind run run.toml -- python "
            + (sys.argv[0] or "script.py")
        )
    _joined = Rank(native)
    return _joined


class Rank:
    """One rank of a run."""

    def __init__(self, native: _native.Rank) -> None:
        self._native = native
        self._replica: Replica | None = None
        self._samples: int | None = None
        self._entered = False
        #: Counts the incarnations of the group that this rank has entered.
        self._incarnations = 0
        self._end: str | None = None
        self._left = False
        self._raised = False
        self._loss: float | None = None
        self._loss_is_of_next = False
        #: Samples of each batch that was handed to the script since its last step.
        self._handed: list[int] = []
        #: Batches that are dealt to this rank and to be passed over.
        self._left_out = 0
        hook = sys.excepthook

        def note(*error: Any) -> None:
            self._raised = True
            hook(*error)

        sys.excepthook = note
        atexit.register(self._at_exit)

    @property
    def run(self) -> str:
        """Name of the run."""
        return self._native.run

    @property
    def group(self) -> int:
        """Number of the group, from 0."""
        return self._native.group

    @property
    def rank(self) -> int:
        """Number of this rank in its group, from 0, as configured."""
        return self._native.rank

    @property
    def group_size(self) -> int:
        """Ranks of the group, as configured. An incarnation of the group may have fewer."""
        return self._native.group_size

    @property
    def local_rank(self) -> int:
        """Number of this rank among those of its machine, from 0."""
        return self._native.local_rank

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self._native.seed

    @property
    def settings(self) -> dict[str, Any]:
        """Section `script` of the run's file: what the script reads, and experiments vary."""
        return json.loads(self._native.settings)

    @property
    def device(self) -> torch.device:
        """What this rank computes on, as `compute.device` of the run's file says: the CPU, or a GPU of its own."""
        from ._device import choose

        return choose(self._native.device, self._native.local_rank)

    @property
    def done(self) -> bool:
        """Whether the run's budget is applied, or the group was asked to leave: no further step is wanted."""
        return self._end is not None

    def optimizer(self, model: torch.nn.Module) -> Optimizer:
        """The servers' optimizer, as the run's file says, for all parameters of `model` that are trained.

        The parameters become views of one vector, in place: a model is moved to its device before. Their
        values are the script's until the first batch is taken; then they are the run's.

        Args:
            model: Its trained parameters are f32, bf16 or f16; what is frozen is the same on all ranks.

        Raises:
            TradewindError: For a parameter that cannot be exchanged, by its name.
        """
        from ._optimizer import Optimizer
        from ._replica import Replica

        if self._replica is not None:
            raise TradewindError("this rank has its optimizer already: call rank.optimizer(model) once")
        self._replica = Replica(self, model)
        return Optimizer(self, self._replica)

    def loader(self, data: Dataset[Any], batch_size: int | None = None, **arguments: Any) -> Loader:
        """Batches of this rank's part of `data`, as the run deals it.

        An iteration is an epoch; it ends before that when the run's budget is applied. What a rank that died
        had not finished is dealt to others.

        Args:
            data: Its length is the same on all ranks.
            batch_size: Samples per step; `train.batch` of the run's file if it is left out.
            arguments: All else that `torch.utils.data.DataLoader` takes, such as `num_workers` or `collate_fn`.

        Raises:
            TradewindError: For arguments that the run decides, such as `shuffle` or `sampler`.
        """
        from ._loader import Loader

        return Loader(self, data, batch_size, arguments)

    def log(self, *, loss: float | torch.Tensor) -> None:
        """Records the loss of a step: the mean over its samples on this rank. Every rank calls it."""
        replica = self._replica
        self._loss = float(loss.detach() if hasattr(loss, "detach") else loss)
        self._loss_is_of_next = replica is not None and replica.has_gradient

    def leave(self) -> None:
        """Leaves the run with the group before the budget is applied. All ranks of the group call it."""
        if not self._entered:
            self._fail("this rank has entered no group that it could leave")
        self._end = self._end or "left"
        self._leave()

    # What the parts of the package call.

    def _needs_samples(self, samples: int) -> None:
        """The training data have so many samples."""
        if self._samples not in (None, samples):
            raise TradewindError(
                f"data of {samples} samples beside data of {self._samples}: a run has one set of training data"
            )
        self._samples = samples

    def _enter(self) -> None:
        """Enters the group, if the rank is not in it."""
        if self._entered or self.done:
            return
        if self._replica is None:
            raise TradewindError("call rank.optimizer(model) before the first batch is taken")
        if self._samples is None:
            raise TradewindError("call rank.loader(data) before the first step")
        self._replica.begin(self._samples)
        self._form()

    def _form(self) -> None:
        """Enters an incarnation of the group; where one breaks meanwhile, the next."""
        assert self._replica is not None
        while not self.done:
            try:
                stepped = self._replica.form()
            except GroupBroken as error:
                self._break_off(str(error))
                continue
            self._entered = True
            self._incarnations += 1
            self._handed.clear()
            self._took(stepped)
            return

    def _break_off(self, reason: str) -> None:
        assert self._replica is not None
        self._entered = False
        self._replica.part()
        if not self._native.again(reason):
            self._end, self._left = "left", True

    def _reform(self, reason: str) -> None:
        """This incarnation of the group is over: enters the next one."""
        self._break_off(reason)
        self._form()

    def _took(self, stepped: _native.Stepped) -> None:
        """A step, or entering, has come to this."""
        if stepped.end is not None:
            self._end = stepped.end

    def _leave(self) -> None:
        """Leaves, once, when there is nothing more to do."""
        if self._left or not self._entered:
            return
        self._left = True
        try:
            self._native.leave(self._take_loss())
        except GroupBroken:
            # Whoever hears it knows that the rank has ended.
            pass

    def _take_loss(self) -> float | None:
        loss, self._loss = self._loss, None
        return loss

    def _fail(self, text: str) -> NoReturn:
        raise TradewindError(text)

    def _at_exit(self) -> None:
        # A SystemExit of the native half keeps its status, which tells the launcher what follows.
        if self._raised or _native.failed_with() != 0:
            self._native.flush()
            sys.stdout.flush()
            sys.stderr.flush()
            # A thread that breaks the group needs the interpreter, and crashes while that ends.
            os._exit(_native.failed_with() or FAILED)
        if self.done:
            self._leave()
        self._native.flush()
        if not self.done:
            text = (
                "tradewind: the script has ended before the run's budget was applied; "
                "iterate until rank.done, or call rank.leave()\n"
            )
            sys.stderr.write(text)
        sys.stdout.flush()
        sys.stderr.flush()
        if not self.done:
            os._exit(FAILED)
        if self._end == "left":
            os._exit(LEFT)
