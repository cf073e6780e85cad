"""A model that FSDP2 has sharded over the ranks of the group: an island.

FSDP2 averages the gradient while backward goes on, and leaves each rank its rows of it. Each rank exchanges a slice
of the flat vector, which is other values. So gradients go from the ranks that hold them to those that exchange them,
and fresh values go back, a chunk at a time, through main memory. No rank ever has the whole model or the whole
gradient: of the flat vector only the own slice is memory.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard

from ._collectives import Reused, send_directly
from ._gathered import save
from ._group import FOREVER, Ranks, guard
from ._native import GroupBroken, TradewindError
from ._replica import Replica, memory_of, store_at
from ._saving import of_state
from ._shards import Chunk, Piece
from ._shards import Tensor as Placed
from ._shards import plan
from ._sparse import Sparse
from ._stored import Model

if TYPE_CHECKING:
    from . import _native
    from ._rank import Rank

#: Values of a rank's shard that change hands together, about: 4 MiB.
_CHUNK_ELEMENTS = 1 << 20
#: How long ranks that evaluate wait for each other, once they have met for their mesh.
_PATIENCE = timedelta(minutes=10)
#: Tags of messages: chunks have the numbers from these on.
_OF_BUFFERS, _OF_CHUNKS = 1 << 21, 1 << 22


class Island(Replica):
    """The shards of one rank."""

    #: A process group of torch's cannot take in another process, so all of the group's ranks begin anew.
    forms_again = False
    is_whole = False

    def __init__(self, rank: Rank, model: nn.Module) -> None:
        _refuse_unfit(rank, model)
        super().__init__(rank, model)
        if self._native.per_bucket:
            raise TradewindError(
                "exchange.per_bucket sends gradients while backward goes on, and those of a sharded model are "
                "FSDP2's until it ends: leave it out of the run's file"
            )
        self._ranks: IslandRanks | None = None
        self._counts = [0] * len(self.parameters)
        self._plan: list[Chunk] = []
        self._memory = Reused()
        if self._device.type == "cpu":
            send_directly(model, self._memory)

    def begin(self, samples: int) -> None:
        if self._begun:
            return
        self._begun = True
        tensors = self.parameters + self.buffers
        specs = [(name, list(tensor.shape), at >= len(self.parameters)) for at, (name, tensor) in enumerate(tensors)]
        elements, placed = self._native.describe(specs, samples, self._frozen)
        self._values, self._gradient = Sparse(elements), Sparse(elements)
        self._buffer_range = slice(*self._native.buckets().buffers)
        self._sharded: list[Placed] = []
        #: Where buffers lie.
        self._laid: list[tuple[Tensor, slice]] = []
        for place in placed:
            tensor = tensors[place.tensor][1]
            if place.tensor < len(self.parameters):
                self._sharded.append(Placed(place.tensor, place.begin, tuple(tensor.shape)))
            else:
                self._laid.append((tensor, slice(place.begin, place.begin + place.elements)))
        for number, (_, parameter) in enumerate(self.parameters):
            self._watch(number, parameter)
        self.keep_buffers()
        on_gpu = self._device.type == "cuda"
        values, gradient = memory_of(self._values.values), memory_of(self._gradient.values)
        self._native.bind(values, gradient, on_gpu, self._gradient.release)

    def deal(self, slices: list[list[tuple[int, int]]]) -> None:
        self._deal(slices, self._rank.rank if len(slices) > 1 else 0)
        if len(slices) > 1:
            names = self._rank._names
            assert names is not None
            joined = Evaluators(self._number, len(slices), self._native.evaluation_key())
            here = torch.device("cpu")
            # They have no leases, and bring values in different times.
            self._ranks = IslandRanks(
                self._rank, joined, store_at(names.address, _PATIENCE), _PATIENCE, here, lambda _: None
            )

    def _deal(self, slices: list[list[tuple[int, int]]], rank: int) -> None:
        """Each rank exchanges these ranges of the flat vector; this is one of them."""
        self._slices, self._number = slices, rank
        self._plan = plan(self._sharded, slices, rank, _CHUNK_ELEMENTS * len(slices))

    def _meet(self, joined: _native.Joined, own: str) -> Ranks | None:
        mesh = self._rank.mesh()
        if (joined.group_size, joined.group_rank) != (mesh.size(), mesh.get_local_rank()):
            raise GroupBroken(
                f"the group has formed of {joined.group_size} ranks, and the model is sharded over {mesh.size()}"
            )
        self._deal(joined.slices, joined.group_rank)
        if joined.group_size > 1:
            store = self._store_of(joined, own)
            # They meet over Gloo: shards change hands in main memory.
            here = torch.device("cpu")
            self._ranks = guard(
                "meeting the group",
                lambda: IslandRanks(self._rank, joined, store, self._patience(), here, self._native.breaks),
            )
        # Whoever is told to create initial values creates its slice.
        self.bring_values()
        for buffer, at in self._laid:
            self._values.values[at] = buffer.flatten()
        return self._ranks

    def part(self) -> None:
        super().part()
        self._ranks = None

    def save(self, path: str | os.PathLike[str], shard_bytes_max: int | None) -> None:
        ranks = self._ranks
        if self._rank.mesh().size() == 1:
            return super().save(path, shard_bytes_max)
        if ranks is None:
            raise TradewindError(
                "the model is sharded over ranks that have not met yet: call rank.save after the first batch is taken"
            )
        guard("saving the model", lambda: save(self.model, path, shard_bytes_max, ranks))

    def stored(self) -> Model:
        """Of a group of one rank."""
        state = self.model.state_dict()
        return of_state({name: _local(value) if isinstance(value, DTensor) else value for name, value in state.items()})

    # Shards and slices.

    def _shards(self) -> list[Tensor]:
        """This rank's rows of each parameter, one after the other."""
        return [_local(parameter).view(-1) for _, parameter in self.parameters]

    @torch.no_grad()
    def _to_slices(self, shards: list[Tensor | None], flat: Tensor, free: bool) -> None:
        """Brings what ranks hold to those that exchange it. With `free` gradients are let go of on the way."""
        for chunk in self._plan:
            held = [[_part(shards[piece.tensor], piece) for piece in pieces] for pieces in chunk.held]
            taken = self._swap(chunk.number + _OF_CHUNKS, held, [_ranges(flat, pieces) for pieces in chunk.sliced])
            del held
            taken()
            if free:
                for number in chunk.ended:
                    self.parameters[number][1].grad = shards[number] = None

    @torch.no_grad()
    def _to_shards(self) -> None:
        """Brings fresh values from the ranks that have exchanged them to those that hold them."""
        shards, flat = self._shards(), self._values.values
        for chunk in self._plan:
            sliced = [_ranges(flat, pieces) for pieces in chunk.sliced]
            held = [[_part(shards[piece.tensor], piece) for piece in pieces] for pieces in chunk.held]
            self._swap(chunk.number + _OF_CHUNKS, sliced, held)()

    def _swap(self, tag: int, given: list[list[Tensor]], taken: list[list[Tensor]]) -> Any:
        """Sends pieces to each rank, and receives others. Returns what ends it."""
        return swap(self._ranks, self._number, tag, given, taken, self._memory)

    def bring_values(self) -> None:
        guard("bringing shards to slices", lambda: self._to_slices(list(self._shards()), self._values.values, False))

    @torch.no_grad()
    def fresh(self) -> None:
        if not self._begun:
            return
        # What was sent is needed no more.
        self._release(self._gradient)
        guard("bringing slices to shards", self._to_shards)
        self._fresh_buffers()
        if not self._native.keeps_values:
            self._release(self._values)

    def _release(self, vector: Sparse) -> None:
        for begin, end in self._slices[self._number]:
            vector.release(begin, end)

    # Backward.

    def _watch(self, number: int, parameter: nn.Parameter) -> None:
        def reduced(_: Tensor) -> None:
            self._counts[number] += 1
            self.backwards = max(self.backwards, self._counts[number])
            self.has_gradient = True
            self._touched.add(number)

        parameter.register_post_accumulate_grad_hook(reduced)

    @property
    def gradients(self) -> list[Tensor | None]:  # type: ignore[override]
        """This rank's rows of each."""
        return [None if parameter.grad is None else _local(parameter.grad) for _, parameter in self.parameters]

    def zero(self) -> None:
        for _, parameter in self.parameters:
            parameter.grad = None
        self._begin_step()
        self.has_gradient = False

    def _begin_step(self) -> None:
        self._touched.clear()
        self._counts = [0] * len(self.parameters)
        self.backwards = 0

    def show_gradients(self) -> None:
        """They are the parameters' own."""

    @torch.no_grad()
    def ready(self) -> None:
        self._refuse_unfinished()
        for (name, _), gradient in zip(self.parameters, self.gradients):
            if gradient is None:
                raise TradewindError(f"the gradient of {name} was taken away after backward: leave it until opt.step()")
        self._begin_step()
        self._clip()
        if self._native.is_local:
            return
        shards = [None if gradient is None else gradient.reshape(-1) for gradient in self.gradients]
        guard("bringing gradients to slices", lambda: self._to_slices(shards, self._gradient.values, True))
        for _, parameter in self.parameters:
            # Of some this rank has no row.
            parameter.grad = None

    def finite(self) -> bool:
        if not self._native.is_local:
            # What is exchanged is looked at there.
            return True
        return all(bool(torch.isfinite(gradient).all()) for gradient in self.gradients if gradient is not None)

    def _clip(self) -> None:
        most = self._native.clip_norm
        if most is None:
            return
        own = sum(
            float(torch.linalg.vector_norm(gradient, dtype=torch.float64)) ** 2
            for gradient in self.gradients
            if gradient is not None
        )
        ranks = self._ranks
        squares = own if ranks is None else guard("measuring the gradient", lambda: ranks.all_reduce_sum([own]))[0]
        if squares > most**2 and math.isfinite(squares):
            for gradient in self.gradients:
                if gradient is not None:
                    gradient.mul_(most / math.sqrt(squares))

    # Buffers: each rank has them whole.

    @torch.no_grad()
    def lay_buffers(self) -> None:
        for buffer, at in self._laid:
            self._gradient.values[at] = buffer.flatten()
        if self._ranks is not None and self._laid:
            self._ranks.average(self._gradient.values[self._buffer_range])

    @torch.no_grad()
    def _fresh_buffers(self) -> None:
        """Those that this rank has exchanged go to all, and theirs come."""
        if not self._laid:
            return
        flat, size = self._values.values, len(self._slices)
        border = self._buffer_range.start
        own = [flat[max(begin, border) : end] for begin, end in self._slices[self._number] if end > border]
        theirs = [[flat[max(begin, border) : end] for begin, end in ranges if end > border] for ranges in self._slices]
        theirs[self._number] = own
        guard("sharing buffers", lambda: self._swap(_OF_BUFFERS, [own] * size, theirs)())
        for buffer, at in self._laid:
            buffer.copy_(flat[at].view(buffer.shape))

    @torch.no_grad()
    def keep_buffers(self) -> None:
        self._kept = [buffer.clone() for buffer, _ in self._laid]

    @torch.no_grad()
    def put_buffers_back(self) -> None:
        for (buffer, _), kept in zip(self._laid, self._kept):
            buffer.copy_(kept)


@dataclass(frozen=True)
class Evaluators:
    """The ranks that evaluate a sharded model together, in the place of a `Joined` of training."""

    group_rank: int
    group_size: int
    store_key: bytes
    prefix: str = "tradewind/evaluation"


class IslandRanks(Ranks):
    """The ranks of an island, whose end is that of this process."""

    def __init__(self, of: Rank, *meeting: Any) -> None:
        self._of = of
        super().__init__(*meeting)

    def gather(self) -> None:
        """Each rank keeps what it has exchanged, until it goes to those that hold it."""

    def send(self, values: Tensor, rank: int, tag: int) -> Any:
        """Begins to send values in main memory."""
        return self._gloo.send([values], rank, tag)

    def receive(self, room: Tensor, rank: int, tag: int) -> Any:
        """Begins to receive values."""
        return self._gloo.recv([room], rank, tag)

    def break_off(self) -> None:
        """A rank that waits in a collective of FSDP2 cannot be freed: its process ends."""
        if not self._of.done:
            self._of._begin_anew(
                "this rank's lease is lost: its process ends, and all ranks of the group begin anew with the servers' "
                "values"
            )


def swap(
    ranks: IslandRanks | None,
    own: int,
    tag: int,
    given: list[list[Tensor]],
    taken: list[list[Tensor]],
    memory: Reused,
) -> Any:
    """Sends pieces to each rank and receives others, all in main memory on their way.

    Args:
        own: The number of this rank.
        tag: Tells these messages from others.
        given: By rank, what it is sent.
        taken: By rank, what comes from it: written when what is returned is called.
        memory: What is under way lies there.

    Returns:
        A function that ends it. What is given is not needed any more.
    """
    works, received, sent = [], [], []
    if ranks is not None:
        for rank, pieces, room in _rooms(taken, own, memory):
            works.append(ranks.receive(room, rank, tag))
            received.append((pieces, room))
        for rank, pieces, room in _rooms(given, own, memory):
            if pieces[0].is_cpu:
                torch.cat(pieces, out=room)
            else:
                room.copy_(torch.cat(pieces))
            works.append(ranks.send(room, rank, tag))
            sent.append(room)
    if given[own] is not taken[own] and taken[own]:
        torch._foreach_copy_(taken[own], given[own])

    def end() -> None:
        for work in works:
            # Without this it would be the time that ranks have to meet in.
            work.wait(FOREVER)
        sent.clear()
        for pieces, room in received:
            torch._foreach_copy_(pieces, list(room.split([piece.numel() for piece in pieces])))

    return end


def _rooms(of: list[list[Tensor]], own: int, memory: Reused) -> list[tuple[int, list[Tensor], Tensor]]:
    """For each rank but this one that has pieces: its number, the pieces, and a place for all of them."""
    lengths = [0 if rank == own else sum(piece.numel() for piece in pieces) for rank, pieces in enumerate(of)]
    rooms = memory.tensor(sum(lengths)).split(lengths)
    return [(rank, of[rank], room) for rank, room in enumerate(rooms) if lengths[rank] > 0]


def is_sharded(model: nn.Module) -> bool:
    """Whether somebody has sharded it."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def _refuse_unfit(rank: Rank, model: nn.Module) -> None:
    """Every trained parameter is cut into rows, over the ranks of the group.

    Raises:
        TradewindError: For one that is not, by its name.
    """
    way = "call fully_shard(model, mesh=rank.mesh())"
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if not isinstance(parameter, DTensor):
            raise TradewindError(
                f"parameter {name} is not sharded, and others of the model are: {way} on the whole model too, after "
                "its parts, and before anything is computed; or freeze the parameter with requires_grad_(False)"
            )
        if not _is_of_fsdp(model, name):
            raise TradewindError(
                f"parameter {name} is a DTensor that fully_shard has not made, as of tensor parallel, whose ranks would "
                f"need equal batches: that cannot be exchanged yet; {way} instead"
            )
        mesh = parameter.device_mesh
        if rank._mesh is None or mesh.ndim != 1 or mesh.mesh.tolist() != rank._mesh.mesh.tolist():
            raise TradewindError(
                f"parameter {name} is sharded over {mesh}, which is not the mesh of the group's ranks: {way}"
            )
        if tuple(parameter.placements) != (Shard(0),) or type(parameter.placements[0]) is not Shard:
            raise TradewindError(
                f"parameter {name} is placed as {parameter.placements[0]!r}, and only rows, Shard(0), are exchanged: "
                "leave shard_placement_fn out"
            )
        if parameter.dtype != torch.float32:
            raise TradewindError(
                f"parameter {name} is {parameter.dtype}, and a sharded model has no masters of f32 on its ranks: keep "
                "it in torch.float32, and compute with fully_shard(…, mp_policy=MixedPrecisionPolicy("
                "param_dtype=torch.bfloat16))"
            )


def _is_of_fsdp(model: nn.Module, name: str) -> bool:
    """Whether `fully_shard` was called for a module that has the parameter."""
    # Older versions of torch have none, and DTensors all the same.
    from torch.distributed.fsdp import FSDPModule

    modules = [model]
    for part in name.split(".")[:-1]:
        modules.append(modules[-1].get_submodule(part))
    return any(isinstance(module, FSDPModule) for module in modules)


def _local(tensor: Any) -> Tensor:
    local: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.detach()


def _part(shard: Tensor | None, piece: Piece) -> Tensor:
    assert shard is not None
    return shard[piece.shard[0] : piece.shard[1]]


def _ranges(flat: Tensor, pieces: list[Piece]) -> list[Tensor]:
    return [flat[begin:end] for begin, end in (piece.flat for piece in pieces)]
