"""A model whose trained tensors are views of one vector, and the group that trains it."""

from __future__ import annotations

import ctypes
import math
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed import Store, TCPStore

from ._flat import Flat
from ._group import Group, Ranks, Reduction, Scattered, guard
from ._native import GroupBroken, TradewindError
from ._saving import of_model
from ._sealed import serve
from ._stored import Model
from ._tensors import buffers, frozen, places, trained

if TYPE_CHECKING:
    from . import _native
    from ._rank import Rank


class Replica:
    """The model of one rank."""

    #: Whether the group can form again with this process in it.
    forms_again = True
    #: Whether this rank has all of the model.
    is_whole = True

    def __init__(self, rank: Rank, model: nn.Module, staged: bool = False) -> None:
        self._rank = rank
        self._native = rank._native
        self.model = model
        if "OMP_NUM_THREADS" not in os.environ:
            # There a launcher says it, or a person, and torch has read it.
            torch.set_num_threads(self._native.threads)
        if self._native.deterministic:
            torch.use_deterministic_algorithms(True)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self._native.tf32
        self.parameters = trained(model)
        self.buffers = buffers(model)
        self._places = places(model, self.parameters)
        self._device = self.parameters[0][1].device
        if self._device != rank.device:
            raise TradewindError(f"the model is on {self._device}: move it with model.to(rank.device), {rank.device}")
        if self._device.type == "cuda":
            # Streams leave a thread on the GPU that it was on: the first one, on which that makes a context.
            torch.cuda.set_device(self._device)
        if self._native.scatter and self._device.type != "cpu":
            raise TradewindError('exchange.reduce = "scatter" is for the CPU: leave it out of the run\'s file')
        self._frozen = frozen(model)
        self._staged = staged
        self._begun = False
        #: Whether backward has run since the last step.
        self.has_gradient = False
        #: How often it has, since the last step.
        self.backwards = 0
        #: Whether a backward averages over the group; whether the one at hand, or the last, does something with
        #: buckets while it goes on; and how many have, since the last step.
        self.synchronizes = True
        self._averages = False
        self._averaged = 0
        #: Parameters that backward has reached, by number.
        self._touched: set[int] = set()
        self._group: Group | None = None
        self._store: TCPStore | None = None
        #: What has broken a reduction in backward.
        self._broken: str | None = None
        #: Buckets that are being averaged, by number, in order.
        self._pending: list[tuple[int, Reduction | Scattered | None]] = []
        self._queued = False
        #: What the gradient's version was when main memory had all of it.
        self._left: int | None = None

    def begin(self, samples: int) -> None:
        """The model is what it is: lays it out. The training data have so many samples."""
        if self._begun:
            return
        self._begun = True
        named: list[tuple[str, Tensor, bool]] = [(name, tensor, False) for name, tensor in self.parameters]
        named += [(name, tensor, True) for name, tensor in self.buffers]
        specs = [(name, list(tensor.shape), buffer) for name, tensor, buffer in named]
        elements, placed = self._native.describe(specs, samples, self._frozen)
        self._flat = flat = Flat(elements, self._device, self._staged)
        self.values, self.gradient = flat.values, flat.gradient
        buckets = self._native.buckets()
        self._buckets = buckets.parameters
        self._buffer_range = slice(*buckets.buffers)
        begins: list[int] = [0] * len(named)
        for place in placed:
            name, tensor, buffer = named[place.tensor]
            gradient = flat.place(tensor, place.begin)
            begins[place.tensor] = place.begin
            if not buffer:
                tensor.grad = gradient
        flat.bring()
        self._kept_buffers = self.values[self._buffer_range].clone()
        self._waits = [0] * len(self._buckets)
        self._sizes = [0] * len(self._buckets)
        for number, (_, parameter) in enumerate(self.parameters):
            bucket = self._bucket_of(begins[number])
            self._sizes[bucket] += 1
            self._hook(number, parameter, bucket)
        self.gradients = [parameter.grad for _, parameter in self.parameters]
        self._addresses = [parameter.data_ptr() for _, parameter in self.parameters]
        self._native.bind(memory_of(flat.host_values), memory_of(flat.host_gradient), self._device.type == "cuda")

    def _bucket_of(self, element: int) -> int:
        for number, (begin, end) in enumerate(self._buckets):
            if begin <= element < end:
                return number
        raise AssertionError("every parameter lies in a bucket")

    # The group.

    def form(self) -> _native.Stepped:
        """Joins, meets the other ranks, and brings the servers' values."""
        self.part()
        if self._native.group_size > 1 and self._store is None:
            self._store = serve(self._native.host, self._patience())
        own = "" if self._store is None else f"{self._native.host}:{self._store.port}"
        joined = self._native.join(own)
        ranks = self._meet(joined, own)
        stepped = self._native.enter(ranks)
        self.fresh()
        self.zero()
        return stepped

    def _meet(self, joined: _native.Joined, own: str) -> Ranks | None:
        """Meets the other ranks, if there are any; `own` is where this rank serves a store."""
        if joined.group_size > 1:
            store = self._store_of(joined, own)
            self._group = guard(
                "meeting the group",
                lambda: Group(joined, store, self._patience(), self._flat, self._native.breaks),
            )
        return self._group

    def _store_of(self, joined: _native.Joined, own: str) -> Store:
        if joined.store_address == own and self._store is not None:
            return self._store
        store: Store = guard("meeting the group", lambda: store_at(joined.store_address, self._patience()))
        return store

    def deal(self, slices: list[list[tuple[int, int]]]) -> None:
        """Of a rank that evaluates: of the flat vector each rank has brought its slice from the servers."""

    def part(self) -> None:
        """Leaves the group as it is: another may form."""
        self._group = None
        self._broken = None
        self._pending.clear()
        self._queued = False
        self._left = None
        self.has_gradient = False
        self.backwards = 0
        self._averaged = 0

    def fresh(self) -> None:
        """An exchange has ended: the model has what it has brought."""
        self._flat.arrived(slice(None) if self._group is None else self._buffer_range)
        self._flat.spread()

    def bring_values(self) -> None:
        """The model's own values are what is exchanged: exchanges find them where they look."""
        self._flat.bring()

    def _patience(self) -> timedelta:
        return timedelta(seconds=self._native.lease_seconds)

    # The model.

    @property
    def library(self) -> str:
        """What computes with it."""
        return str(torch.__version__)

    def stored(self) -> Model:
        """Its whole state, as files have it."""
        return of_model(self.model)

    def save(self, path: str | os.PathLike[str], shard_bytes_max: int | None) -> None:
        """Writes it, as `tradewind.Rank.save` says."""
        self.stored().save(path, shard_bytes_max)

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        """The model in evaluation mode, without gradients."""
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            with torch.no_grad():
                yield self.model
        finally:
            for module in training:
                module.training = True

    # Backward.

    def _hook(self, number: int, parameter: nn.Parameter, bucket: int) -> None:
        def accumulated(parameter: Tensor) -> None:
            if not self._queued:
                self._begin_backward()
            self.has_gradient = True
            self._touched.add(number)
            view = self.gradients[number]
            if parameter.grad is not view:
                # The script has let go of it: model.zero_grad(), say.
                assert view is not None and parameter.grad is not None
                view.copy_(parameter.grad)
                parameter.grad = view
            if not self._averages:
                return
            self._waits[bucket] -= 1
            if self._waits[bucket] == 0:
                self._reduce(bucket)
            self._advance(wait=False)

        parameter.register_post_accumulate_grad_hook(accumulated)

    def _begin_backward(self) -> None:
        per_bucket = self._native.per_bucket and self._rank._entered
        self._averages = per_bucket or (self._group is not None and self.synchronizes)
        self._queued = True
        torch.autograd.Variable._execution_engine.queue_callback(self._wait)
        if not self._averages:
            return
        # One that averages reaches every parameter.
        self._touched.clear()
        self._waits = list(self._sizes)
        self._averaged += 1
        if per_bucket:
            if self.backwards > 0 or not self.synchronizes:
                raise TradewindError(
                    "backward has run again, and with exchange.per_bucket the gradient of the first has left: take a "
                    "step after each backward, or set exchange.per_bucket = false"
                )
            size = 1 if self._group is None else self._group.size
            (samples,) = self._rank._batches(1)
            self._try(lambda: self._native.begin_backward(samples * size))
        elif self._averaged > 1:
            self._try(lambda: self._native.meet(len(self._rank._batches(self.backwards + 1))))

    def _reduce(self, bucket: int) -> None:
        """A bucket is computed."""
        begin, end = at = self._buckets[bucket]
        group = self._group
        if group is None:
            self._pending.append((bucket, None))
        elif self._native.scatter:
            self._try(lambda: self._pending.append((bucket, group.scatter(self.gradient, at, bucket))))
        else:
            self._try(lambda: self._pending.append((bucket, group.reduce(self.gradient[begin:end]))))

    def _advance(self, wait: bool) -> None:
        """What is averaged by now leaves; or all of it."""
        while self._pending and self._broken is None:
            bucket, reduction = self._pending[0]
            if not wait and reduction is not None and not reduction.is_done():
                return
            del self._pending[0]
            self._try(lambda: self._leave(bucket, reduction))

    def _leave(self, bucket: int, reduction: Reduction | Scattered | None) -> None:
        if reduction is not None:
            reduction.wait()
        self._flat.leave(slice(*self._buckets[bucket]))
        if self._native.per_bucket:
            self._flat.left()
            self._native.give(bucket)

    def _try(self, act: Callable[[], Any]) -> None:
        """Does something with the group; that it is broken is told by the step."""
        try:
            act()
        except GroupBroken as error:
            self._broken = str(error)
        except TradewindError:
            raise
        except RuntimeError as error:
            self._broken = str(error)

    def _wait(self) -> None:
        """At the end of backward: gradients are averaged on every rank, if they are in this one."""
        self._queued = False
        self.backwards += 1
        self._advance(wait=True)
        self._pending.clear()
        self._left = self.gradient._version if self._averages else None

    def zero(self) -> None:
        """Zeroes the gradient."""
        if not self._begun:
            return
        self.gradient.zero_()
        self.show_gradients()
        self._touched.clear()
        self.has_gradient = False

    def show_gradients(self) -> None:
        """The parameters have the gradient that is exchanged."""
        for (_, parameter), view in zip(self.parameters, self.gradients):
            parameter.grad = view

    def ready(self) -> None:
        """Before a step: the gradient is whole, and where exchanges look.

        Raises:
            GroupBroken: A reduction has failed.
            TradewindError: There is no gradient, or not of all parameters; or it is not that of the model.
        """
        self._refuse_replaced()
        self._refuse_unfinished()
        if self._group is not None and not self._averages:
            raise TradewindError(
                "the gradient is this rank's alone: the last backward before opt.step() is outside of rank.no_sync()"
            )
        for (name, parameter), view in zip(self.parameters, self.gradients):
            if parameter.grad is None or view is None or parameter.grad.data_ptr() != view.data_ptr():
                raise TradewindError(f"the gradient of {name} was replaced after backward: change it in place")
        self._touched.clear()
        self.backwards = 0
        self._averaged = 0
        self._refuse_changes()
        self._clip()
        if self._left != self.gradient._version:
            self._flat.leave(slice(None))
        self._left = None
        self._flat.left()

    def _refuse_unfinished(self) -> None:
        """Backward has run, on all parameters, and no reduction has failed."""
        if not self.has_gradient:
            raise TradewindError("a step without backward: call loss.backward() before opt.step()")
        self.has_gradient = False
        if self._broken is not None:
            raise GroupBroken(self._broken)
        if len(self._touched) < len(self.parameters):
            missing = [name for number, (name, _) in enumerate(self.parameters) if number not in self._touched]
            raise TradewindError(
                f"backward has not reached {', '.join(missing[:5])}{' …' * (len(missing) > 5)}: "
                "use every parameter in the loss, or freeze it with requires_grad_(False) before rank.optimizer"
            )

    def finite(self) -> bool:
        """Whether this rank's gradient is; of what lies where exchanges look they say it themselves."""
        return True

    def _clip(self) -> None:
        """Shortens the group's mean gradient, if that is longer than `optimizer.clip_norm`."""
        most = self._native.clip_norm
        if most is None:
            return
        group = self._group
        if group is not None and self._native.scatter:
            squares = group.own_square(self.gradient[: self._buffer_range.start])
        else:
            norms = [torch.linalg.vector_norm(view, dtype=torch.float64) for view in self.gradients]
            squares = float(torch.stack(norms).square().sum())
        if squares > most**2 and math.isfinite(squares):
            with torch.no_grad():
                self.gradient.mul_(most / math.sqrt(squares))

    def _refuse_replaced(self) -> None:
        for (name, parameter), place, address in zip(self.parameters, self._places, self._addresses):
            if place.module._parameters.get(place.name) is not parameter or parameter.data_ptr() != address:
                raise TradewindError(
                    f"parameter {name} was replaced after its rank had taken it over: change its values in place "
                    "(parameter.copy_ under torch.no_grad()), and move or convert the model before"
                )

    def _refuse_changes(self) -> None:
        """Whoever changes a gradient that has left, or is another on each rank, is told."""
        if self._left in (None, self.gradient._version):
            return
        if self._native.per_bucket:
            raise TradewindError(
                "the gradient was changed after backward, when exchange.per_bucket had sent it: leave it as it is, or "
                "set exchange.per_bucket = false"
            )
        if self._native.scatter:
            raise TradewindError(
                'the gradient was changed after backward, and with exchange.reduce = "scatter" each rank has only a '
                "part of it: leave it as it is, or set exchange.reduce = \"all-reduce\""
            )

    # Buffers.

    def lay_buffers(self) -> None:
        """Before an exchange: buffers, averaged over the group, lie beside the gradient."""
        buffers = self.gradient[self._buffer_range]
        if buffers.numel() == 0:
            return
        buffers.copy_(self.values[self._buffer_range])
        if self._group is not None:
            self._group.average(buffers)
        self._flat.leave(self._buffer_range)
        self._flat.left()

    def keep_buffers(self) -> None:
        """Notes what buffers are before the forward of a step that may be skipped."""
        self._kept_buffers.copy_(self.values[self._buffer_range])

    def put_buffers_back(self) -> None:
        """They are as `keep_buffers` has noted."""
        self.values[self._buffer_range] = self._kept_buffers


def store_at(address: str, patience: timedelta) -> TCPStore:
    """The store that another rank serves."""
    host, _, port = address.rpartition(":")
    try:
        # It was there before its rank has joined. Once that has died a TCPStore would go on asking.
        socket.create_connection((host, int(port)), patience.total_seconds()).close()
    except ConnectionRefusedError:
        raise GroupBroken(f"the rank that served the group's store at {address} has ended") from None
    except OSError:
        pass
    return TCPStore(host, int(port), timeout=patience)


def memory_of(tensor: Tensor) -> Any:
    """The tensor's memory, by Python's buffer protocol, as long as the tensor lives."""
    array = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    array.owner = tensor  # type: ignore[attr-defined]
    # As bytes and back: the format of ctypes names a byte order, which says nothing new.
    return memoryview(array).cast("B").cast("f")
