"""A rank of a run: what `join` returns. Imports no torch."""

from __future__ import annotations

import atexit
import json
import math
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from . import _native
from ._evaluate import Better, Evaluations, Returned
from ._keep import Keeper, Kept, S, T
from ._loader import Batches, Dealt, Loader
from ._native import GroupBroken, TradewindError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.utils.data import Dataset

    from ._arrays import Arrays
    from ._attached import Attached
    from ._names import Names
    from ._optimizer import Optimizer
    from ._replica import Replica

#: Statuses with which a rank's process ends; docs/run-folder.md has the table.
FAILED, GIVEN_UP, LEFT = 1, 4, 5

_joined: Rank | None = None

F = TypeVar("F", bound=Callable[[Any], Returned])


def join(file: str | os.PathLike[str] | None = None, *, torch_names: bool = False) -> Rank:
    """Takes part in the run whose launcher has started this process.

    Args:
        file: The run's file, for a process that no launcher has started: it is then the only rank, and has its
            servers in itself, whatever the file says about groups. Beside a launcher it is not read.
        torch_names: Sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in os.environ,
            of this rank in its group, so that ``torch.distributed.init_process_group("gloo")`` connects the ranks
            of the group. Waits until all of them are there. Where one of them is started again, all are.

    Returns:
        The rank. Nothing is sent before the script has named its model and its data.

    Raises:
        TradewindError: Without a launcher and a file, for a file that is no run's, or when called twice; with
            `torch_names` if other ranks of the group do not come, or without PyTorch.
    """
    global _joined
    if _joined is not None:
        raise TradewindError("this process has joined already: call tradewind.join() once and keep the rank")
    native = _native.Rank.from_environment()
    if native is None:
        script = sys.argv[0] or "script.py"
        if file is None:
            raise TradewindError(
                f"no launcher has started this process; start it with: tradewind run run.toml -- python {script}; or "
                'debug it alone, with tradewind.join("run.toml")'
            )
        native = _native.Rank.begin_alone(os.fspath(file), [sys.executable or "python", script], secrets.token_hex(16))
        sys.stderr.write("tradewind: no launcher: this process is the only rank, with its servers in itself\n")
    _joined = Rank(native)
    if torch_names:
        _joined._take_names()
    return _joined


class Rank:
    """One rank of a run."""

    def __init__(self, native: _native.Rank) -> None:
        self._native = native
        self._replica: Replica | Arrays | None = None
        self._samples: int | None = None
        self._entered = False
        #: Counts the incarnations of the group that this rank has entered.
        self._incarnations = 0
        #: Numbers of samples, batch by batch, as they are dealt to this rank.
        self._dealt = Dealt(native)
        self._end: str | None = None
        self._left = False
        #: What the process ends with after an exception that nobody has caught.
        self._raised: int | None = None
        self._attached: Attached | None = None
        #: Losses that the script has logged, of the last step and of the one that comes.
        self._losses: list[float] = []
        self._losses_of_next: list[float] = []
        self._process = os.getpid()
        #: Torch's names of this rank, and the mesh of its group, once somebody has asked.
        self._names: Names | None = None
        self._mesh: DeviceMesh | None = None
        #: Samples of each batch that was handed to the script and used in no step yet.
        self._handed: list[int] = []
        #: Batches that are dealt to this rank and to be passed over.
        self._left_out = 0
        self._keeper = Keeper(self)
        self._evaluations = Evaluations(self)
        hook = sys.excepthook

        def note(kind: type[BaseException], *error: Any) -> None:
            self._raised = self._status_of(kind)
            hook(kind, *error)

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
        settings: dict[str, Any] = json.loads(self._native.settings)
        return settings

    @property
    def device(self) -> torch.device:
        """What this rank computes on, as `compute.device` of the run's file says: the CPU, or a GPU of its own."""
        from ._device import choose

        return choose(self._native.device, self._native.local_rank)

    def mesh(self) -> DeviceMesh:
        """The ranks of the group, for a model that does not fit one of them: ``fully_shard(model, mesh=rank.mesh())``.

        Has the ranks of the group meet, as ``join(torch_names=True)`` does, and begins torch's process group: all
        ranks of the group call it. Where one of them is started again, all are, with the servers' values.

        Returns:
            A mesh of one dimension, in the order of ranks. A group of one rank has a mesh of one.

        Raises:
            TradewindError: If torch is older than 2.6, or if other ranks of the group do not come.
        """
        self._refuse_forked()
        if self._mesh is None:
            if self._names is None:
                self._take_names("rank.mesh()")
            from ._mesh import mesh_of

            self._mesh = mesh_of(self)
        return self._mesh

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

        if self._native.is_local:
            raise TradewindError(
                "local.algorithm of the run's file leaves steps to an optimizer of the script's: make it, and call "
                "rank.attach(model, opt), or leave local.algorithm out"
            )
        return Optimizer(self, self._take_over(model))

    def attach(self, model: torch.nn.Module, opt: torch.optim.Optimizer) -> None:
        """Has `opt` take steps between exchanges, as `local.*` of the run's file says: DiLoCo, or elastic averaging.

        The group agrees on each step, after which `opt` does it with the group's mean gradient; after
        `local.steps` of them the group exchanges what they came to. State of `opt`, such as its moments, stays on
        the rank, as long as the group is not formed again. A scheduler is the script's.

        Args:
            model: As for `optimizer`.
            opt: Has all parameters of `model` that are trained, and no others.

        Raises:
            TradewindError: Without `local.algorithm` in the run's file, or for parameters that do not fit, by name.
        """
        from ._attached import Attached

        if not self._native.is_local:
            raise TradewindError(
                "the run's file has no local.algorithm, so its servers take the steps: call "
                "opt = rank.optimizer(model), or set local.algorithm and local.steps"
            )
        self._attached = Attached(self, self._take_over(model), model, opt)

    def _take_over(self, model: torch.nn.Module) -> Replica:
        import torch

        from ._replica import Replica

        self._refuse_forked()
        if self._replica is not None:
            raise TradewindError(
                "this rank has its optimizer already: call rank.optimizer(model) or rank.attach(model, opt) once"
            )
        if not isinstance(model, torch.nn.Module):
            raise TradewindError(
                f"this takes the model, a torch.nn.Module, and not {type(model).__name__}: its parameters are one "
                "group, of which optimizer.decay_exempt spares some from decay"
            )
        replica: Replica
        # Without that nobody can have sharded it. Older versions of torch have DTensor elsewhere, and no fully_shard.
        if hasattr(sys.modules.get("torch.distributed.tensor"), "DTensor"):
            from ._island import Island, is_sharded

            replica = Island(self, model) if is_sharded(model) else Replica(self, model)
        else:
            replica = Replica(self, model)
        self._replica = replica
        return replica

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A backward inside of this does not average: the next one outside averages the sum of all.

        As in DistributedDataParallel, for all batches of a step but the last.
        """
        if self._replica is None:
            raise TradewindError("call rank.optimizer(model) or rank.attach(model, opt) first")
        before, self._replica.synchronizes = self._replica.synchronizes, False
        try:
            yield
        finally:
            self._replica.synchronizes = before

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
        self._refuse_forked()
        return Loader(self, data, batch_size, arguments)

    def share(self, arrays: Mapping[str, Any], *, samples: int) -> dict[str, numpy.ndarray]:
        """Names the arrays that the run trains, in a script without PyTorch. Groups have one rank each.

        Args:
            arrays: By name; f32, with Python's buffer protocol or DLPack's, such as those of NumPy or JAX. They are
                the initial values, until the first batch is taken.
            samples: Length of the training data; the same on all ranks.

        Returns:
            By name arrays of NumPy of the same shapes: views of memory that has the run's values from the first
            batch on. Each exchange changes them in place.

        Raises:
            TradewindError: For an array that cannot be exchanged, by its name, or in a group of several ranks.
        """
        arrays_of = self._arrays_module()
        if self._replica is not None:
            raise TradewindError("this rank has its model already: call rank.share(arrays) once")
        shared = arrays_of.Arrays(self, arrays, samples)
        self._needs_samples(samples)
        self._replica = shared
        return shared.values

    def batches(self) -> Batches:
        """Batches of this rank's part of the training data, each a list of numbers of samples, from 0: of a script
        without PyTorch. An iteration is an epoch; it ends before that when the run's budget is applied.
        """
        if self._samples is None:
            raise TradewindError("call rank.share(arrays, samples=…) first: it says how many samples there are")
        return self._arrays_module().NumberedBatches(self, self._samples)

    def exchange(self, gradients: Mapping[str, Any], *, loss: float | None = None) -> dict[str, numpy.ndarray]:
        """Exchanges the gradient of the batches at hand for fresh values.

        Args:
            gradients: For each array that :meth:`share` has named its gradient, f32 and of the same shape: the mean
                over the batches that were taken since the last exchange.
            loss: Mean loss of these batches, for the run's metrics.

        Returns:
            What :meth:`share` has returned, with fresh values.
        """
        shared = self._replica
        if not isinstance(shared, self._arrays_module().Arrays):
            raise TradewindError("call rank.share(arrays) first; a model of PyTorch has rank.optimizer(model)")
        shared.exchange(gradients, loss)
        return shared.values

    @staticmethod
    def _arrays_module() -> Any:
        try:
            from . import _arrays
        except ModuleNotFoundError as error:
            if error.name != "numpy":
                raise
            raise TradewindError("arrays need NumPy, which is missing: pip install numpy") from None
        return _arrays

    def log(self, *, loss: float | torch.Tensor) -> None:
        """Records the loss of a batch: the mean over its samples on this rank. Every rank calls it.

        That of a step is the mean over its batches.
        """
        self._refuse_forked()
        # Between backward and step it is that of the step that comes.
        of_next = self._replica is not None and self._replica.has_gradient
        losses = self._losses_of_next if of_next else self._losses
        losses.append(float(loss.detach() if hasattr(loss, "detach") else loss))

    @overload
    def evaluate(self, function: F) -> F: ...

    @overload
    def evaluate(self, *, better: Better) -> Callable[[F], F]: ...

    def evaluate(self, function: Any = None, *, better: Better = "lower") -> Any:
        """Registers a function of the model that says how good it is; a decorator.

            @rank.evaluate(better="higher")
            def accuracy(model):
                return ...

        When the run is over, the launcher starts the script once more: its loader is empty, its model has the
        servers' values, and the function is called, with the model in evaluation mode and without gradients. It is
        called as well for each parameters that `evaluation.every_samples` has saved on the way. What it
        returns is the metric of the run's summary, and what experiments compare.

        Where a group has its model sharded over its ranks, all ranks of the first such group are started once more
        instead, and have it sharded again: each calls the function, which calls the model equally often on each.
        What it returns on the first rank counts.

        Args:
            function: Takes the model, and returns a number, which then has the function's name; or one under
                another name, such as ``{"accuracy": 0.98}``; or an `Evaluation`.
            better: Which way the metric is better, "lower" or "higher".

        Raises:
            TradewindError: For a second function.
        """

        def register(function: F) -> F:
            self._evaluations.register(function, better)
            return function

        return register if function is None else register(function)

    @property
    def evaluating(self) -> bool:
        """Whether the run is over, and this process was started to evaluate its parameters."""
        return self._native.evaluating

    def save(self, path: str | os.PathLike[str], *, max_shard_bytes: int | None = None) -> None:
        """Writes the model as it is on this rank: parameters, frozen ones too, and persistent buffers.

        Where the model is sharded all ranks of the group call it, and the first one writes, with a few MiB more memory.

        Args:
            path: A file such as ``model.safetensors``, which `tradewind.load` and ``load_state_dict`` read again,
                and which is whole or not there. With `max_shard_bytes` a folder, for the layout of Hugging Face:
                ``model-00001-of-00003.safetensors`` and so on, and ``model.safetensors.index.json``.
            max_shard_bytes: Most bytes of tensors in a file of that folder; a larger tensor has one of its own.

        Raises:
            TradewindError: Before `rank.optimizer`, for a tensor of a type that no file has, and if the disk is
                full or the path's folder is missing.
        """
        if self._replica is None:
            raise TradewindError("call rank.optimizer(model) first: that is the model that is saved")
        self._replica.save(path, max_shard_bytes)

    @overload
    def keep(self, name: str, value: S) -> S: ...  # type: ignore[overload-overlap]

    @overload
    def keep(self, name: str, value: T) -> Kept[T]: ...

    def keep(self, name: str, value: Any) -> Any:
        """Has something there again when this rank's process is started again, and with `--resume`.

            ema = rank.keep("ema", AveragedModel(model))
            steps = rank.keep("steps", 0)
            steps.value += 1

        It is written between steps, every ten seconds or, where writing takes longer than half a second, twenty
        times as long as that takes; and when the rank leaves. What is restored here can be as old as that. A group
        that forms again in the same process restores nothing.

        Args:
            name: Another one for each value.
            value: Something with ``state_dict()`` and ``load_state_dict()``, or a plain value. Its state may have
                tensors, numbers, texts, lists and dicts, of 4 GiB at most on a rank.

        Returns:
            `value`, with its kept state if there is one; for a plain value a `Kept`, whose attribute `value` it is.

        Raises:
            TradewindError: For a name that is kept already, and a state that cannot be kept or does not fit.
        """
        return self._keeper.keep(name, value)

    def leave(self) -> None:
        """Leaves the run with the group before the budget is applied. All ranks of the group call it."""
        self._refuse_forked()
        if self._native.evaluating:
            return
        if not self._entered:
            raise TradewindError("this rank has entered no group that it could leave")
        self._end = self._end or "left"
        self._leave()

    # What the parts of the package call.

    def _take_names(self, asked: str = "torch_names=True") -> None:
        """Meets the other ranks of the group, and sets torch's names of this one; `asked` is what the script calls."""
        try:
            from ._names import Names
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise TradewindError(f"{asked} needs PyTorch, which is missing: pip install torch") from None
        self._names = Names(self, asked)

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
        if self._native.evaluating:
            self._end = "applied"
            self._evaluations.pull()
            return
        if self._replica is None:
            raise TradewindError(
                "call rank.optimizer(model), rank.attach(model, opt) or rank.share(arrays) before the first batch is taken"
            )
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
            self._dealt.restart()
            self._left_out = 0
            self._handed.clear()
            self._losses.clear()
            self._losses_of_next.clear()
            self._took(stepped)
            if self._attached is not None:
                self._attached.entered(self._incarnations > 1)
            return

    def _break_off(self, reason: str) -> None:
        assert self._replica is not None
        self._entered = False
        self._replica.part()
        if not self._native.again(reason):
            self._end, self._left = "left", True
        elif not self._replica.forms_again:
            self._begin_anew(
                f"{reason}: this process ends, and all ranks of the group begin anew with the servers' values"
            )

    def _reform(self, reason: str, of_step: int) -> None:
        """This incarnation of the group is over: enters the next one.

        Args:
            of_step: Batches of the step that is given up. What the script has taken besides is dealt again, to
                anybody, and it would train on it all the same.
        """
        if len(self._handed) > of_step:
            self._begin_anew(
                f"{reason}: the group forms again, and this script has taken a batch ahead of its step, which is dealt "
                "again: this process ends, and a new one takes its place"
            )
        self._break_off(reason)
        self._form()

    def _begin_anew(self, why: str) -> NoReturn:
        """Ends this process; the launcher starts the script again."""
        sys.stderr.write(f"tradewind: {why}\n")
        self._flush()
        os._exit(FAILED)

    def _flush(self) -> None:
        """All that was printed and logged is written."""
        self._native.flush()
        sys.stdout.flush()
        sys.stderr.flush()

    def _took(self, stepped: _native.Stepped) -> None:
        """An exchange, or entering, has come to this."""
        self._left_out = stepped.left_out
        if stepped.end is not None:
            self._end = stepped.end

    def _leave(self) -> None:
        """Leaves, once, when there is nothing more to do. Where the group has formed again meanwhile, it enters once
        more: there may be something to do again.
        """
        while self._entered and self.done and not self._left:
            self._keeper.write()
            try:
                self._native.leave(self._take_loss())
            except GroupBroken as error:
                if self._end != "left":
                    self._end = None
                    self._reform(str(error), len(self._handed))
                    continue
                # Whoever hears it knows that the rank has ended.
            self._left = True
            if self._native.alone:
                self._evaluations.due()

    def _take_loss(self) -> float:
        """The mean loss of the last step, now that the next one is there; NaN if the script has not said."""
        losses = self._losses
        self._losses, self._losses_of_next = self._losses_of_next, []
        return sum(losses) / len(losses) if losses else math.nan

    def _batches(self, backwards: int) -> list[int]:
        """Samples of each batch of the step at hand. Some loops take a batch before the step of the one before:
        as many as backward has run for are used.
        """
        self._refuse_forked()
        if not self._entered:
            raise TradewindError("no batch was taken yet: iterate over rank.loader(data)")
        batches = self._handed[: max(backwards, 1)]
        if not batches:
            raise TradewindError(
                "no batch of rank.loader(data) was taken since the last step: a step is for samples that the run has "
                "dealt, and a loader of your own deals others"
            )
        return batches

    def _used(self, batches: list[int]) -> None:
        """A step has used the first of the batches that were handed out."""
        del self._handed[: len(batches)]

    def _refuse_forked(self) -> None:
        if os.getpid() != self._process:
            raise TradewindError(
                "this process was forked from a rank, and its methods are the rank's alone: a worker of a loader "
                "prepares samples, the script's own process does the rest"
            )

    def _status_of(self, raised: type[BaseException]) -> int:
        """What the process ends with after an exception: the launcher starts the script again where that may help."""
        lasts = issubclass(raised, TradewindError) and not issubclass(raised, (GroupBroken, Unavailable))
        return GIVEN_UP if lasts and not (self._native.alone or self._native.evaluating) else FAILED

    def _at_exit(self) -> None:
        if os.getpid() != self._process:
            return
        status = self._come_to_the_end()
        self._flush()
        if status is None and self._names is not None and not self._names.close():
            status = 0
        if status is not None:
            # Threads that need the interpreter, such as one that breaks the group, crash while that ends.
            os._exit(status)

    def _come_to_the_end(self) -> int | None:
        """The script has ended: does what is left to do. The status with which the process ends at once, if there is
        one to be told, or something that must not go on.
        """
        # A SystemExit of the native half keeps its status, which tells the launcher what follows.
        failed = _native.failed_with() or self._raised
        if failed:
            return failed
        if self._native.evaluating:
            return 0 if self._evaluations.end() else FAILED
        if self.done:
            self._leave()
            self._keeper.write()
        if not self.done:
            text = (
                "tradewind: the script has ended before the run's budget was applied; "
                "iterate until rank.done, or call rank.leave()\n"
            )
            sys.stderr.write(text)
            return FAILED
        if self._end == "left":
            return LEFT
        # Threads of torch's process group may end the process by a signal while the interpreter ends.
        return None if self._mesh is None else 0
