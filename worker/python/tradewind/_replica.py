"""A model whose trained tensors are views of one vector, and the group that trains it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed import PrefixStore, ProcessGroupGloo, Store, TCPStore

from ._native import GroupBroken, TradewindError

if TYPE_CHECKING:
    from . import _native
    from ._rank import Rank


class Replica:
    """The model of one rank."""

    def __init__(self, rank: Rank, model: nn.Module) -> None:
        self._rank = rank
        self._native = rank._native
        torch.set_num_threads(self._native.threads)
        self.parameters = _trained(model)
        self._places = _places(model, self.parameters)
        self.buffers = _buffers(model)
        self._begun = False
        #: Whether backward has run since the last step.
        self.has_gradient = False
        #: How often it has, since the last step.
        self.backwards = 0
        #: Whether a backward averages over the group; whether the one at hand, or the last, does; and how many
        #: have, since the last step.
        self.synchronizes = True
        self._averages = False
        self._averaged = 0
        self._group: _Group | None = None
        self._store: TCPStore | None = None
        #: What has broken a reduction in backward.
        self._broken: str | None = None
        self._pending: list[tuple[Any, Tensor]] = []
        self._queued = False

    def begin(self, samples: int) -> None:
        """The model is what it is: lays it out. The training data have so many samples."""
        if self._begun:
            return
        self._begun = True
        named = [(name, tensor, False) for name, tensor in self.parameters]
        named += [(name, tensor, True) for name, tensor in self.buffers]
        specs = [(name, list(tensor.shape), buffer) for name, tensor, buffer in named]
        elements, placed = self._native.describe(specs, samples)
        self.values = torch.zeros(elements)
        self.gradient = torch.zeros(elements)
        buckets = self._native.buckets()
        self._buckets = buckets.parameters
        self._buffer_range = slice(*buckets.buffers)
        begins: list[int] = [0] * len(named)
        for place in placed:
            name, tensor, buffer = named[place.tensor]
            at = slice(place.begin, place.begin + place.elements)
            view = self.values[at].view(tensor.shape)
            view.copy_(tensor.detach())
            tensor.data = view
            begins[place.tensor] = place.begin
            if not buffer:
                tensor.grad = self.gradient[at].view(tensor.shape)
        self._kept_buffers = self.values[self._buffer_range].clone()
        self._waits = [0] * len(self._buckets)
        self._sizes = [0] * len(self._buckets)
        self._touched: set[int] = set()
        self._begins = begins[: len(self.parameters)]
        for number, (_, parameter) in enumerate(self.parameters):
            bucket = self._bucket_of(begins[number])
            self._sizes[bucket] += 1
            self._hook(number, parameter, bucket)
        self.gradients = [parameter.grad for _, parameter in self.parameters]
        self._native.bind(_memory(self.values), _memory(self.gradient))

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
            self._store = TCPStore(
                self._native.host, 0, is_master=True, wait_for_workers=False, timeout=self._patience()
            )
        own = "" if self._store is None else f"{self._native.host}:{self._store.port}"
        joined = self._native.join(own)
        if joined.group_size > 1:
            store: Store
            if joined.store_address == own and self._store is not None:
                store = self._store
            else:
                host, _, port = joined.store_address.rpartition(":")
                store = _guard("meeting the group", lambda: TCPStore(host, int(port), timeout=self._patience()))
            self._group = _guard(
                "meeting the group",
                lambda: _Group(joined, store, self._patience(), self.values),
            )
        group = self._group
        stepped = self._native.enter(group, None if group is None else group.break_off)
        self.zero()
        return stepped

    def part(self) -> None:
        """Leaves the group as it is: another may form."""
        self._group = None
        self._broken = None
        self._pending.clear()
        self._queued = False
        self.has_gradient = False
        self.backwards = 0
        self._averaged = 0

    def _patience(self) -> timedelta:
        return timedelta(seconds=self._native.lease_seconds)

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

        parameter.register_post_accumulate_grad_hook(accumulated)

    def _begin_backward(self) -> None:
        self._averages = self._group is not None and self.synchronizes
        if self._averages:
            # One that averages reaches every parameter.
            self._touched.clear()
            self._waits = list(self._sizes)
            self._averaged += 1
            if self._averaged > 1:
                try:
                    self._native.meet(len(self._rank._batches(self.backwards + 1)))
                except GroupBroken as error:
                    self._broken = str(error)
        self._queued = True
        torch.autograd.Variable._execution_engine.queue_callback(self._wait)

    def _reduce(self, bucket: int) -> None:
        assert self._group is not None
        begin, end = self._buckets[bucket]
        part = self.gradient[begin:end]
        try:
            self._pending.append((self._group.reduce(part), part))
        except RuntimeError as error:
            self._broken = str(error)

    def _wait(self) -> None:
        """At the end of backward: gradients are averaged on every rank, if they are in this one."""
        self._queued = False
        self.backwards += 1
        if self._group is None:
            return
        for work, part in self._pending:
            try:
                work.wait()
            except RuntimeError as error:
                self._broken = str(error)
            part.div_(self._group.size)
        self._pending.clear()

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
        """Before a step: the gradient is whole.

        Raises:
            GroupBroken: A reduction has failed.
            TradewindError: There is no gradient, or not of all parameters; or it is not that of the model.
        """
        self._refuse_replaced()
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

    def _refuse_replaced(self) -> None:
        for (name, parameter), place, begin in zip(self.parameters, self._places, self._begins):
            replaced = place.module._parameters.get(place.name) is not parameter
            if replaced or parameter.data_ptr() != self.values.data_ptr() + 4 * begin:
                raise TradewindError(
                    f"parameter {name} was replaced after its rank had taken it over: change its values in place "
                    "(parameter.copy_ under torch.no_grad()), and move or convert the model before"
                )

    # Buffers.

    def lay_buffers(self) -> None:
        """Before an exchange: buffers, averaged over the group, lie beside the gradient."""
        buffers = self.gradient[self._buffer_range]
        if buffers.numel() > 0:
            buffers.copy_(self.values[self._buffer_range])
            if self._group is not None:
                self._group.average(buffers)

    def keep_buffers(self) -> None:
        """Notes what buffers are before the forward of a step that may be skipped."""
        self._kept_buffers.copy_(self.values[self._buffer_range])

    def put_buffers_back(self) -> None:
        """They are as `keep_buffers` has noted."""
        self.values[self._buffer_range] = self._kept_buffers


class _Group:
    """The ranks of one incarnation of a group, over Gloo."""

    def __init__(self, joined: _native.Joined, store: Store, patience: timedelta, values: Tensor) -> None:
        self.rank, self.size = joined.group_rank, joined.group_size
        self._gloo = ProcessGroupGloo(PrefixStore(joined.prefix, store), self.rank, self.size, patience)
        self._slices = joined.slices
        self._values = values
        longest = max(sum(end - begin for begin, end in ranges) for ranges in self._slices)
        self._gathered = [torch.zeros(longest) for _ in range(self.size)]

    def reduce(self, part: Tensor) -> Any:
        """Begins to sum over the ranks, in place."""
        return self._gloo.allreduce([part])

    def average(self, part: Tensor) -> None:
        """Averages over the ranks, in place."""
        _guard("averaging buffers", lambda: self.reduce(part).wait())
        part.div_(self.size)

    # Collectives that the native half asks for, from its own thread.

    def all_reduce_sum(self, values: list[float]) -> list[float]:
        sums = torch.tensor(values, dtype=torch.float64)
        self._gloo.allreduce([sums]).wait()
        return sums.tolist()

    def broadcast(self, values: list[int]) -> list[int]:
        told = torch.tensor(values, dtype=torch.int64)
        self._gloo.broadcast(told, 0).wait()
        return told.tolist()

    def gather(self) -> None:
        """Shares the slices of the flat vector: the own one is fresh."""
        own = torch.cat([self._values[begin:end] for begin, end in self._slices[self.rank]] or [torch.zeros(0)])
        send = torch.zeros_like(self._gathered[0])
        send[: own.numel()] = own
        self._gloo.allgather([self._gathered], [send]).wait()
        for rank, ranges in enumerate(self._slices):
            if rank == self.rank:
                continue
            at = 0
            for begin, end in ranges:
                self._values[begin:end] = self._gathered[rank][at : at + end - begin]
                at += end - begin

    def break_off(self) -> None:
        """Frees whoever waits in a collective: a receive that runs out of time ends the group's connections."""
        for peer in range(self.size):
            if peer == self.rank:
                continue
            try:
                self._gloo.recv([torch.zeros(1)], peer, 1 << 20).wait(timedelta(milliseconds=1))
            except RuntimeError:
                pass


def _guard(what: str, act: Any) -> Any:
    """Does something with the group; that it fails breaks the group."""
    try:
        return act()
    except RuntimeError as error:
        raise GroupBroken(f"{what}: {error}") from None


def _memory(tensor: Tensor) -> Any:
    """The tensor's memory, by Python's buffer protocol, as long as the tensor lives."""
    array = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    array.owner = tensor  # type: ignore[attr-defined]
    # As bytes and back: the format of ctypes names a byte order, which says nothing new.
    return memoryview(array).cast("B").cast("f")


def _trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters that are trained, each once, by name, in the model's order."""
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not trained:
        raise TradewindError("the model has no parameter that is trained (requires_grad)")
    for name, parameter in trained:
        if parameter.dtype != torch.float32:
            raise TradewindError(
                f"parameter {name} is {parameter.dtype}, not torch.float32: train in f32 and compute in fewer bits "
                "under torch.autocast"
            )
        if parameter.device.type != "cpu":
            raise TradewindError(f"parameter {name} is on {parameter.device}; scripts train on the CPU yet")
    return trained


@dataclass(frozen=True)
class _Place:
    """Where a parameter stands in a model."""

    module: nn.Module
    name: str


def _places(model: nn.Module, parameters: list[tuple[str, nn.Parameter]]) -> list[_Place]:
    """Of each of the parameters the first place."""
    places: dict[int, _Place] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            places.setdefault(id(parameter), _Place(module, name))
    return [places[id(parameter)] for _, parameter in parameters]


def _buffers(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Statistics that training changes: persistent buffers of f32 that are finite. A mask with −inf is none."""
    kept = set(model.state_dict(keep_vars=True))
    buffers = [(name, buffer) for name, buffer in model.named_buffers() if name in kept]
    return [
        (name, buffer)
        for name, buffer in buffers
        if buffer.dtype == torch.float32 and buffer.numel() > 0 and bool(torch.isfinite(buffer).all())
    ]
