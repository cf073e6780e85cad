"""Which values of a sharded model go from which rank of a group to which, for exchanges. Imports no torch.

FSDP2 cuts each parameter into rows, one piece a rank, the first ones longer: `Shard(0)`. Exchanges cut the flat
vector of all parameters into blocks and deal them to the ranks: a rank's slice. So a piece of a parameter is *held* by
one rank and *exchanged* by one, often another. All of it follows from the layout, which all ranks have; nothing is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby

Range = tuple[int, int]


@dataclass(frozen=True)
class Tensor:
    """A parameter: its number, where it begins in the flat vector, and its shape."""

    number: int
    begin: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """Values that one rank holds and one exchanges: a range of the flat vector, and of the holder's shard."""

    flat: Range
    tensor: int
    shard: Range


@dataclass
class Chunk:
    """A part of the flat vector whose pieces change hands together.

    Attributes:
        number: Of the chunk in the vector: the same on all ranks.
        held: By rank, the pieces that this one holds and that rank exchanges, in flat order.
        sliced: By rank, the pieces that that rank holds and this one exchanges, in flat order.
        ended: Parameters of which this rank has no piece in a later chunk.
    """

    number: int
    held: list[list[Piece]]
    sliced: list[list[Piece]]
    ended: list[int] = field(default_factory=list)


def rows(extent: int, ranks: int) -> list[Range]:
    """Of so many rows the range that each rank holds, as `torch.chunk` cuts: the last ones may have fewer, or none."""
    each = -(-extent // ranks)
    return [(min(rank * each, extent), min((rank + 1) * each, extent)) for rank in range(ranks)]


def plan(tensors: list[Tensor], slices: list[list[Range]], rank: int, chunk: int) -> list[Chunk]:
    """What a rank gives and takes.

    Args:
        tensors: All that are sharded, in flat order; they adjoin, from 0 on.
        slices: Of each rank the ranges of the flat vector that it exchanges, in order; beyond the tensors as well.
        rank: Which one plans.
        chunk: Elements of the flat vector that change hands together.
    """
    ranks = len(slices)
    chunks: dict[int, Chunk] = {}
    last: dict[int, int] = {}
    owners = merge(*([(begin, end, owner) for begin, end in ranges] for owner, ranges in enumerate(slices)))
    begin, end, owner = next(owners)
    for tensor in tensors:
        row = 1
        for extent in tensor.shape[1:]:
            row *= extent
        for holder, (first, behind) in enumerate(rows(tensor.shape[0], ranks)):
            base = tensor.begin + first * row
            at, until = base, tensor.begin + behind * row
            while at < until:
                while end <= at:
                    begin, end, owner = next(owners)
                number = at // chunk
                to = min(until, end, (number + 1) * chunk)
                if rank in (holder, owner):
                    place = chunks.setdefault(number, Chunk(number, [[] for _ in slices], [[] for _ in slices]))
                    piece = Piece((at, to), tensor.number, (at - base, to - base))
                    if holder == rank:
                        place.held[owner].append(piece)
                        last[tensor.number] = number
                    if owner == rank:
                        place.sliced[holder].append(piece)
                at = to
    for number, ended in groupby(sorted(last, key=last.__getitem__), key=last.__getitem__):
        chunks[number].ended = list(ended)
    return [chunks[number] for number in sorted(chunks)]
